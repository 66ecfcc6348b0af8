// A stage compiled for one device and one microbatch shape: programs for forward, backward and its two halves, with all primitives made
// and all memory placed. Running one allocates nothing and builds nothing.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/graph/split.hpp>
#include <ppengine/engine/stage/block_pool.hpp>
#include <ppengine/engine/weights/parameters.hpp>

namespace ppengine::engine {

class CompiledStage {
 public:
  CompiledStage(const std::shared_ptr<ops::Device>& device, const Graph& graph, const StageCut& cut, const ParameterStore& parameters,
                const CompileOptions& options, ops::MemoryCounter* counter = nullptr);

  const CompileOptions& options() const { return options_; }
  // Bytes of one block of activations, one of gradients, and of the workspace.
  const Layout& layout() const { return layout_; }
  std::size_t cache_bytes() const { return cache_bytes_; }
  // The microbatch's inputs (region `inputs`): where each of the model's inputs lies; -1 when this stage does not read it.
  std::size_t input_bytes() const { return input_bytes_; }
  std::int64_t input_offset(Value value) const;
  std::int64_t positions_offset() const { return positions_offset_; }

  // Messages: all values that cross a cut lie in one piece, in the order of the cut's receives and sends, and so do their gradients. The
  // bytes that come from the stage before and go to the next one; the other way go the gradients of those values that need one (none
  // where nothing below is trained).
  std::size_t bytes_in() const { return bytes_in_; }
  std::size_t bytes_out() const { return bytes_out_; }
  std::size_t gradient_bytes_in() const { return gradient_bytes_in_; }    // from the next stage
  std::size_t gradient_bytes_out() const { return gradient_bytes_out_; }  // to the stage before
  // What a microbatch needs of both.
  BlockBytes activation_block() const { return {layout_.activations, bytes_in_, bytes_out_}; }
  BlockBytes gradient_block() const { return {layout_.gradients, gradient_bytes_in_, gradient_bytes_out_}; }
  // The stage itself reads what it has sent: the values in its backward, the gradients in its weight half.
  bool keeps_values_out() const { return keeps_values_out_; }
  bool keeps_gradients_out() const { return keeps_gradients_out_; }
  BufferId output() const { return output_; }  // the graph's output; no_buffer unless this is the last stage that has it
  std::size_t bytes(BufferId id) const { return buffers_[id].bytes; }
  // When a program is through with a parameter: its gradient is written and the parameter itself is read for the last time. By
  // instruction. Parameters that the gradient does not reach never occur.
  struct Final {
    std::size_t instruction;
    ParameterId parameter;
  };
  const std::vector<Final>& final_in_backward() const { return final_in_full_; }
  const std::vector<Final>& final_in_weight() const { return final_in_weight_; }
  // Parameters of reduced buckets that the gradient does not reach (an op gives none to its input): zero, by hand.
  const std::vector<ParameterId>& without_gradient() const { return without_gradient_; }

  // A Run with the regions that belong to the stage filled in; the caller sets the blocks, inputs and scalars.
  Run start(ops::Stream& stream) const;
  void forward(const Run& run) const { execute(forward_, run); }
  void backward(const Run& run, const AfterInstruction& after = {}) const { execute(full_, run, after); }
  void backward_input(const Run& run) const { execute(input_, run); }
  void backward_weight(const Run& run, const AfterInstruction& after = {}) const { execute(weight_, run, after); }

  const Program& forward_program() const { return forward_; }
  const Program& backward_program() const { return full_; }
  const Program& input_program() const { return input_; }

 private:
  struct Builder;
  CompileOptions options_;
  const ParameterStore& parameters_;
  std::shared_ptr<ops::GeneratedKernels> kernels_;
  std::map<NodeId, std::unique_ptr<CompiledNode>> nodes_;
  Buffers buffers_;
  Program forward_, full_, input_, weight_;
  Layout layout_;
  std::size_t cache_bytes_ = 0, input_bytes_ = 0;
  std::int64_t positions_offset_ = -1;
  std::vector<std::pair<Value, std::size_t>> input_offsets_;
  std::size_t bytes_in_ = 0, bytes_out_ = 0, gradient_bytes_in_ = 0, gradient_bytes_out_ = 0;
  bool keeps_values_out_ = false, keeps_gradients_out_ = false;
  std::vector<Final> final_in_full_, final_in_weight_;
  std::vector<ParameterId> without_gradient_;
  BufferId output_ = no_buffer;
  ops::Buffer constants_;
};

}  // namespace ppengine::engine
