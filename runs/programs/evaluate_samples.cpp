// Evaluating a program batch by batch.
#include <ppengine/runs/programs/evaluate_samples.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ppengine::runs {

EvaluationResult evaluate_samples(const models::TensorData& data, const engine::Graph& graph, engine::Evaluator& evaluator,
                                  std::int64_t batch_size, bool whole_batches, std::int64_t limit,
                                  const std::function<void(std::int64_t, std::int64_t)>& before) {
  const auto all = static_cast<std::int64_t>(data.samples());
  const std::int64_t samples = limit > 0 ? std::min(limit, all) : all;
  EvaluationResult result;
  const auto add = [&](const std::vector<std::uint64_t>& numbers, double share) {
    const auto one = evaluator.run(data.read(graph, numbers));
    result.loss_sum += share * one.loss_sum;
    result.valid_tokens += static_cast<std::int64_t>(std::llround(share * double(one.valid_tokens)));
  };
  for (std::int64_t first = 0; first < samples; first += batch_size) {
    const std::int64_t count = std::min(batch_size, samples - first), missing = whole_batches ? batch_size - count : 0;
    std::vector<std::uint64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), static_cast<std::uint64_t>(first));
    numbers.resize(static_cast<std::size_t>(count + missing), static_cast<std::uint64_t>(first));  // filled up with copies of a sample
    if (before) before(first, samples);
    // The copies do not count; what they give is overwritten by what comes next.
    if (missing > 0)
      add(std::vector<std::uint64_t>(numbers.size(), static_cast<std::uint64_t>(first)), -double(missing) / double(batch_size));
    add(numbers, 1.0);
  }
  return result;
}

}  // namespace ppengine::runs
