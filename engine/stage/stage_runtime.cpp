// A stage at run time.
#include <ppengine/engine/stage/stage_runtime.hpp>

#include <algorithm>

namespace ppengine::engine {

StageRuntime::StageRuntime(ModelRank& model, StageId id, const Options& options)
    : model_(model), id_(id), cut_(model.cuts()[id]), parameters_(model.parameters(id)), options_(options) {}

const CompiledStage& StageRuntime::compiled(const Shape& shape) {
  if (const auto found = shapes_.find(shape); found != shapes_.end()) return *found->second;
  CompileOptions how = options_.compile;
  how.batch = shape.sequences;
  how.length = shape.length;
  how.output = shape.output != Output::none;
  how.output_row = shape.output == Output::one_row;
  auto made = std::make_unique<CompiledStage>(model_.device(), model_.graph(), cut_, parameters_, how, &model_.memory());
  if (made->cache_bytes() > 0 && !cache_.data()) {
    cache_ = ops::Buffer(model_.device(), made->cache_bytes(), &model_.memory());
    ops::Stream stream(model_.device());
    stream.zero(cache_.data(), cache_.bytes());  // a masked NaN would still be one
    stream.wait();
  }
  return *(shapes_[shape] = std::move(made));
}

void StageRuntime::prepare(std::span<const MicrobatchRange> microbatches, std::int64_t length, Output output) {
  for (InFlight& here : flights_) {  // after an error: blocks that nobody gave back
    if (here.activations >= 0) activations_.release(here.activations, std::move(here.sent_activation));
    if (here.gradients >= 0) gradients_.release(here.gradients, std::move(here.sent_gradient));
  }
  by_microbatch_.clear();
  for (const MicrobatchRange& range : microbatches)
    by_microbatch_.push_back(&compiled({range.count, range.length > 0 ? range.length : length, output}));
  BlockBytes activations, gradients;
  std::size_t input_bytes = 0;
  for (const auto& [key, shape] : shapes_) {
    activations.include(shape->activation_block());
    if (options_.compile.training) gradients.include(shape->gradient_block());
    input_bytes = std::max(input_bytes, shape->input_bytes());
  }
  if (flights_.empty() || activations_.block_bytes() != activations || gradients_.block_bytes() != gradients) {
    activations_.wait();
    gradients_.wait();
    activations_ = BlockPool(model_.device(), activations, options_.blocks.activations, &model_.memory());
    gradients_ = BlockPool(model_.device(), gradients, options_.blocks.gradients, &model_.memory());
  }
  if (input_bytes > input_stride_ || !results_.data()) {
    input_stride_ = input_bytes;
    inputs_ = ops::Buffer(model_.device(), input_bytes * microbatches.size(), &model_.memory());
    results_ = ops::Buffer(model_.device(), sizeof(float) * microbatches.size(), &model_.memory());
  }
  flights_.assign(microbatches.size(), {});
  weight_gradients_ = 0;
}

std::size_t StageRuntime::workspace_bytes() const {
  std::size_t most = 0;
  for (const auto& [key, shape] : shapes_) most = std::max(most, shape->layout().workspace);
  return most;
}

std::byte* StageRuntime::input(int microbatch, Value value) const {
  const std::int64_t offset = shape(microbatch).input_offset(value);
  return offset < 0 ? nullptr : inputs(microbatch) + offset;
}

std::byte* StageRuntime::positions(int microbatch) const { return inputs(microbatch) + shape(microbatch).positions_offset(); }

Block& StageRuntime::begin_activations(int microbatch) {
  InFlight& here = flight(microbatch);
  if (here.activations < 0) here.activations = activations_.acquire();
  return activations_.at(here.activations);
}

void StageRuntime::end_activations(int microbatch) {
  InFlight& here = flight(microbatch);
  activations_.release(std::exchange(here.activations, -1), std::exchange(here.sent_activation, {}));
}

Block& StageRuntime::begin_gradients(int microbatch) {
  InFlight& here = flight(microbatch);
  if (here.gradients < 0) here.gradients = gradients_.acquire();
  return gradients_.at(here.gradients);
}

void StageRuntime::end_gradients(InFlight& here) {
  gradients_.release(std::exchange(here.gradients, -1), std::exchange(here.sent_gradient, {}));
}

void StageRuntime::weights_done(int microbatch, bool sends_gradient) {
  InFlight& here = flight(microbatch);
  ++weight_gradients_;
  here.weights_done = true;
  end_activations(microbatch);  // a message with them has arrived long ago: its gradient is back
  if (!sends_gradient || here.gradient_sent) end_gradients(here);
}

void StageRuntime::activation_sent(int microbatch, comm::Pending message) {
  InFlight& here = flight(microbatch);
  here.sent_activation = std::move(message);
  here.activation_sent = true;
  if (!options_.compile.training) end_activations(microbatch);
}

void StageRuntime::gradient_sent(int microbatch, comm::Pending message) {
  InFlight& here = flight(microbatch);
  here.sent_gradient = std::move(message);
  here.gradient_sent = true;
  if (here.weights_done) end_gradients(here);
}

Run StageRuntime::start(int microbatch, ops::Stream& stream, const ops::Buffer& workspace) {
  const CompiledStage& compiled = shape(microbatch);
  const InFlight& here = flight(microbatch);
  Run run = compiled.start(stream);
  const auto give = [&](Region region, std::byte* memory) { run.base[static_cast<int>(region)] = memory; };
  // What has been sent is the communicator's, but where the stage itself still reads it.
  if (here.activations >= 0) {
    const Block& block = activations_.at(here.activations);
    give(Region::activations, block.own.at(0));
    give(Region::values_in, block.in.at(0));
    if (!here.activation_sent || compiled.keeps_values_out()) give(Region::values_out, block.out.at(0));
  }
  if (here.gradients >= 0) {
    const Block& block = gradients_.at(here.gradients);
    give(Region::gradients, block.own.at(0));
    give(Region::gradients_in, block.in.at(0));
    if (!here.gradient_sent || compiled.keeps_gradients_out()) give(Region::gradients_out, block.out.at(0));
  }
  give(Region::workspace, workspace.at(0));
  give(Region::inputs, inputs(microbatch));
  give(Region::cache, cache_.at(0));
  give(Region::results, results_.at(static_cast<std::size_t>(microbatch) * sizeof(float)));
  if (const Sharding* sharding = model_.sharding()) {
    give(Region::parameters, sharding->parameters(id_));
    give(Region::parameter_gradients, reinterpret_cast<std::byte*>(sharding->gradients(id_)));
  }
  return run;
}

void StageRuntime::finish() {
  for (InFlight& here : flights_) {
    here.sent_activation.wait();
    here.sent_gradient.wait();
    here = {};
  }
}

}  // namespace ppengine::engine
