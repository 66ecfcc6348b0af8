// The norm of a model's gradients.
#include <ppengine/engine/gradient_norm.hpp>

#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

GradientNorm::GradientNorm(ModelRank& model, int tensor_rank) : model_(model) {
  for (int stage : model.stages()) {
    const ParameterStore& store = model.parameters(stage);
    auto& buckets = runs_[stage];
    buckets.resize(store.buckets().size());
    const ParameterPiece* before = nullptr;
    for (const ParameterPiece& piece : store.pieces()) {
      const ParameterRange& range = store.ranges()[static_cast<size_t>(piece.range)];
      const bool split = model.graph().parameters()[static_cast<size_t>(range.id)].placement.is_split();
      const size_t bucket = static_cast<size_t>(range.bucket);
      if (!store.buckets()[bucket].reduced() || model.owner(range.id) != stage || (tensor_rank != 0 && !split)) {
        before = nullptr;
        continue;
      }
      // What alignment puts between two neighbours is zero: one run for both.
      auto& runs = buckets[bucket];
      if (before && !runs.empty())
        runs.back().end = piece.local + piece.count;
      else
        runs.push_back({piece.local, piece.local + piece.count});
      before = &piece;
    }
  }
  scratch_ = ops::Buffer(model.device(), ops::reduce_workspace() + ops::buffer_alignment, &model.memory());
}

double GradientNorm::squares(ops::Stream& stream, int stage, size_t bucket) {
  double total = 0;
  const ParameterStore& store = model_.parameters(stage);
  const Bucket& whole = store.buckets()[bucket];
  const float* const part = store.gradients() + store.gradient_begin(whole);
  for (const Run& run : runs_.at(stage)[bucket]) total += sum(stream, part + run.begin - store.local_begin(whole), run.end - run.begin);
  return total;
}

double GradientNorm::squares(ops::Stream& stream, int stage, size_t bucket, const float* gradients, size_t count) {
  return runs_.at(stage)[bucket].empty() ? 0.0 : sum(stream, gradients, count);
}

double GradientNorm::sum(ops::Stream& stream, const float* gradients, size_t count) {
  float* const result = scratch_.as<float>();
  ops::sum_squares(stream, gradients, result, static_cast<int64_t>(count), scratch_.at(ops::buffer_alignment));
  float host = 0;
  stream.copy(&host, result, sizeof(float));
  stream.wait();
  return host;
}

}  // namespace ppengine::engine
