// The actions of a Pipeline: forward, both halves of the backward, overlapped pairs, messages.
#include <utility>

#include <ppengine/engine/detail/pipeline_state.hpp>

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

void Pipeline::begin_forward(Stage& stage, int microbatch) {
  InFlight& flight = in_flight(stage, microbatch);
  if (flight.activations < 0) flight.activations = stage.activations.acquire();
  if (model_.sharding()) model_.sharding()->wait(stage.index, stream_);
  wait_for_message(flight.received_activation);
}

void Pipeline::end_forward(Stage& stage, int microbatch) {
  InFlight& flight = in_flight(stage, microbatch);
  const CompiledStage& shape = compiled(stage, microbatch);
  if (shape.output() != no_buffer && on_output) {
    const Run run = make_run(stage, microbatch, stream_);
    const int64_t width = model_.graph().values()[model_.graph().output_value()].width;
    on_output(microbatch, ops::Tensor(run.at(shape.output()), shape.options().type, {shape.options().batch, shape.options().length, width}),
              stream_);
  }
  const StageId next = stage.index + 1;
  if (next < model_.cuts().end_id() && model_.has_stage(next)) {  // the next stage is ours
    Stage& after = at(next);
    InFlight& its = in_flight(after, microbatch);
    its.activations = after.activations.acquire();
    pass_on(stage.activations.at(flight.activations).out, shape.bytes_out(), shape.keeps_values_out(),
            after.activations.at(its.activations).in);
    if (!training_) stage.activations.release(flight.activations), flight.activations = -1;
  } else if (!training_ && next == model_.cuts().end_id()) {
    stage.activations.release(flight.activations), flight.activations = -1;
  }
}

void Pipeline::forward(StageId index, int microbatch) {
  Stage& stage = at(index);
  begin_forward(stage, microbatch);
  compiled(stage, microbatch).forward(make_run(stage, microbatch, stream_));
  end_forward(stage, microbatch);
  finish_action();
}

void Pipeline::begin_backward(Stage& stage, int microbatch) {
  InFlight& flight = in_flight(stage, microbatch);
  if (flight.gradients < 0) flight.gradients = stage.gradients.acquire();
  if (model_.sharding()) model_.sharding()->wait(stage.index, stream_);
  wait_for_message(flight.received_gradient);
}

void Pipeline::end_input_gradient(Stage& stage, int microbatch) {
  const StageId before = stage.index - 1;
  if (!before || !model_.has_stage(before)) return;
  Stage& its = at(before);
  InFlight& flight = in_flight(its, microbatch);
  flight.gradients = its.gradients.acquire();
  const CompiledStage& shape = compiled(stage, microbatch);
  if (shape.gradient_bytes_out() == 0) return;  // nothing below is trained
  pass_on(stage.gradients.at(in_flight(stage, microbatch).gradients).out, shape.gradient_bytes_out(), shape.keeps_gradients_out(),
          its.gradients.at(flight.gradients).in);
}

void Pipeline::pass_on(ops::Buffer& from, size_t bytes, bool kept, ops::Buffer& to) {
  if (!kept && from.can_trade(to))
    from.trade(to);
  else
    stream_.copy(to.data(), from.data(), bytes);
}

// The first weight gradient of a step finds a place for the stage's gradients, the last one tells the sink as they become final.
AfterInstruction Pipeline::watch(Stage& stage, const std::vector<CompiledStage::Final>& finals, ops::Stream& stream) {
  const auto& without = stage.by_microbatch.front()->without_gradient();
  if (stage.weight_gradients == 0) {
    if (model_.sharding()) model_.sharding()->begin_gradients(stage.index, stream);
    if (!step_->accumulate || model_.keeps_gradient_parts())
      for (ParameterId id : without) {
        const ParameterRange& range = *stage.parameters->find(id);
        stream.zero(model_.whole_gradients(stage.index) + range.offset, range.count * sizeof(float));
      }
  }
  if (!step_->sink || stage.weight_gradients + 1 < plan_.microbatches) return {};
  if (!without.empty()) step_->sink->final_gradients(stage.index, without, stream);
  return [this, &finals, &stream, index = stage.index, next = size_t{0}, ids = std::vector<ParameterId>()](size_t instruction) mutable {
    ids.clear();
    for (; next < finals.size() && finals[next].instruction == instruction; ++next) ids.push_back(finals[next].parameter);
    if (!ids.empty()) step_->sink->final_gradients(index, ids, stream);
  };
}

void Pipeline::end_weight_gradient(Stage& stage, int microbatch) {
  InFlight& flight = in_flight(stage, microbatch);
  ++stage.weight_gradients;
  flight.weights_done = true;
  // The activation that was sent has arrived long ago: its gradient is back.
  stage.activations.release(flight.activations, std::exchange(flight.sent_activation, {}));
  flight.activations = -1;
  release_when_done(stage, microbatch);
}

// The block of gradients is free when the weights' are in and the input's is on its way.
void Pipeline::release_when_done(Stage& stage, int microbatch) {
  InFlight& flight = in_flight(stage, microbatch);
  const bool sends = stage.index > StageId(0) && !model_.has_stage(stage.index - 1);
  if (!flight.weights_done || (sends && !flight.gradient_sent)) return;
  stage.gradients.release(flight.gradients, std::exchange(flight.sent_gradient, {}));
  flight.gradients = -1;
}

void Pipeline::backward(StageId index, int microbatch) {
  Stage& stage = at(index);
  begin_backward(stage, microbatch);
  const CompiledStage& shape = compiled(stage, microbatch);
  const AfterInstruction after = watch(stage, shape.final_in_backward(), stream_);
  shape.backward(make_run(stage, microbatch, stream_), after);
  end_input_gradient(stage, microbatch);
  end_weight_gradient(stage, microbatch);
  finish_action();
}

void Pipeline::backward_input(StageId index, int microbatch) {
  Stage& stage = at(index);
  begin_backward(stage, microbatch);
  compiled(stage, microbatch).backward_input(make_run(stage, microbatch, stream_));
  end_input_gradient(stage, microbatch);
  finish_action();
}

void Pipeline::backward_weight(StageId index, int microbatch) {
  Stage& stage = at(index);
  if (model_.sharding()) model_.sharding()->wait(index, stream_);
  const CompiledStage& shape = compiled(stage, microbatch);
  const AfterInstruction after = watch(stage, shape.final_in_weight(), stream_);
  shape.backward_weight(make_run(stage, microbatch, stream_), after);
  end_weight_gradient(stage, microbatch);
  finish_action();
}

void Pipeline::overlap(const schedules::Action& forward_part, const schedules::Action& backward_part) {
  Stage &ahead = at(StageId(forward_part.stage)), &behind = at(StageId(backward_part.stage));
  const int f = static_cast<int>(forward_part.microbatch), b = static_cast<int>(backward_part.microbatch);
  begin_forward(ahead, f);
  begin_backward(behind, b);
  const bool split = backward_part.type == schedules::ActionType::backward_input;
  const CompiledStage& its = compiled(behind, b);
  const AfterInstruction after = split ? AfterInstruction() : watch(behind, its.final_in_backward(), second_);
  second_.wait_for(stream_.record());
  execute_together(compiled(ahead, f).forward_program(), make_run(ahead, f, stream_), split ? its.input_program() : its.backward_program(),
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
  if (step_->sink) step_->sink->stage_done(stage);
}

// Messages.

int Pipeline::tag(StageId to, int microbatch, bool backward) const {
  // Every message of a step has its own.
  return (to.number() * 2 + (backward ? 1 : 0)) * plan_.microbatches + microbatch;
}

comm::Pending Pipeline::send(ops::Buffer& block, size_t bytes, bool kept, int peer, int tag) {
  if (bytes == 0) return {};
  return kept ? options_.peers->send(block.data(), bytes, peer, tag, stream_) : options_.peers->hand_over(block, bytes, peer, tag, stream_);
}

comm::Pending Pipeline::receive(ops::Buffer& block, size_t bytes, int peer, int tag) {
  return bytes == 0 ? comm::Pending() : options_.peers->take_over(block, bytes, peer, tag, stream_);
}

void Pipeline::send_forward(StageId index, int microbatch, int peer) {
  Stage& stage = at(index);
  InFlight& flight = in_flight(stage, microbatch);
  const CompiledStage& shape = compiled(stage, microbatch);
  flight.sent_activation = send(stage.activations.at(flight.activations).out, shape.bytes_out(), shape.keeps_values_out(), peer,
                                tag(index + 1, microbatch, false));
  flight.activation_sent = true;
  if (!training_) {
    stage.activations.release(flight.activations, std::exchange(flight.sent_activation, {}));
    flight.activations = -1;
  }
}

void Pipeline::recv_forward(StageId index, int microbatch, int peer) {
  Stage& stage = at(index);
  InFlight& flight = in_flight(stage, microbatch);
  flight.activations = stage.activations.acquire();
  flight.received_activation =
      receive(stage.activations.at(flight.activations).in, compiled(stage, microbatch).bytes_in(), peer, tag(index, microbatch, false));
}

void Pipeline::send_backward(StageId index, int microbatch, int peer) {
  Stage& stage = at(index);
  InFlight& flight = in_flight(stage, microbatch);
  const CompiledStage& shape = compiled(stage, microbatch);
  flight.sent_gradient =
      send(stage.gradients.at(flight.gradients).out, shape.gradient_bytes_out(), shape.keeps_gradients_out(), peer,
           tag(index - 1, microbatch, true));
  flight.gradient_sent = true;
  release_when_done(stage, microbatch);
}

void Pipeline::recv_backward(StageId index, int microbatch, int peer) {
  Stage& stage = at(index);
  InFlight& flight = in_flight(stage, microbatch);
  flight.gradients = stage.gradients.acquire();
  flight.received_gradient =
      receive(stage.gradients.at(flight.gradients).in, compiled(stage, microbatch).gradient_bytes_in(), peer, tag(index, microbatch, true));
}

}  // namespace ppengine::engine
