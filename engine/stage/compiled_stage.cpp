// A stage compiled for one device and one microbatch shape.
#include <ppengine/engine/stage/compiled_stage.hpp>

#include <algorithm>

#include <ppengine/engine/stage/readiness.hpp>
#include <ppengine/engine/stage/stage_builder.hpp>
#include <ppengine/ops/device/generated.hpp>

namespace ppengine::engine {

CompiledStage::CompiledStage(const std::shared_ptr<ops::Device>& device, const Graph& graph, const StageCut& cut,
                             const ParameterStore& parameters, const CompileOptions& options, ops::MemoryCounter* counter)
    : options_(options), parameters_(parameters) {
  Builder builder(*this, *device, graph, cut);
  kernels_ = std::make_shared<ops::GeneratedKernels>(*device);
  builder.emit.set_kernels(kernels_);
  builder.order = needed_nodes(graph, cut, options.loss, options.output, options.cache_capacity > 0);
  if (options.output_row) builder.mark_rows();
  builder.fold_residuals();
  builder.compile_nodes();
  builder.place_operands();
  builder.emit_forward();
  if (options.training) {
    builder.emit_backward(full_, full_);
    if (options.split_backward) builder.emit_backward(input_, weight_);
    keeps_values_out_ =
        builder.reads(full_, Region::values_out) || builder.reads(input_, Region::values_out) || builder.reads(weight_, Region::values_out);
    keeps_gradients_out_ = builder.reads(weight_, Region::gradients_out);
    final_in_full_ = builder.find_finals(full_);
    if (options.split_backward) final_in_weight_ = builder.find_finals(weight_);
    for (const Bucket& bucket : parameters.buckets())
      for (ParameterId id : bucket.parameters)
        if (bucket.reduced() && !builder.differentiated.contains(id)) without_gradient_.push_back(id);
  }
  kernels_->build();
  layout_ = place_buffers(buffers_, forward_, full_, input_, weight_);
  cache_bytes_ = builder.emit.cache_bytes();

  std::size_t bytes = 0;
  for (const auto& [name, constant] : builder.emit.constants())
    bytes = std::max(bytes, buffers_[constant.first].offset + constant.second.size() * sizeof(float));
  constants_ = ops::Buffer(device, bytes, counter);
  ops::Stream stream(device);
  for (const auto& [name, constant] : builder.emit.constants())
    stream.copy(constants_.at(buffers_[constant.first].offset), constant.second.data(), constant.second.size() * sizeof(float));
  stream.wait();
}

std::int64_t CompiledStage::input_offset(Value value) const {
  for (const auto& [id, offset] : input_offsets_)
    if (id == value) return static_cast<std::int64_t>(offset);
  return -1;
}

Run CompiledStage::start(ops::Stream& stream) const {
  Run run{.stream = stream, .buffers = buffers_, .base = {}};
  run.base[static_cast<int>(Region::parameters)] = static_cast<std::byte*>(parameters_.compute());
  run.base[static_cast<int>(Region::parameter_gradients)] = reinterpret_cast<std::byte*>(parameters_.gradients());
  run.base[static_cast<int>(Region::constants)] = static_cast<std::byte*>(constants_.data());
  return run;
}

}  // namespace ppengine::engine
