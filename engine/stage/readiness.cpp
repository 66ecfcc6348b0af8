// Which nodes a run needs, and when gradients become final.
#include <ppengine/engine/stage/readiness.hpp>

#include <algorithm>
#include <map>
#include <set>

#include <ppengine/engine/graph/node.hpp>

namespace ppengine::engine {

std::vector<int> needed_nodes(const Graph& graph, const StageCut& cut, bool loss, bool output, bool cache) {
  std::set<int> needed(cut.sends.begin(), cut.sends.end());
  if (loss && graph.loss_value() >= 0) needed.insert(graph.loss_value());
  if (output && graph.output_value() >= 0) needed.insert(graph.output_value());
  std::vector<int> order;
  for (int i = cut.end; i-- > cut.begin;) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    if (!needed.contains(node.output) && !(cache && node.op->writes_cache()) && !(loss && node.op->changes_state())) continue;
    order.push_back(i);
    needed.insert(node.inputs.begin(), node.inputs.end());
  }
  std::ranges::reverse(order);
  return order;
}

std::vector<bool> one_row_nodes(const Graph& graph) {
  std::vector<bool> read_as_rows(graph.values().size(), false), found(graph.nodes().size());
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (node.output == graph.loss_value()) continue;  // is not computed then
    found[i] = node.op->row_by_row() && !read_as_rows[static_cast<size_t>(node.output)];
    if (!found[i])
      for (int id : node.inputs) read_as_rows[static_cast<size_t>(id)] = true;
  }
  return found;
}

std::vector<RowTable> row_tables(const Graph& graph, const StageCut& cut) {
  std::map<int, int> users;
  for (int i = cut.begin; i < cut.end; ++i)
    for (int id : graph.nodes()[static_cast<size_t>(i)].parameters) ++users[id];
  std::vector<RowTable> found;
  for (int i : needed_nodes(graph, cut, true, false, false)) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    const auto first = node.op->first_token();
    if (!first || users[node.parameters.front()] != 1 || graph.parameters()[static_cast<size_t>(node.parameters.front())].frozen) continue;
    const ValueInfo& tokens = graph.values()[static_cast<size_t>(node.inputs.front())];
    if (tokens.kind != ValueKind::tokens || tokens.producer >= 0) continue;
    const ops::Shape& shape = graph.parameters()[static_cast<size_t>(node.parameters.front())].shape;
    found.push_back({node.parameters.front(), node.inputs.front(), *first, shape[0], shape[1]});
  }
  return found;
}

GradientOrder gradient_order(const Graph& graph, const StageCut& cut) {
  GradientOrder result;
  // The backward goes through the nodes in reverse: a parameter is final after the first node that uses it.
  std::set<int> placed;
  const auto frozen = [&](int id) { return graph.parameters()[static_cast<size_t>(id)].frozen; };
  for (int i : needed_nodes(graph, cut, true, false, false)) {
    const auto& parameters = graph.nodes()[static_cast<size_t>(i)].parameters;
    for (size_t k = parameters.size(); k-- > 0;)
      if (!frozen(parameters[k]) && placed.insert(parameters[k]).second) result.used.push_back(parameters[k]);
  }
  std::ranges::reverse(result.used);
  for (int id : cut.parameters)
    if (frozen(id))
      result.frozen.push_back(id);
    else if (!placed.contains(id))
      result.unused.push_back(id);
  return result;
}

}  // namespace ppengine::engine
