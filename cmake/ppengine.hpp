// Everything a program that embeds ppengine needs, in one header.
#pragma once

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/base/version.hpp>
#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/measure/measured.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/import/program.hpp>
#include <ppengine/models/source.hpp>
#include <ppengine/ops/device/source_kernels.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/training.hpp>
#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/registry.hpp>
