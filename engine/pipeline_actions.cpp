// The actions of a Pipeline: forward, both halves of the backward, overlapped pairs, messages.
#include <utility>

#include <ppengine/engine/pipeline.hpp>

namespace ppengine::engine {

// On a CPU the next action waits for this one, so that a measured timeline shows the work where it happened; elsewhere the device's
// own order holds and the host runs ahead.
void Pipeline::finish_action() {
  if (model_.device()->info().is_cpu) stream_.wait();
}

void Pipeline::wait_for_message(comm::Pending& message) {
  message.wait_on(stream_);
  message = {};
  if (recorder_) recorder_->work_begins();
}

void Pipeline::begin_forward(StageRuntime& stage, int microbatch) {
  stage.begin_activations(microbatch);
  if (model_.sharding()) model_.sharding()->wait(stage.id(), stream_);
  wait_for_message(stage.received_activation(microbatch));
}

void Pipeline::end_forward(StageRuntime& stage, int microbatch) {
  const CompiledStage& shape = stage.shape(microbatch);
  if (shape.output() != no_buffer && on_output) {
    const Run run = make_run(stage, microbatch, stream_);
    const std::int64_t width = model_.graph().info(model_.graph().output_value()).width;
    const CompileOptions& how = shape.options();
    on_output(microbatch, ops::Tensor(run.at(shape.output()), how.type, {how.batch, how.output_row ? 1 : how.length, width}), stream_);
  }
  const StageId next = stage.id() + 1;
  if (is_here(next))
    pass_on(stage.activations(microbatch).out, shape.bytes_out(), shape.keeps_values_out(), at(next).begin_activations(microbatch).in);
  const bool sends = next < model_.cuts().end_id() && !is_here(next);
  if (!training_ && !sends) stage.end_activations(microbatch);
}

void Pipeline::forward(StageId id, int microbatch) {
  StageRuntime& stage = at(id);
  begin_forward(stage, microbatch);
  stage.shape(microbatch).forward(make_run(stage, microbatch, stream_));
  end_forward(stage, microbatch);
  finish_action();
}

void Pipeline::begin_backward(StageRuntime& stage, int microbatch) {
  stage.begin_gradients(microbatch);
  if (model_.sharding()) model_.sharding()->wait(stage.id(), stream_);
  wait_for_message(stage.received_gradient(microbatch));
}

void Pipeline::end_input_gradient(StageRuntime& stage, int microbatch) {
  if (!is_here(stage.id() - 1)) return;
  Block& its = at(stage.id() - 1).begin_gradients(microbatch);
  const CompiledStage& shape = stage.shape(microbatch);
  if (shape.gradient_bytes_out() == 0) return;  // nothing below is trained
  pass_on(stage.gradients(microbatch).out, shape.gradient_bytes_out(), shape.keeps_gradients_out(), its.in);
}

void Pipeline::pass_on(ops::Buffer& from, std::size_t bytes, bool kept, ops::Buffer& to) {
  if (!kept && from.can_trade(to))
    from.trade(to);
  else
    stream_.copy(to.data(), from.data(), bytes);
}

// The first weight gradient of a step finds a place for the stage's gradients, the last one tells the sink as they become final.
AfterInstruction Pipeline::watch(StageRuntime& stage, const std::vector<CompiledStage::Final>& finals, ops::Stream& stream) {
  const auto& without = stage.shape(0).without_gradient();
  if (stage.weight_gradients() == 0) {
    if (model_.sharding()) model_.sharding()->begin_gradients(stage.id(), stream, step_->sink);
    if (!step_->accumulate || model_.keeps_gradient_parts())
      for (ParameterId id : without) {
        const ParameterRange& range = *stage.parameters().find(id);
        stream.zero(model_.whole_gradients(stage.id()) + range.offset, range.count * sizeof(float));
      }
  }
  if (!step_->sink || stage.weight_gradients() + 1 < plan_.microbatches) return {};
  if (!without.empty()) step_->sink->final_gradients(stage.id(), without, stream);
  return
      [this, &finals, &stream, id = stage.id(), next = std::size_t{0}, ids = std::vector<ParameterId>()](std::size_t instruction) mutable {
        ids.clear();
        for (; next < finals.size() && finals[next].instruction == instruction; ++next) ids.push_back(finals[next].parameter);
        if (!ids.empty()) step_->sink->final_gradients(id, ids, stream);
      };
}

void Pipeline::end_weight_gradient(StageRuntime& stage, int microbatch) {
  stage.weights_done(microbatch, stage.id() > StageId(0) && !is_here(stage.id() - 1));
}

void Pipeline::backward(StageId id, int microbatch) {
  StageRuntime& stage = at(id);
  begin_backward(stage, microbatch);
  const CompiledStage& shape = stage.shape(microbatch);
  const AfterInstruction after = watch(stage, shape.final_in_backward(), stream_);
  shape.backward(make_run(stage, microbatch, stream_), after);
  end_input_gradient(stage, microbatch);
  end_weight_gradient(stage, microbatch);
  finish_action();
}

void Pipeline::backward_input(StageId id, int microbatch) {
  StageRuntime& stage = at(id);
  begin_backward(stage, microbatch);
  stage.shape(microbatch).backward_input(make_run(stage, microbatch, stream_));
  end_input_gradient(stage, microbatch);
  finish_action();
}

void Pipeline::backward_weight(StageId id, int microbatch) {
  StageRuntime& stage = at(id);
  if (model_.sharding()) model_.sharding()->wait(id, stream_);
  const CompiledStage& shape = stage.shape(microbatch);
  const AfterInstruction after = watch(stage, shape.final_in_weight(), stream_);
  shape.backward_weight(make_run(stage, microbatch, stream_), after);
  end_weight_gradient(stage, microbatch);
  finish_action();
}

void Pipeline::overlap(const schedules::Action& forward_part, const schedules::Action& backward_part) {
  StageRuntime &ahead = at(StageId(forward_part.stage)), &behind = at(StageId(backward_part.stage));
  const int f = static_cast<int>(forward_part.microbatch), b = static_cast<int>(backward_part.microbatch);
  begin_forward(ahead, f);
  begin_backward(behind, b);
  const bool split = backward_part.type == schedules::ActionType::backward_input;
  const CompiledStage& its = behind.shape(b);
  const AfterInstruction after = split ? AfterInstruction() : watch(behind, its.final_in_backward(), second_);
  second_.wait_for(stream_.record());
  execute_together(ahead.shape(f).forward_program(), make_run(ahead, f, stream_), split ? its.input_program() : its.backward_program(),
                   make_run(behind, b, second_), after);
  stream_.wait_for(second_.record());
  end_forward(ahead, f);
  end_input_gradient(behind, b);
  if (!split) end_weight_gradient(behind, b);
  finish_action();
}

void Pipeline::unshard(StageId stage) {
  if (model_.sharding()) model_.sharding()->unshard(stage, stream_);
}

void Pipeline::reshard(StageId stage) {
  if (model_.sharding()) model_.sharding()->reshard(stage);
}

void Pipeline::reduce_grad(StageId stage) {
  if (step_->sink) end_gradients(stage, *step_->sink);
}

// The stage's block of whole gradients may be used for another one as soon as the sink reads it no more.
void Pipeline::end_gradients(StageId stage, GradientSink& sink) {
  sink.stage_done(stage);
  if (model_.sharding()) model_.sharding()->end_gradients(stage);
}

// Messages.

int Pipeline::tag(StageId to, int microbatch, bool backward) const {
  // Every message of a step has its own.
  return (to.number() * 2 + (backward ? 1 : 0)) * plan_.microbatches + microbatch;
}

comm::Pending Pipeline::send(ops::Buffer& block, std::size_t bytes, bool kept, int peer, int tag) {
  if (bytes == 0) return {};
  return kept ? options_.peers->send(block.data(), bytes, peer, tag, stream_) : options_.peers->hand_over(block, bytes, peer, tag, stream_);
}

comm::Pending Pipeline::receive(ops::Buffer& block, std::size_t bytes, int peer, int tag) {
  return bytes == 0 ? comm::Pending() : options_.peers->take_over(block, bytes, peer, tag, stream_);
}

void Pipeline::send_forward(StageId id, int microbatch, int peer) {
  StageRuntime& stage = at(id);
  const CompiledStage& shape = stage.shape(microbatch);
  stage.activation_sent(microbatch, send(stage.activations(microbatch).out, shape.bytes_out(), shape.keeps_values_out(), peer,
                                         tag(id + 1, microbatch, false)));
}

void Pipeline::recv_forward(StageId id, int microbatch, int peer) {
  StageRuntime& stage = at(id);
  ops::Buffer& in = stage.begin_activations(microbatch).in;
  stage.received_activation(microbatch) = receive(in, stage.shape(microbatch).bytes_in(), peer, tag(id, microbatch, false));
}

void Pipeline::send_backward(StageId id, int microbatch, int peer) {
  StageRuntime& stage = at(id);
  const CompiledStage& shape = stage.shape(microbatch);
  stage.gradient_sent(microbatch, send(stage.gradients(microbatch).out, shape.gradient_bytes_out(), shape.keeps_gradients_out(), peer,
                                       tag(id - 1, microbatch, true)));
}

void Pipeline::recv_backward(StageId id, int microbatch, int peer) {
  StageRuntime& stage = at(id);
  ops::Buffer& in = stage.begin_gradients(microbatch).in;
  stage.received_gradient(microbatch) = receive(in, stage.shape(microbatch).gradient_bytes_in(), peer, tag(id, microbatch, true));
}

}  // namespace ppengine::engine
