// Everything a program that embeds ppengine needs, in one header.
#pragma once

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/base/version.hpp>
