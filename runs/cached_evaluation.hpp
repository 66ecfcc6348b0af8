// Evaluation over a cache of keys and values, as generation computes it.
#pragma once

#include <ppengine/runs/evaluation.hpp>

namespace ppengine::runs {

// The loss that a model has where its keys and values go through a cache of bytes (--cache-type int8): prompts of generation, with the
// output of every token. All ranks call it, all get the result. ConfigError for what generation does not do either.
EvaluationResult run_cached_evaluation(const EvaluationOptions& options, comm::Communicator& world);

}  // namespace ppengine::runs
