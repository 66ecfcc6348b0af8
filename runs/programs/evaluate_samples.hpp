// The loss of a program over samples of tensors.
#pragma once

#include <functional>

#include <ppengine/engine/evaluator.hpp>
#include <ppengine/models/data/tensor_data.hpp>
#include <ppengine/runs/evaluation.hpp>

namespace ppengine::runs {

// All samples in order, or the first `limit`; before(first, samples) is called for each batch.
// whole_batches: the program takes no smaller ones.
EvaluationResult evaluate_samples(const models::TensorData& data, const engine::Graph& graph, engine::Evaluator& evaluator,
                                  std::int64_t batch_size, bool whole_batches, std::int64_t limit,
                                  const std::function<void(std::int64_t, std::int64_t)>& before = {});

}  // namespace ppengine::runs
