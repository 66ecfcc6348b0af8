// Emitter: what a node uses to add instructions to a stage's programs, and to find its operands' buffers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/stage/program.hpp>

namespace ppengine::ops {
class GeneratedKernels;
}

namespace ppengine::engine {

// Where an op puts the gradient of one of its inputs.
struct GradientTarget {
  BufferId diff = no_buffer;  // no_buffer: nobody wants it
  BufferId add = no_buffer;   // what other users of the value have contributed so far: add it
  explicit operator bool() const { return diff != no_buffer; }
};

class Emitter {
 public:
  // Which programs the backward goes to: weight halves follow their input halves (B), or stand apart (I and W).
  struct Targets {
    Program* forward = nullptr;
    Program* input_half = nullptr;
    Program* weight_half = nullptr;  // the same as input_half for a full backward
  };

  Emitter(const Graph& graph, Buffers& buffers, ops::Type type, std::int64_t rows);

  // Kernels that nodes write themselves: compiled together when all are known, before anything runs.
  const std::shared_ptr<ops::GeneratedKernels>& kernels() const { return kernels_; }
  void set_kernels(std::shared_ptr<ops::GeneratedKernels> kernels) { kernels_ = std::move(kernels); }

  void set_targets(const Targets& targets) { targets_ = targets; }
  void set_node(const Node& node, NodeId index, Value residual) {
    node_ = &node;
    index_ = index;
    residual_ = residual;
  }

  // Operands of the current node.
  BufferId input(std::size_t k) { return read(node_->inputs[k]); }
  BufferId output();  // made on first use
  BufferId parameter(std::size_t k) const;
  // no_buffer where all of the node's parameters are frozen; of a frozen one beside others it is scratch memory.
  BufferId parameter_gradient(std::size_t k);
  BufferId residual() { return residual_ ? read(residual_) : no_buffer; }
  // Memory that forward keeps for backward (statistics, probabilities), by name.
  BufferId saved(const std::string& name, std::size_t bytes);
  BufferId workspace(std::size_t bytes) { return make(bytes); }
  // A table that stays the same, shared by all nodes that give it the same name; filled once.
  BufferId constant(const std::string& name, const std::function<std::vector<float>()>& table);
  // Memory that outlives the microbatch (keys and values of earlier tokens).
  BufferId cache(std::size_t bytes);
  // i32 [2, batch]: tokens before the first of each sequence, and the row of it in rotary tables that change with the length; then [batch,
  // pages_per_sequence()]. no_buffer outside of cached inference.
  BufferId positions() const { return positions_; }

  // In backward.
  BufferId output_gradient() const { return gradient(node_->output); }
  bool wants_gradient(std::size_t k) const { return graph_.values()[node_->inputs[k]].needs_gradient; }
  bool has_contribution(std::size_t k) const { return gradient(node_->inputs[k]) != no_buffer; }
  // A fresh buffer for the gradient of input k. can_add: the op adds earlier contributions by itself; otherwise the emitter adds an
  // instruction for it in finish_gradient(), which must be called after the op's own instruction.
  GradientTarget begin_gradient(std::size_t k, bool can_add);
  void finish_gradient(std::size_t k, const GradientTarget& target);
  // The gradient of input k is that of the output: no copy.
  void pass_gradient(std::size_t k);
  // The gradient of input k lies in a buffer already.
  void give_gradient(std::size_t k, BufferId buffer) {
    if (wants_gradient(k)) add_gradient(node_->inputs[k], buffer);
  }

  using Body = std::function<void(const Run&)>;
  void forward(std::vector<BufferId> reads, std::vector<BufferId> writes, Body body);
  void input_half(std::vector<BufferId> reads, std::vector<BufferId> writes, Body body);
  // The weight half of an op: body(run, accumulate) writes the gradients of all parameters of the node, or adds to them. An op whose
  // weight was used by an earlier instruction of this backward too (tied weights) always adds.
  using WeightBody = std::function<void(const Run&, bool accumulate)>;
  void parameter_gradients(std::vector<BufferId> reads, WeightBody body) { parameter_gradients(std::move(reads), {}, std::move(body)); }
  // also_writes: workspace.
  void parameter_gradients(std::vector<BufferId> reads, std::vector<BufferId> also_writes, WeightBody body);

  // For the compiler.
  BufferId make(std::size_t bytes);
  BufferId value(Value id) const;
  void set_value(Value id, BufferId buffer) { values_[id] = buffer; }
  BufferId gradient(Value id) const;
  void set_gradient(Value id, BufferId buffer) { gradients_[id] = buffer; }
  void add_gradient(Value id, BufferId buffer);  // one more contribution, by an instruction where there is one already
  void begin_backward();
  void set_parameter(ParameterId id, BufferId weights, BufferId gradient) { parameters_[id] = {weights, gradient}; }
  void set_positions(BufferId buffer) { positions_ = buffer; }
  // Values that are computed for Run::output_row alone; and that row of one that has all of them.
  void set_one_row(Value value) { one_row_.insert(value); }
  bool has_one_row(Value value) const { return one_row_.contains(value); }
  BufferId take_row(Value value);
  std::size_t cache_bytes() const { return cache_bytes_; }
  const std::map<std::string, std::pair<BufferId, std::vector<float>>>& constants() const { return constants_; }
  std::size_t value_bytes(Value id) const;
  std::size_t value_bytes_of_input(std::size_t k) const { return value_bytes(node_->inputs[k]); }
  // The output of node `index` is written straight into that of the node that adds the residual to it.
  void redirect_output(NodeId index, Value value) { redirected_[index] = value; }
  // Forward runs again in the backward (recomputation): what these nodes made and saved is made anew.
  void forget(NodeId index);

 private:
  BufferId read(Value value) { return has_one_row(node_->output) ? take_row(value) : this->value(value); }
  void place(BufferId id, Region region, std::size_t& end);
  std::int64_t value_count(Value id) const;
  void emit(Program* program, const char* half, std::vector<BufferId> reads, std::vector<BufferId> writes, Body body);

  std::shared_ptr<ops::GeneratedKernels> kernels_;
  const Graph& graph_;
  Buffers& buffers_;
  ops::Type type_;
  std::int64_t rows_;  // room for the microbatch's tokens: what ranks that divide them move around is of even size
  Targets targets_;
  const Node* node_ = nullptr;
  NodeId index_;
  Value residual_;
  std::map<Value, BufferId> values_, gradients_;
  std::map<NodeId, Value> redirected_;
  std::set<ParameterId> written_;
  std::set<Value> one_row_;
  std::map<Value, BufferId> taken_rows_;
  BufferId positions_ = no_buffer;
  std::size_t cache_bytes_ = 0, constant_bytes_ = 0;
  std::map<std::string, std::pair<BufferId, std::vector<float>>> constants_;
  bool is_frozen(ParameterId parameter) const { return graph_.parameters()[parameter].frozen; }
  bool trains_node() const;
  std::map<ParameterId, std::pair<BufferId, BufferId>> parameters_;
  std::map<std::pair<NodeId, std::size_t>, BufferId> unwanted_;  // gradients of frozen parameters whose op writes them beside others'
  std::map<std::pair<NodeId, std::string>, BufferId> saved_;
  struct Made {
    std::map<Value, BufferId> values;
    std::map<std::pair<NodeId, std::string>, BufferId> saved;
  };
  std::optional<Made> by_forward_;  // what a backward begins with, whatever the one before it has recomputed
};

}  // namespace ppengine::engine
