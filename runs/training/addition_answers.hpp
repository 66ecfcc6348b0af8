// A model answers sums: greedy generation, one token per forward pass over all questions at once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ppengine/engine/evaluator.hpp>
#include <ppengine/models/data/addition.hpp>

namespace ppengine::runs {

// What the model says to each sum; empty where that is not a number. The evaluator must give the graph's output; all ranks call this,
// and all get the answers. It takes over evaluator.on_output.
std::vector<std::optional<int>> answer_sums(engine::Evaluator& evaluator, comm::Communicator& world,
                                            std::span<const models::addition::Sum> sums, std::int64_t vocabulary);

}  // namespace ppengine::runs
