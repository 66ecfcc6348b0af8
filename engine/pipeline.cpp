// Carrying out one rank's part of a plan.
#include <ppengine/engine/pipeline.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/engine/detail/pipeline_state.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/schedules/check/validate.hpp>

namespace ppengine::engine {

Pipeline::Pipeline(ModelRank& model, schedules::Plan plan, const PipelineOptions& options)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      training_(!schedules::is_inference(plan_)),
      stream_(model.device()),
      second_(model.device()) {
  schedules::validate(plan_);
  PPENGINE_ASSERT(plan_.lowered() && plan_.stages == static_cast<int>(model.cuts().size()) && plan_.stage_rank == model.stage_rank().items());
  for (StageId index : model.stages()) {
    auto stage = std::make_unique<Stage>();
    stage->index = index;
    stage->cut = &model.cuts()[index];
    stage->parameters = &model.parameters(index);
    stage->blocks = count_blocks(plan_, index);
    stages_.push_back(std::move(stage));
  }
}

Pipeline::~Pipeline() = default;

Pipeline::Stage& Pipeline::at(StageId stage) {
  for (auto& one : stages_)
    if (one->index == stage) return *one;
  throw Error(fmt::format("internal error: stage {} is not on rank {}", stage.number(), model_.rank()));
}

Pipeline::InFlight& Pipeline::in_flight(Stage& stage, int microbatch) { return stage.flights[static_cast<size_t>(microbatch)]; }
const CompiledStage& Pipeline::compiled(Stage& stage, int microbatch) { return *stage.by_microbatch[static_cast<size_t>(microbatch)]; }

void Pipeline::prepare(const std::vector<MicrobatchRange>& microbatches, int64_t length) {
  PPENGINE_ASSERT(static_cast<int>(microbatches.size()) == plan_.microbatches);
  size_t workspace = workspace_.bytes();
  for (auto& stage : stages_) {
    BlockBytes activations, gradients;
    size_t input_bytes = 0;
    stage->by_microbatch.clear();
    for (const MicrobatchRange& range : microbatches) {
      const int64_t tokens = range.length > 0 ? range.length : length;
      auto& shape = stage->shapes[{range.count, tokens}];
      if (!shape) {
        CompileOptions options;
        options.batch = range.count;
        options.length = tokens;
        options.type = model_.options().compute;
        options.training = training_;
        options.output = options_.output;
        options.split_backward = schedules::uses_split_backward(plan_);
        options.recompute = options_.recompute && training_;
        shape =
            std::make_unique<CompiledStage>(model_.device(), model_.graph(), *stage->cut, *stage->parameters, options, &model_.memory());
      }
      stage->by_microbatch.push_back(shape.get());
    }
    for (const auto& [key, shape] : stage->shapes) {
      activations.include(shape->activation_block());
      if (training_) gradients.include(shape->gradient_block());
      workspace = std::max(workspace, shape->layout().workspace);
      input_bytes = std::max(input_bytes, shape->input_bytes());
    }
    if (stage->flights.empty() || stage->activations.block_bytes() != activations || stage->gradients.block_bytes() != gradients) {
      stage->activations.wait();
      stage->gradients.wait();
      stage->activations = BlockPool(model_.device(), activations, stage->blocks.activations, &model_.memory());
      stage->gradients = BlockPool(model_.device(), gradients, stage->blocks.gradients, &model_.memory());
    }
    if (input_bytes > stage->input_stride || !stage->results.data()) {
      stage->input_stride = input_bytes;
      stage->inputs = ops::Buffer(model_.device(), input_bytes * microbatches.size(), &model_.memory());
      stage->results = ops::Buffer(model_.device(), sizeof(float) * microbatches.size(), &model_.memory());
    }
    stage->flights.assign(microbatches.size(), {});
  }
  if (workspace > workspace_.bytes()) {
    workspace_ = ops::Buffer(model_.device(), workspace, &model_.memory());
    if (schedules::uses_overlap(plan_)) second_workspace_ = ops::Buffer(model_.device(), workspace, &model_.memory());
  }
}

void Pipeline::upload_inputs(const StepInputs& inputs) {
  for (auto& stage : stages_)
    for (size_t m = 0; m < inputs.microbatches.size(); ++m)
      for (Value value : model_.graph().values().ids()) {
        const int64_t offset = stage->by_microbatch[m]->input_offset(value);
        if (offset < 0) continue;
        upload(stage->inputs.at(m * stage->input_stride + static_cast<size_t>(offset)), model_.graph().info(value), *inputs.batch,
               inputs.microbatches[m]);
      }
}

void Pipeline::upload(void* to, const ValueInfo& value, const Batch& batch, const MicrobatchRange& range) {
  const BatchInput& input = *batch.find(value.name);
  const bool tokens = value.kind == ValueKind::tokens, narrow = !tokens && model_.options().compute != ops::Type::f32;
  const auto stored = static_cast<size_t>(batch.length * value.width);
  const size_t used = range.length > 0 ? static_cast<size_t>(range.length * value.width) : stored;  // of a sequence
  const size_t count = used * static_cast<size_t>(range.count);
  const size_t first = input.shared ? 0 : static_cast<size_t>(range.begin) * stored;
  const bool at_once = used == stored && !input.shared;
  const size_t each = at_once ? count : used, stride = input.shared ? 0 : stored;
  const auto* from = reinterpret_cast<const std::byte*>(tokens ? static_cast<const void*>(input.tokens.data() + first)
                                                               : input.values.data() + first);
  if (narrow && staging_.bytes() < count * sizeof(float)) staging_ = ops::Buffer(model_.device(), count * sizeof(float), &model_.memory());
  auto* const whole = static_cast<std::byte*>(narrow ? staging_.data() : to);
  for (size_t done = 0; done < count; done += each, from += stride * sizeof(float))
    stream_.copy(whole + done * sizeof(float), from, each * sizeof(float));
  if (narrow) ops::cast(stream_, ops::Type::f32, whole, model_.options().compute, to, static_cast<int64_t>(count));
}

void Pipeline::run(const StepInputs& inputs, TimelineRecorder* recorder) {
  prepare(inputs.microbatches, inputs.batch->length);
  step_ = &inputs;
  recorder_ = recorder;
  comm::abort_on_error(options_.peers, [&] { carry_out(inputs); });
  step_ = nullptr;
  recorder_ = nullptr;
}

void Pipeline::carry_out(const StepInputs& inputs) {
  upload_inputs(inputs);
  losses_.clear();
  for (auto& stage : stages_) stage->weight_gradients = 0;
  schedules::execute(plan_, model_.rank(), *this, recorder_);
  for (auto& stage : stages_) {
    const Value loss = model_.graph().loss_value();
    if (!loss || !stage->cut->contains(model_.graph().info(loss).producer)) continue;
    std::vector<float> host(inputs.microbatches.size());
    stream_.copy(host.data(), stage->results.data(), host.size() * sizeof(float));
    stream_.wait();
    losses_.assign(host.begin(), host.end());
  }
  stream_.wait();
  for (auto& stage : stages_)
    for (InFlight& flight : stage->flights) {
      flight.sent_activation.wait();
      flight.sent_gradient.wait();
      flight = {};
    }
}

void Pipeline::shadow(GradientSink* sink, bool zeros) {
  for (const schedules::Action& action : plan_.of(model_.rank())) {
    Stage& stage = at(StageId(action.stage));
    if (action.type == schedules::ActionType::unshard) unshard(stage.index);
    if (action.type == schedules::ActionType::reshard) reshard(stage.index);
    if (action.type != schedules::ActionType::reduce_grad || !sink) continue;
    if (model_.sharding()) model_.sharding()->begin_gradients(stage.index, stream_);
    float* const gradients = model_.whole_gradients(stage.index);
    for (const Bucket& bucket : stage.parameters->buckets()) {
      if (!bucket.reduced()) continue;
      if (zeros) stream_.zero(gradients + bucket.begin, bucket.count() * sizeof(float));
      sink->final_gradients(stage.index, bucket.parameters, stream_);
    }
    sink->stage_done(stage.index);
  }
  stream_.wait();
}

size_t Pipeline::block_bytes() const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->activations.bytes() + stage->gradients.bytes();
  return bytes;
}

Run Pipeline::make_run(Stage& stage, int microbatch, ops::Stream& stream) {
  const CompiledStage& shape = compiled(stage, microbatch);
  Run run = shape.start(stream);
  const InFlight& flight = in_flight(stage, microbatch);
  auto& base = run.base;
  if (flight.activations >= 0) {
    const Block& block = stage.activations.at(flight.activations);
    base[static_cast<int>(Region::activations)] = block.own.at(0);
    base[static_cast<int>(Region::values_in)] = block.in.at(0);
    if (!flight.activation_sent || shape.keeps_values_out()) base[static_cast<int>(Region::values_out)] = block.out.at(0);
  }
  if (flight.gradients >= 0) {
    const Block& block = stage.gradients.at(flight.gradients);
    base[static_cast<int>(Region::gradients)] = block.own.at(0);
    base[static_cast<int>(Region::gradients_in)] = block.in.at(0);
    if (!flight.gradient_sent || shape.keeps_gradients_out()) base[static_cast<int>(Region::gradients_out)] = block.out.at(0);
  }
  base[static_cast<int>(Region::workspace)] = (&stream == &second_ ? second_workspace_ : workspace_).at(0);
  base[static_cast<int>(Region::inputs)] = stage.inputs.at(static_cast<size_t>(microbatch) * stage.input_stride);
  base[static_cast<int>(Region::results)] = stage.results.at(static_cast<size_t>(microbatch) * sizeof(float));
  if (const Sharding* sharding = model_.sharding()) {
    base[static_cast<int>(Region::parameters)] = sharding->parameters(stage.index);
    base[static_cast<int>(Region::parameter_gradients)] = reinterpret_cast<std::byte*>(sharding->gradients(stage.index));
  }
  run.loss_weight = step_->loss_weight;
  run.accumulate = step_->accumulate || stage.weight_gradients > 0;
  run.dropout_key = step_->dropout_key;
  run.profile = profile_;
  run.tensor = options_.tensor;
  run.data = options_.data;
  run.peers = options_.peers;
  run.first_sequence = step_->microbatches[static_cast<size_t>(microbatch)].begin;
  return run;
}

}  // namespace ppengine::engine
