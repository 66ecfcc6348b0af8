// AdamW and SGD over flat buffers; learning-rate schedules.
#include <ppengine/engine/weights/optimizer.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/optimizer.hpp>

namespace ppengine::engine {

OptimizerKind parse_optimizer(std::string_view name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "sgd") return OptimizerKind::sgd;
  throw ConfigError(fmt::format("unknown optimizer '{}': use adamw or sgd", name));
}

LrShape parse_lr_schedule(std::string_view name) {
  if (name == "constant") return LrShape::constant;
  if (name == "cosine") return LrShape::cosine;
  throw ConfigError(fmt::format("unknown learning-rate schedule '{}': use constant or cosine", name));
}

double LrSchedule::at(int64_t step) const {
  if (step <= warmup) return peak * double(step) / double(warmup);
  if (shape == LrShape::constant) return peak;
  const double progress = double(step - 1 - warmup) / double(std::max<int64_t>(1, steps - warmup));
  return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress)));
}

Optimizer::Optimizer(ModelRank& model, const OptimizerOptions& options) : model_(model), options_(options) {
  ops::Stream stream(model.device());
  for (int index : model.stages()) {
    Stage stage{index, {}, {}};
    const ParameterStore& parameters = model.parameters(index);
    stage.buckets.resize(parameters.buckets().size());
    for (const ParameterPiece& piece : parameters.pieces()) {
      const ParameterRange& range = parameters.ranges()[static_cast<size_t>(piece.range)];
      if (!parameters.buckets()[static_cast<size_t>(range.bucket)].reduced()) continue;  // never gets a gradient
      const bool spared = !options.decay_1d && model.graph().parameters()[static_cast<size_t>(range.id)].shape.rank() < 2;
      const float decay = spared ? 0.0f : static_cast<float>(options.weight_decay);
      // Neighbours with the same decay are one range, so that a step is few launches. With the gap behind the last one: then no element
      // falls into what is left after the kernel's full vectors, where the compiler may round otherwise, and replicas whose neighbours
      // differ (tensor-parallel ranks) stay equal bit for bit.
      auto& ranges = stage.buckets[static_cast<size_t>(range.bucket)];
      if (ranges.empty() || ranges.back().decay != decay) ranges.push_back({piece.local, 0, decay});
      ranges.back().count = ops::align_up(piece.local + piece.count, flat_alignment) - ranges.back().offset;
    }
    for (size_t i = 0; i < state_names().size(); ++i) {
      stage.state.emplace_back(model.device(), parameters.local_count() * sizeof(float), &model.memory());
      stream.zero(stage.state.back().data(), stage.state.back().bytes());
    }
    stages_.push_back(std::move(stage));
  }
  stream.wait();
}

std::vector<std::string> Optimizer::state_names() const {
  if (options_.kind == OptimizerKind::adamw) return {"exp_avg", "exp_avg_sq"};
  if (options_.momentum != 0.0) return {"momentum_buffer"};
  return {};
}

const Optimizer::Stage& Optimizer::find(int stage) const {
  const auto found = std::ranges::find(stages_, stage, &Stage::index);
  PPENGINE_ASSERT(found != stages_.end());
  return *found;
}

float* Optimizer::state(int stage, size_t which) const { return find(stage).state[which].as<float>(); }

void Optimizer::step(ops::Stream& stream, double lr, double gradient_scale) {
  begin_step();
  for (const Stage& stage : stages_)
    for (size_t bucket = 0; bucket < stage.buckets.size(); ++bucket) update(stream, stage.index, bucket, lr, gradient_scale);
}

void Optimizer::update(ops::Stream& stream, int index, size_t bucket, double lr, double gradient_scale) {
  const Stage& stage = find(index);
  ParameterStore& parameters = model_.parameters(index);
  parameters.set_gathered(false);
  const Bucket& whole = parameters.buckets()[bucket];
  for (const Range& range : stage.buckets[bucket]) {
    const size_t in_part = range.offset - parameters.local_begin(whole), element = ops::size_of(parameters.compute_type());
    float* const values = parameters.values() + parameters.value_begin(whole) + in_part;
    float* const gradients = parameters.gradients() + parameters.gradient_begin(whole) + in_part;
    std::byte* const copies = static_cast<std::byte*>(parameters.compute_copy());
    void* const copy = copies ? copies + (parameters.compute_begin(whole) + in_part) * element : nullptr;
    const auto count = static_cast<int64_t>(range.count);
    if (options_.kind == OptimizerKind::adamw) {
      const ops::AdamWStep step{static_cast<float>(lr),
                                static_cast<float>(options_.beta1),
                                static_cast<float>(options_.beta2),
                                static_cast<float>(options_.epsilon),
                                range.decay,
                                steps_,
                                static_cast<float>(gradient_scale)};
      ops::adamw(stream, step, values, gradients, stage.state[0].as<float>() + range.offset, stage.state[1].as<float>() + range.offset,
                 copy, count);
    } else {
      const ops::SgdStep step{static_cast<float>(lr), static_cast<float>(options_.momentum), range.decay, steps_ == 1,
                              static_cast<float>(gradient_scale)};
      ops::sgd(stream, step, values, gradients, stage.state.empty() ? nullptr : stage.state[0].as<float>() + range.offset, copy, count);
    }
  }
}

}  // namespace ppengine::engine
