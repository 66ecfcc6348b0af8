// Optimizers over flat buffers; learning-rate schedules.
#include <ppengine/engine/weights/optimizer.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/weights/adafactor.hpp>
#include <ppengine/engine/weights/muon.hpp>
#include <ppengine/engine/weights/whole_parameters.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/optimizer.hpp>

namespace ppengine::engine {

OptimizerKind parse_optimizer(std::string_view name) {
  if (name == "adamw") return OptimizerKind::adamw;
  if (name == "sgd") return OptimizerKind::sgd;
  if (name == "muon") return OptimizerKind::muon;
  if (name == "adafactor") return OptimizerKind::adafactor;
  throw ConfigError(fmt::format("unknown optimizer '{}': use adamw, sgd, muon or adafactor", name));
}

const char* name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adamw:
      return "adamw";
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::muon:
      return "muon";
    case OptimizerKind::adafactor:
      return "adafactor";
  }
  return "";
}

LrShape parse_lr_schedule(std::string_view name) {
  if (name == "constant") return LrShape::constant;
  if (name == "cosine") return LrShape::cosine;
  if (name == "wsd") return LrShape::wsd;
  throw ConfigError(fmt::format("unknown learning-rate schedule '{}': use constant, cosine or wsd", name));
}

double LrSchedule::at(std::int64_t step) const {
  if (step <= warmup) return peak * double(step) / double(warmup);
  if (shape == LrShape::constant) return peak;
  if (shape == LrShape::wsd) {
    const std::int64_t falling = step - (steps - decay);  // from 1
    if (falling <= 0 || decay <= 0) return peak;
    return peak + (minimum - peak) * std::min(1.0, double(falling) / double(decay));
  }
  const double progress = double(step - 1 - warmup) / double(std::max<std::int64_t>(1, steps - warmup));
  return minimum + (peak - minimum) * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress)));
}

Optimizer::Optimizer(ModelRank& model, const OptimizerOptions& options, comm::Communicator* tensor) : model_(model), options_(options) {
  const bool muon = options.kind == OptimizerKind::muon, adafactor = options.kind == OptimizerKind::adafactor;
  if (muon || adafactor) whole_ = std::make_unique<WholeParameters>(model, tensor);
  if (muon) muon_ = std::make_unique<MuonUpdates>(model, options, *whole_);
  if (adafactor) adafactor_ = std::make_unique<AdafactorUpdates>(model, options, *whole_);
  if (options.state_type != ops::Type::f32 && options.kind != OptimizerKind::adamw)
    throw ConfigError(fmt::format("--state-type bf16 is for --optimizer adamw, not {}", name_of(options.kind)));
  ops::Stream stream(model.device());
  for (StageId index : model.stages()) {
    Stage stage{index, {}, {}};
    const ParameterStore& parameters = model.parameters(index);
    stage.buckets.resize(parameters.buckets().size());
    for (const ParameterPiece& piece : parameters.pieces()) {
      const ParameterRange& range = parameters.ranges()[piece.range];
      if (!parameters.buckets()[range.bucket].reduced()) continue;  // never gets a gradient
      if (muon_ && muon_->has(range.id)) continue;
      const bool spared = !options.decay_1d && model.graph().parameters()[range.id].shape.rank() < 2;
      const float decay = spared ? 0.0f : static_cast<float>(options.weight_decay);
      // Neighbours with the same decay are one range, so that a step is few launches. With the gap behind the last one: then no element
      // falls into what is left after the kernel's full vectors, where the compiler may round otherwise, and replicas whose neighbours
      // differ (tensor-parallel ranks) stay equal bit for bit.
      auto& ranges = stage.buckets[range.bucket];
      const bool apart = muon_ && !ranges.empty() && ranges.back().offset + ranges.back().count != piece.local;  // a matrix lies between
      if (ranges.empty() || ranges.back().decay != decay || apart) ranges.push_back({piece.local, 0, decay});
      ranges.back().count = ops::align_up(piece.local + piece.count, flat_alignment) - ranges.back().offset;
    }
    for (std::size_t i = 0; !adafactor_ && i < state_names().size(); ++i) {
      stage.state.emplace_back(
          model.device(), std::max(parameters.local_trained_count(), flat_alignment) * ops::size_of(options.state_type), &model.memory());
      stream.zero(stage.state.back().data(), stage.state.back().bytes());
    }
    stages_.push_back(std::move(stage));
  }
  stream.wait();
}

Optimizer::~Optimizer() = default;

bool Optimizer::meets_ranks() const { return whole_ && whole_->meets_ranks(); }

std::vector<std::string> Optimizer::state_names() const {
  if (adafactor_) return {"exp_avg_sq"};
  if (options_.kind != OptimizerKind::sgd) return {"exp_avg", "exp_avg_sq"};  // Muon's momentum is the first
  if (options_.momentum != 0.0) return {"momentum_buffer"};
  return {};
}

const Optimizer::Stage& Optimizer::find(StageId stage) const {
  const auto found = std::ranges::find(stages_, stage, &Stage::index);
  PPENGINE_ASSERT(found != stages_.end());
  return *found;
}

float* Optimizer::state(StageId stage, std::size_t which) {
  if (adafactor_) {
    ops::Stream stream(model_.device());
    const std::vector<float> flat = adafactor_->expand(stream, stage);
    wide_ = ops::Buffer(model_.device(), std::max(flat.size(), flat_alignment) * sizeof(float), &model_.memory());
    stream.copy(wide_.data(), flat.data(), flat.size() * sizeof(float));
    stream.wait();
    return wide_.as<float>();
  }
  const ops::Buffer& kept = find(stage).state[which];
  if (options_.state_type == ops::Type::f32) return kept.as<float>();
  const std::size_t count = kept.bytes() / ops::size_of(options_.state_type);
  if (wide_.bytes() < count * sizeof(float)) wide_ = ops::Buffer(model_.device(), count * sizeof(float), &model_.memory());
  ops::Stream stream(model_.device());
  ops::cast(stream, options_.state_type, kept.data(), ops::Type::f32, wide_.data(), static_cast<std::int64_t>(count));
  stream.wait();
  return wide_.as<float>();
}

void Optimizer::store_state(StageId stage, std::size_t which) {
  if (adafactor_) {
    ops::Stream stream(model_.device());
    return adafactor_->collect(stream, stage, wide_.as<float>());
  }
  if (options_.state_type == ops::Type::f32) return;
  const ops::Buffer& kept = find(stage).state[which];
  ops::Stream stream(model_.device());
  ops::cast(stream, ops::Type::f32, wide_.data(), options_.state_type, kept.data(),
            static_cast<std::int64_t>(kept.bytes() / ops::size_of(options_.state_type)));
  stream.wait();
}

void Optimizer::step(ops::Stream& stream, double lr, double gradient_scale) {
  begin_step();
  for (const Stage& stage : stages_)
    for (std::size_t bucket = 0; bucket < stage.buckets.size(); ++bucket) update(stream, stage.index, bucket, lr, gradient_scale);
}

void Optimizer::adamw(ops::Stream& stream, const Stage& stage, const Range& range, float* values, const float* gradients, void* copy,
                      double lr, double gradient_scale) {
  const ops::AdamWStep step{static_cast<float>(lr),
                            static_cast<float>(options_.beta1),
                            static_cast<float>(options_.beta2),
                            static_cast<float>(options_.epsilon),
                            range.decay,
                            steps_,
                            static_cast<float>(gradient_scale)};
  const auto count = static_cast<std::int64_t>(range.count);
  const std::size_t at = range.offset * ops::size_of(options_.state_type);
  if (options_.state_type == ops::Type::f32)
    ops::adamw(stream, step, values, gradients, stage.state[0].as<float>() + range.offset, stage.state[1].as<float>() + range.offset, copy,
               count);
  else
    ops::adamw_narrow(stream, step, values, gradients, stage.state[0].at(at), stage.state[1].at(at), copy, count);
}

void Optimizer::update(ops::Stream& stream, StageId index, std::size_t bucket, double lr, double gradient_scale) {
  const Stage& stage = find(index);
  ParameterStore& parameters = model_.parameters(index);
  if (!stage.buckets[bucket].empty()) parameters.set_gathered(false);
  const Bucket& whole = parameters.buckets()[bucket];
  if (adafactor_) return adafactor_->update(stream, index, bucket, steps_, lr, gradient_scale);
  if (muon_ && muon_->update(stream, index, bucket, stage.state[0].as<float>(), lr, gradient_scale)) parameters.set_gathered(false);
  for (const Range& range : stage.buckets[bucket]) {
    const std::size_t in_part = range.offset - parameters.local_begin(whole), element = ops::size_of(parameters.compute_type());
    float* const values = parameters.values() + parameters.value_begin(whole) + in_part;
    float* const gradients = parameters.gradients() + parameters.gradient_begin(whole) + in_part;
    std::byte* const copies = static_cast<std::byte*>(parameters.compute_copy());
    void* const copy = copies ? copies + (parameters.compute_begin(whole) + in_part) * element : nullptr;
    const auto count = static_cast<std::int64_t>(range.count);
    if (options_.kind != OptimizerKind::sgd) {
      adamw(stream, stage, range, values, gradients, copy, lr, gradient_scale);
    } else {
      const ops::SgdStep step{static_cast<float>(lr), static_cast<float>(options_.momentum), range.decay, steps_ == 1,
                              static_cast<float>(gradient_scale)};
      ops::sgd(stream, step, values, gradients, stage.state.empty() ? nullptr : stage.state[0].as<float>() + range.offset, copy, count);
    }
  }
}

}  // namespace ppengine::engine
