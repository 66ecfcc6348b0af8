// The norm of a model's gradients.
#include <ppengine/engine/gradients/gradient_norm.hpp>

#include <algorithm>
#include <numeric>

#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

GradientNorm::GradientNorm(ModelRank& model, int tensor_rank) : model_(model), squares_(model.graph().parameters().size()) {
  for (StageId stage : model.stages()) {
    const ParameterStore& store = model.parameters(stage);
    std::vector<std::vector<ParameterId>> parameters(store.buckets().size());
    std::vector<std::vector<ops::SquareSums::Range>> ranges(store.buckets().size());
    for (const ParameterPiece& piece : store.pieces()) {
      const ParameterRange& range = store.ranges()[piece.range];
      const bool split = model.graph().parameters()[range.id].placement.is_split();
      const std::size_t bucket = range.bucket;
      if (!store.buckets()[bucket].reduced() || model.owner(range.id) != stage || (tensor_rank != 0 && !split)) continue;
      parameters[bucket].push_back(range.id);
      ranges[bucket].push_back({piece.local - store.local_begin(store.buckets()[bucket]), piece.count});
    }
    for (std::size_t i = 0; i < ranges.size(); ++i)
      buckets_[stage].push_back({std::move(parameters[i]), ops::SquareSums(model.device(), ranges[i], &model.memory())});
  }
  scratch_ = ops::Buffer(model.device(), ops::reduce_workspace() + ops::buffer_alignment, &model.memory());
}

void GradientNorm::clear() { std::ranges::fill(squares_, 0.0); }

void GradientNorm::add(ops::Stream& stream, StageId stage, std::size_t bucket) {
  const ParameterStore& store = model_.parameters(stage);
  Counted& counted = buckets_.at(stage)[bucket];
  const auto& sums = counted.sums.of(stream, store.gradients() + store.gradient_begin(store.buckets()[bucket]));
  for (std::size_t i = 0; i < sums.size(); ++i) squares_[counted.parameters[i]] += sums[i];
}

void GradientNorm::add(ops::Stream& stream, StageId stage, std::size_t bucket, const float* gradients, std::size_t count) {
  const auto& parameters = buckets_.at(stage)[bucket].parameters;
  if (parameters.empty()) return;
  float* const result = scratch_.as<float>();
  ops::sum_squares(stream, gradients, result, static_cast<std::int64_t>(count), scratch_.at(ops::buffer_alignment));
  float host = 0;
  stream.copy(&host, result, sizeof(float));
  stream.wait();
  squares_[parameters.front()] += host;
}

double GradientNorm::total(std::span<const double> squares) { return std::accumulate(squares.begin(), squares.end(), 0.0); }

}  // namespace ppengine::engine
