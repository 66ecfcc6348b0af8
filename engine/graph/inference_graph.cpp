// Rewriting a graph for inference.
#include <ppengine/engine/graph/inference_graph.hpp>

#include <algorithm>
#include <string_view>

#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {

class GraphFuser {
 public:
  GraphFuser(const ops::Device& device, const Graph& graph, const std::vector<StageCut>& cuts, const ops::WeightStorage& weights)
      : device_(device), from_(graph), cuts_(cuts), weights_(weights), users_(graph.values().size()), carried_(graph.nodes().size(), -1) {
    for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i)
      for (int value : node(i).inputs) users_[static_cast<size_t>(value)].push_back(i);
    to_.parameters_ = graph.parameters();
    to_.tensor_plan_ = graph.tensor_plan();
    plan();
  }

  InferenceGraph run() {
    std::vector<int> begins;
    for (size_t id = 0; id < from_.values().size(); ++id) {  // every value is an input, or the output of one node
      const ValueInfo& info = from_.values()[id];
      if (info.producer < 0) {
        to_.values_.push_back(info);
        values_.push_back({static_cast<int>(to_.values_.size() - 1)});
        continue;
      }
      for (size_t s = 1; s < cuts_.size(); ++s)
        if (cuts_[s].begin == info.producer) begins.push_back(static_cast<int>(to_.nodes_.size()));
      values_.push_back(rewrite(info.producer, info));
    }
    const auto moved = [&](int id) { return id < 0 ? id : values_[static_cast<size_t>(id)].id; };
    to_.loss_ = moved(from_.loss_value());
    to_.output_ = moved(from_.output_value());
    auto graph = std::make_shared<const Graph>(std::move(to_));
    auto cuts = split_before(*graph, std::move(begins));
    return {std::move(graph), std::move(cuts)};
  }

 private:
  const Node& node(int i) const { return from_.nodes()[static_cast<size_t>(i)]; }
  bool is(int i, std::string_view kind) const { return node(i).op->kind() == kind; }
  bool is_result(int value) const { return value == from_.output_value() || value == from_.loss_value(); }
  int stage_of(int i) const {
    int stage = 0;
    while (i >= cuts_[static_cast<size_t>(stage)].end) ++stage;
    return stage;
  }

  // A linear whose weight lies as [out,in]: our kernels read it along its rows.
  bool fits(int i) const {
    if (!is(i, "linear")) return false;
    const ParameterInfo& weight = from_.parameters()[static_cast<size_t>(node(i).parameters[0])];
    return storage_of(weight).format != ops::WeightFormat::f32 || storage_layout(device_, weight) == ops::WeightLayout::out_in;
  }

  // Terms of adapters stay in f32.
  ops::WeightStorage storage_of(const ParameterInfo& weight) const { return weight.linear_weight ? weights_ : ops::WeightStorage{}; }

  // Which nodes linears carry out: carried_[i] is the linear that takes over an activation, or i itself for a norm that all readers take
  // over.
  void plan() {
    for (int i = 0; i < static_cast<int>(from_.nodes().size()); ++i) {
      const auto& readers = users_[static_cast<size_t>(node(i).output)];
      const auto here = [&](int j) { return stage_of(j) == stage_of(i); };
      if (is_result(node(i).output)) continue;
      if (node(i).op->as_norm() && !readers.empty() && std::ranges::all_of(readers, [&](int j) { return fits(j) && here(j); }))
        carried_[at(i)] = i;
      if (!fits(i) || readers.size() != 1 || !here(readers[0])) continue;
      const int next = readers[0];
      const bool gates = is(next, "gated_silu") && node(next).inputs[1] == node(i).output && producer(node(next).inputs[0]) < i;
      if (node(next).op->as_activation() || gates) carried_[at(next)] = i;
    }
  }
  int producer(int value) const { return from_.values()[static_cast<size_t>(value)].producer; }
  static size_t at(int i) { return static_cast<size_t>(i); }

  Value rewrite(int i, const ValueInfo& info) {
    if (carried_[at(i)] == i) return {};  // a norm: its readers have it
    if (carried_[at(i)] >= 0) return values_[at(node(carried_[at(i)]).output)];
    if (fits(i)) return fused(i, info);
    const bool narrow_table =
        is(i, "embedding") && weights_.format != ops::WeightFormat::f32 && from_.parameters()[at(node(i).parameters[0])].linear_weight;
    std::vector<Value> inputs;
    for (int value : node(i).inputs) inputs.push_back(values_[at(value)]);
    auto op = node(i).op;
    if (narrow_table)
      op = make_packed_embedding_node(packed_weight(from_.parameters()[at(node(i).parameters[0])], weights_), op->first_token().value());
    const Value result = to_.add_node(node(i).module, std::move(op), inputs, node(i).parameters, info.width, info.kind);
    to_.values_[at(result.id)].row_parts = info.row_parts;
    return result;
  }

  Value fused(int i, const ValueInfo& info) {
    const Node& linear = node(i);
    WeightLinearOptions options;
    const ParameterInfo& weight = from_.parameters()[at(linear.parameters[0])];
    options.weight = packed_weight(weight, storage_of(weight));
    options.bias = linear.parameters.size() > 1;
    std::vector<int> parameters = linear.parameters;
    int src = linear.inputs[0];
    if (const int before = producer(src); before >= 0 && carried_[at(before)] == before) {
      options.norm = *node(before).op->as_norm();
      parameters.insert(parameters.end(), node(before).parameters.begin(), node(before).parameters.end());
      src = node(before).inputs[0];
    }
    std::vector<Value> inputs{values_[at(src)]};
    for (int next : users_[at(linear.output)]) {
      if (carried_[at(next)] != i) continue;
      if (const ops::ActivationKind* kind = node(next).op->as_activation()) {
        options.activation = *kind;
      } else {
        options.gated = true;
        inputs.push_back(values_[at(node(next).inputs[0])]);
      }
    }
    return to_.add_node(linear.module, make_weight_linear_node(options), inputs, std::move(parameters), info.width);
  }

  const ops::Device& device_;
  const Graph& from_;
  const std::vector<StageCut>& cuts_;
  ops::WeightStorage weights_;
  Graph to_;
  std::vector<std::vector<int>> users_;  // by value: nodes that read it
  std::vector<int> carried_;             // by node
  std::vector<Value> values_;            // by value of the old graph
};

InferenceGraph inference_graph(const ops::Device& device, const Graph& graph, const std::vector<StageCut>& cuts,
                               const ops::WeightStorage& weights) {
  return GraphFuser(device, graph, cuts, weights).run();
}

}  // namespace ppengine::engine
