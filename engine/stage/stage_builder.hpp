// Compiling a stage: which nodes are needed, what is fused, emission of the programs, placement of operands and messages.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ppengine/engine/stage/compiled_stage.hpp>
#include <ppengine/engine/stage/emitter.hpp>

namespace ppengine::engine {

struct CompiledStage::Builder {
  CompiledStage& stage;
  ops::Device& device;
  const Graph& graph;
  const StageCut& cut;
  const CompileOptions& options;
  Emitter emit;
  std::vector<NodeId> order;          // needed nodes of the stage
  IdVector<NodeId, Value> residuals;  // what a node adds to its output; may be none
  std::set<NodeId> folded;            // add nodes that another node carries out

  Builder(CompiledStage& to, ops::Device& on, const Graph& model, const StageCut& where)
      : stage(to),
        device(on),
        graph(model),
        cut(where),
        options(to.options_),
        emit(model, to.buffers_, options.type, options.batch * options.length),
        residuals(model.nodes().size()) {}

  const Node& node(NodeId i) const { return graph.nodes()[i]; }
  const ValueInfo& value(Value i) const { return graph.values()[i]; }
  bool is_sent(Value id) const { return std::ranges::find(cut.sends, id) != cut.sends.end(); }

  std::vector<NodeId> users(Value id) const {
    std::vector<NodeId> found;
    for (NodeId i : order)
      for (Value input : node(i).inputs)
        if (input == id) found.push_back(i);
    return found;
  }

  // An add whose one operand comes from an op that can add a residual, and is used nowhere else, becomes part of that op.
  void fold_residuals();
  void mark_rows();
  void compile_nodes();
  void place_operands();
  void emit_forward();
  void emit_backward(Program& input_half, Program& weight_half);
  bool reads(const Program& program, Region region) const;
  // A parameter of a node whose backward was asked for, but whose gradient nobody writes, is a mistake in an op.
  std::vector<Final> find_finals(const Program& program) const;

  std::unique_ptr<CompiledNode>& compiled(NodeId i) { return stage.nodes_[i]; }
  BufferId fixed(Region region, std::size_t offset, std::size_t bytes);
  BufferInfo& info(BufferId id) { return stage.buffers_[id]; }
  BufferId pinned(BufferId id);
  // The values of a cut one after the other: offsets, and the bytes of all.
  std::vector<std::size_t> message_offsets(const std::vector<Value>& values, std::size_t& bytes, bool of_gradients = false) const;
  // What a program has made goes out in a message: made there in the first place, or copied where that cannot be.
  void send_from(BufferId made, bool copied, Region region, std::size_t offset, Program& program);
  void emit_forward_of(NodeId i);
  // Runs the forward of a whole block again, into the backward's program.
  void emit_again(const std::vector<NodeId>& block, Program& into);
  bool is_made_by_forward(BufferId id) const;

  struct Operand {
    ParameterId parameter;
    BufferId weights, gradient;
  };
  std::vector<Operand> operands;
  std::vector<std::size_t> in_offsets, out_offsets;        // of what the stage receives and sends, in a message of values
  std::vector<std::size_t> gradients_out, gradients_in;    // of the same values' gradients in theirs
  std::set<ParameterId> differentiated;                    // parameters of the nodes that the gradient reaches
  std::vector<std::pair<std::size_t, std::size_t>> again;  // ranges of instructions that run a forward again
};

}  // namespace ppengine::engine
