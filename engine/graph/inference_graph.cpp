// Rewriting a graph for inference.
#include <ppengine/engine/graph/inference_graph.hpp>

#include <algorithm>

#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {

class GraphFuser {
 public:
  GraphFuser(const ops::Device& device, const Graph& graph, const std::vector<StageCut>& cuts, const ops::WeightStorage& weights)
      : device_(device), from_(graph), cuts_(cuts), weights_(weights), users_(graph.values().size()), carried_(graph.nodes().size()) {
    for (NodeId i : graph.nodes().ids())
      for (Value value : node(i).inputs) users_[value].push_back(i);
    to_.parameters_ = graph.parameters();
    to_.tensor_plan_ = graph.tensor_plan();
    plan();
  }

  InferenceGraph run() {
    std::vector<NodeId> begins;
    for (const ValueInfo& info : from_.values()) {  // every value is an input, or the output of one node
      if (!info.producer) {
        values_.push_back(to_.values_.push_back(info));
        continue;
      }
      for (std::size_t s = 1; s < cuts_.size(); ++s)
        if (cuts_[s].begin == info.producer) begins.push_back(to_.nodes_.end_id());
      values_.push_back(rewrite(info.producer, info));
    }
    const auto moved = [&](Value id) { return id ? values_[id] : id; };
    to_.loss_ = moved(from_.loss_value());
    to_.output_ = moved(from_.output_value());
    auto graph = std::make_shared<const Graph>(std::move(to_));
    auto cuts = split_before(*graph, std::move(begins));
    return {std::move(graph), std::move(cuts)};
  }

 private:
  const Node& node(NodeId i) const { return from_.nodes()[i]; }
  bool is_result(Value value) const { return value == from_.output_value() || value == from_.loss_value(); }
  std::size_t stage_of(NodeId i) const {
    std::size_t stage = 0;
    while (i >= cuts_[stage].end) ++stage;
    return stage;
  }

  // A linear whose weight lies as [out,in]: our kernels read it along its rows.
  bool fits(NodeId i) const {
    if (!node(i).op->is_linear()) return false;
    const ParameterInfo& weight = from_.parameters()[node(i).parameters[0]];
    return storage_of(weight).format != ops::WeightFormat::f32 || storage_layout(device_, weight) == ops::WeightLayout::out_in;
  }

  // Terms of adapters stay in f32.
  ops::WeightStorage storage_of(const ParameterInfo& weight) const { return weight.linear_weight ? weights_ : ops::WeightStorage{}; }

  // Which nodes linears carry out: carried_[i] is the linear that takes over an activation, or i itself for a norm that all readers take
  // over.
  void plan() {
    for (NodeId i : from_.nodes().ids()) {
      const auto& readers = users_[node(i).output];
      const auto here = [&](NodeId j) { return stage_of(j) == stage_of(i); };
      if (is_result(node(i).output)) continue;
      if (node(i).op->as_norm() && !readers.empty() && std::ranges::all_of(readers, [&](NodeId j) { return fits(j) && here(j); }))
        carried_[i] = i;
      if (!fits(i) || readers.size() != 1 || !here(readers[0])) continue;
      const NodeId next = readers[0];
      const bool gates = node(next).op->is_gate() && node(next).inputs[1] == node(i).output && producer(node(next).inputs[0]) < i;
      if (node(next).op->as_activation() || gates) carried_[next] = i;
    }
  }
  NodeId producer(Value value) const { return from_.values()[value].producer; }

  Value rewrite(NodeId i, const ValueInfo& info) {
    if (carried_[i] == i) return {};  // a norm: its readers have it
    if (carried_[i]) return values_[node(carried_[i]).output];
    if (fits(i)) return fused(i, info);
    const bool narrow_table =
        node(i).op->first_token() && weights_.format != ops::WeightFormat::f32 && from_.parameters()[node(i).parameters[0]].linear_weight;
    std::vector<Value> inputs;
    for (Value value : node(i).inputs) inputs.push_back(values_[value]);
    auto op = node(i).op;
    if (narrow_table)
      op = make_packed_embedding_node(packed_weight(from_.parameters()[node(i).parameters[0]], weights_), op->first_token().value());
    const Value result = to_.add_node(node(i).module, std::move(op), inputs, node(i).parameters, info.width, info.kind);
    to_.values_[result].row_parts = info.row_parts;
    return result;
  }

  Value fused(NodeId i, const ValueInfo& info) {
    const Node& linear = node(i);
    WeightLinearOptions options;
    const ParameterInfo& weight = from_.parameters()[linear.parameters[0]];
    options.weight = packed_weight(weight, storage_of(weight));
    options.bias = linear.parameters.size() > 1;
    std::vector<ParameterId> parameters = linear.parameters;
    Value src = linear.inputs[0];
    if (const NodeId before = producer(src); before && carried_[before] == before) {
      options.norm = *node(before).op->as_norm();
      parameters.insert(parameters.end(), node(before).parameters.begin(), node(before).parameters.end());
      src = node(before).inputs[0];
    }
    std::vector<Value> inputs{values_[src]};
    for (NodeId next : users_[linear.output]) {
      if (carried_[next] != i) continue;
      if (const ops::ActivationKind* kind = node(next).op->as_activation()) {
        options.activation = *kind;
      } else {
        options.gated = true;
        inputs.push_back(values_[node(next).inputs[0]]);
      }
    }
    return to_.add_node(linear.module, make_weight_linear_node(options), inputs, std::move(parameters), info.width);
  }

  const ops::Device& device_;
  const Graph& from_;
  const std::vector<StageCut>& cuts_;
  ops::WeightStorage weights_;
  Graph to_;
  IdVector<Value, std::vector<NodeId>> users_;  // by value: nodes that read it
  IdVector<NodeId, NodeId> carried_;            // by node
  IdVector<Value, Value> values_;               // by value of the old graph
};

InferenceGraph inference_graph(const ops::Device& device, const Graph& graph, const std::vector<StageCut>& cuts,
                               const ops::WeightStorage& weights) {
  return GraphFuser(device, graph, cuts, weights).run();
}

}  // namespace ppengine::engine
