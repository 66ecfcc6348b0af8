// Carrying out one rank's part of a plan.
#include <ppengine/engine/pipeline.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/schedules/check/validate.hpp>

namespace ppengine::engine {

Pipeline::Pipeline(ModelRank& model, schedules::Plan plan, const PipelineOptions& options)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      training_(!schedules::is_inference(plan_)),
      pinned_(model.device()),
      stream_(model.device()),
      second_(model.device()) {
  schedules::validate(plan_);
  PPENGINE_ASSERT(plan_.lowered() && plan_.stages == static_cast<int>(model.cuts().size()) &&
                  plan_.stage_rank == model.stage_rank().items());
  CompileOptions compile = options.compile;
  compile.type = model.options().compute;
  compile.training = training_;
  compile.split_backward = schedules::uses_split_backward(plan_);
  compile.recompute = compile.recompute && training_;
  for (StageId id : model.stages()) {
    BlockCount blocks = count_blocks(plan_, id);
    blocks.activations += options.spare_blocks;
    stages_.push_back(std::make_unique<StageRuntime>(model, id, StageRuntime::Options{compile, blocks}));
  }
}

Pipeline::~Pipeline() = default;

StageRuntime& Pipeline::at(StageId stage) {
  for (auto& one : stages_)
    if (one->id() == stage) return *one;
  throw Error(fmt::format("internal error: stage {} is not on rank {}", stage.number(), model_.rank()));
}

void Pipeline::prepare(const std::vector<MicrobatchRange>& microbatches, std::int64_t length, Output output) {
  PPENGINE_ASSERT(static_cast<int>(microbatches.size()) == plan_.microbatches);
  std::size_t workspace = workspace_.bytes();
  for (auto& stage : stages_) {
    stage->prepare(microbatches, length, output);
    workspace = std::max(workspace, stage->workspace_bytes());
  }
  if (workspace > workspace_.bytes()) {
    workspace_ = ops::Buffer(model_.device(), workspace, &model_.memory());
    if (schedules::uses_overlap(plan_)) second_workspace_ = ops::Buffer(model_.device(), workspace, &model_.memory());
  }
}

void Pipeline::upload_inputs(const StepInputs& inputs) {
  for (auto& stage : stages_)
    for (int m = 0; m < plan_.microbatches; ++m) {
      if (!inputs.batch) {
        inputs.fill(*stage, m);
        continue;
      }
      for (Value value : model_.graph().values().ids())
        if (std::byte* const to = stage->input(m, value))
          upload(to, model_.graph().info(value), *inputs.batch, inputs.microbatches[static_cast<std::size_t>(m)]);
    }
}

void Pipeline::upload(void* to, const ValueInfo& value, const Batch& batch, const MicrobatchRange& range) {
  const BatchInput& input = *batch.find(value.name);
  const bool tokens = value.kind == ValueKind::tokens, narrow = !tokens && model_.options().compute != ops::Type::f32;
  const auto stored = static_cast<std::size_t>(batch.length * value.width);
  const std::size_t used = range.length > 0 ? static_cast<std::size_t>(range.length * value.width) : stored;  // of a sequence
  const std::size_t count = used * static_cast<std::size_t>(range.count);
  const std::size_t first = input.shared ? 0 : static_cast<std::size_t>(range.begin) * stored;
  const bool at_once = used == stored && !input.shared;
  const std::size_t each = at_once ? count : used, stride = input.shared ? 0 : stored;
  const auto* from =
      reinterpret_cast<const std::byte*>(tokens ? static_cast<const void*>(input.tokens.data() + first) : input.values.data() + first);
  if (narrow && staging_.bytes() < count * sizeof(float)) staging_ = ops::Buffer(model_.device(), count * sizeof(float), &model_.memory());
  auto* const whole = static_cast<std::byte*>(narrow ? staging_.data() : to);
  const bool on_cpu = model_.device()->info().is_cpu;
  std::byte* const pinned = on_cpu ? nullptr : pinned_.take(count * sizeof(float));
  for (std::size_t done = 0; done < count; done += each, from += stride * sizeof(float)) {
    if (on_cpu)
      stream_.copy(whole + done * sizeof(float), from, each * sizeof(float));
    else
      std::memcpy(pinned + done * sizeof(float), from, each * sizeof(float));
  }
  if (!on_cpu) stream_.copy(whole, pinned, count * sizeof(float));
  if (narrow) ops::cast(stream_, ops::Type::f32, whole, model_.options().compute, to, static_cast<std::int64_t>(count));
}

void Pipeline::run(const StepInputs& inputs, TimelineRecorder* recorder) {
  struct Forget {  // also when it throws: both are the caller's
    Pipeline& pipeline;
    ~Forget() { pipeline.step_ = nullptr, pipeline.recorder_ = nullptr; }
  } const forget{*this};
  step_ = &inputs;
  recorder_ = recorder;
  comm::abort_on_error(options_.peers, [&] {
    prepare(inputs.microbatches, inputs.batch ? inputs.batch->length : 0, inputs.output);
    carry_out(inputs);
  });
}

void Pipeline::carry_out(const StepInputs& inputs) {
  pinned_.take_back();
  upload_inputs(inputs);
  losses_.clear();
  schedules::execute(plan_, model_.rank(), *this, recorder_);
  const Value loss = options_.compile.loss ? model_.graph().loss_value() : Value();
  for (auto& stage : stages_) {
    if (!loss || !stage->cut().contains(model_.graph().info(loss).producer)) continue;
    const std::size_t count = inputs.microbatches.size();
    auto* const host = reinterpret_cast<float*>(pinned_.take(count * sizeof(float)));
    stream_.copy(host, stage->results().data(), count * sizeof(float));
    stream_.wait();
    losses_.assign(host, host + count);
  }
  if (losses_.empty()) stream_.wait();
  for (auto& stage : stages_) stage->finish();
}

void Pipeline::shadow(GradientSink* sink, bool zeros) {
  for (const schedules::Action& action : plan_.of(model_.rank())) {
    const StageId stage(action.stage);
    if (action.type == schedules::ActionType::unshard) unshard(stage);
    if (action.type == schedules::ActionType::reshard) reshard(stage);
    if (action.type != schedules::ActionType::reduce_grad || !sink) continue;
    if (model_.sharding()) model_.sharding()->begin_gradients(stage, stream_, sink);
    float* const gradients = model_.whole_gradients(stage);
    for (const Bucket& bucket : model_.parameters(stage).buckets()) {
      if (!bucket.reduced()) continue;
      if (zeros) stream_.zero(gradients + bucket.begin, bucket.count() * sizeof(float));
      sink->final_gradients(stage, bucket.parameters, stream_);
    }
    end_gradients(stage, *sink);
  }
  stream_.wait();
}

std::size_t Pipeline::block_bytes() const {
  std::size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->block_bytes();
  return bytes;
}

std::size_t Pipeline::cache_bytes() const {
  std::size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->cache_bytes();
  return bytes;
}

Run Pipeline::make_run(StageRuntime& stage, int microbatch, ops::Stream& stream) {
  Run run = stage.start(microbatch, stream, &stream == &second_ ? second_workspace_ : workspace_);
  run.loss_weight = step_->loss_weight;
  run.accumulate = step_->accumulate || stage.weight_gradients() > 0;
  run.dropout_key = step_->dropout_key;
  run.profile = profile_;
  run.tensor = options_.tensor;
  run.data = options_.data;
  run.peers = options_.peers;
  run.first_sequence = step_->microbatches[static_cast<std::size_t>(microbatch)].begin;
  run.output_row = step_->output_row;
  return run;
}

}  // namespace ppengine::engine
