// Which nodes a run needs, and when gradients become final.
#include <ppengine/engine/stage/readiness.hpp>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include <ppengine/engine/graph/node.hpp>

namespace ppengine::engine {

std::vector<NodeId> needed_nodes(const Graph& graph, const StageCut& cut, bool loss, bool output, bool cache) {
  std::set<Value> needed(cut.sends.begin(), cut.sends.end());
  if (loss && graph.loss_value()) needed.insert(graph.loss_value());
  if (output && graph.output_value()) needed.insert(graph.output_value());
  std::vector<NodeId> order;
  for (NodeId i : cut.nodes() | std::views::reverse) {
    const Node& node = graph.nodes()[i];
    if (!needed.contains(node.output) && !(cache && node.op->writes_cache()) && !(loss && node.op->changes_state())) continue;
    order.push_back(i);
    needed.insert(node.inputs.begin(), node.inputs.end());
  }
  std::ranges::reverse(order);
  return order;
}

IdVector<NodeId, bool> one_row_nodes(const Graph& graph) {
  IdVector<Value, bool> read_as_rows(graph.values().size());
  IdVector<NodeId, bool> found(graph.nodes().size());
  for (NodeId i : graph.nodes().ids() | std::views::reverse) {
    const Node& node = graph.nodes()[i];
    if (node.output == graph.loss_value()) continue;  // is not computed then
    found[i] = node.op->row_by_row() && !read_as_rows[node.output];
    if (!found[i])
      for (Value id : node.inputs) read_as_rows[id] = true;
  }
  return found;
}

std::vector<RowTable> row_tables(const Graph& graph, const StageCut& cut) {
  std::map<ParameterId, int> users;
  for (NodeId i : cut.nodes())
    for (ParameterId id : graph.nodes()[i].parameters) ++users[id];
  std::vector<RowTable> found;
  for (NodeId i : needed_nodes(graph, cut, true, false, false)) {
    const Node& node = graph.nodes()[i];
    const auto first = node.op->first_token();
    if (!first || users[node.parameters.front()] != 1 || graph.parameters()[node.parameters.front()].frozen) continue;
    const ValueInfo& tokens = graph.values()[node.inputs.front()];
    if (tokens.kind != ValueKind::tokens || tokens.producer) continue;
    const ops::Shape& shape = graph.parameters()[node.parameters.front()].shape;
    found.push_back({node.parameters.front(), node.inputs.front(), *first, shape[0], shape[1]});
  }
  return found;
}

GradientOrder gradient_order(const Graph& graph, const StageCut& cut) {
  GradientOrder result;
  // The backward goes through the nodes in reverse: a parameter is final after the first node that uses it.
  std::set<ParameterId> placed;
  const auto frozen = [&](ParameterId id) { return graph.parameters()[id].frozen; };
  for (NodeId i : needed_nodes(graph, cut, true, false, false)) {
    const auto& parameters = graph.nodes()[i].parameters;
    for (std::size_t k = parameters.size(); k-- > 0;)
      if (!frozen(parameters[k]) && placed.insert(parameters[k]).second) result.used.push_back(parameters[k]);
  }
  std::ranges::reverse(result.used);
  for (ParameterId id : cut.parameters)
    if (frozen(id))
      result.frozen.push_back(id);
    else if (!placed.contains(id))
      result.unused.push_back(id);
  return result;
}

}  // namespace ppengine::engine
