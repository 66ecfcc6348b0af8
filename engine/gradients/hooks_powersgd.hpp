// Hooks that have a file of their own.
#pragma once

#include <ppengine/engine/gradients/hooks.hpp>

namespace ppengine::engine {

std::shared_ptr<GradientHook> make_powersgd(const HookOptions& options);

}  // namespace ppengine::engine
