// Cutting a graph into stages.
#include <ppengine/engine/graph/split.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>

namespace ppengine::engine {
namespace {

bool inside(const std::string& module, const std::string& of) {
  return module == of || (module.size() > of.size() && module.starts_with(of) && module[of.size()] == '.');
}

// The last node that reads each value; the output and the loss are read by the outside world, after the last node.
IdVector<Value, NodeId> last_uses(const Graph& graph) {
  IdVector<Value, NodeId> last(graph.values().size());
  for (NodeId node : graph.nodes().ids())
    for (Value value : graph.nodes()[node].inputs) last[value] = node;
  for (Value result : {graph.output_value(), graph.loss_value()})
    if (result) last[result] = graph.nodes().end_id() - 1;
  return last;
}

std::vector<Value> crossing(const Graph& graph, const IdVector<Value, NodeId>& last, NodeId cut) {
  std::vector<Value> values;
  for (Value value : graph.values().ids()) {
    const NodeId producer = graph.values()[value].producer;
    if (producer && producer < cut && last[value] >= cut) values.push_back(value);
  }
  return values;
}

std::vector<StageCut> make_stages(const Graph& graph, std::vector<NodeId> cuts) {
  const auto last = last_uses(graph);
  cuts.insert(cuts.begin(), NodeId(0));
  cuts.push_back(graph.nodes().end_id());
  std::vector<StageCut> stages;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    StageCut stage{cuts[s], cuts[s + 1], {}, {}, {}};
    if (s > 0) stage.receives = crossing(graph, last, stage.begin);
    if (s + 2 < cuts.size()) stage.sends = crossing(graph, last, stage.end);
    std::set<ParameterId> parameters;
    for (NodeId id : stage.nodes()) {
      const Node& node = graph.nodes()[id];
      parameters.insert(node.parameters.begin(), node.parameters.end());
    }
    stage.parameters.assign(parameters.begin(), parameters.end());
    stages.push_back(std::move(stage));
  }
  return stages;
}

// Nodes that are the first of a module of their own: a cut there can be named.
std::vector<NodeId> places(const Graph& graph) {
  std::vector<NodeId> found;
  for (NodeId node : ids_between(NodeId(1), graph.nodes().end_id()))
    if (!cut_name(graph, node).empty()) found.push_back(node);
  return found;
}

// Buffers that a run changes are held by nodes without inputs whose value nobody reads (TensorBuilder::batch_norm, set_state): such a
// buffer belongs to one stage, with the node before its first holder and the one behind that writes it.
std::vector<bool> tears_state(const Graph& graph) {
  std::vector<bool> read(graph.values().size(), false), found(graph.nodes().size() + 1, false);
  for (const Node& node : graph.nodes())
    for (Value value : node.inputs) read[value.index()] = true;
  std::map<ParameterId, std::pair<NodeId, NodeId>> held;
  for (NodeId i : graph.nodes().ids()) {
    const Node& node = graph.nodes()[i];
    if (!node.inputs.empty() || node.parameters.empty() || read[node.output.index()] || node.output == graph.output_value()) continue;
    const bool written = i + 1 < graph.nodes().end_id() && graph.nodes()[i + 1].op->changes_state();
    for (ParameterId id : node.parameters) {
      auto& [first, last] = held.try_emplace(id, i, i).first->second;
      last = written ? i + 1 : i;
    }
  }
  for (const auto& [id, place] : held) {
    NodeId first = place.first;
    for (NodeId i : ids_between(NodeId(0), first))
      if (std::ranges::find(graph.nodes()[i].parameters, id) != graph.nodes()[i].parameters.end()) {  // read before
        first = i + 1;
        break;
      }
    for (NodeId i : ids_between(first, place.second + 1)) found[i.index()] = true;
  }
  return found;
}

}  // namespace

std::string cut_name(const Graph& graph, NodeId node) {
  const std::string& module = graph.nodes()[node].module;
  const std::string& before = graph.nodes()[node - 1].module;
  // The outermost enclosing module that begins here.
  for (std::size_t end = module.find('.');; end = module.find('.', end + 1)) {
    std::string prefix = module.substr(0, end);
    if (!inside(before, prefix)) {
      for (NodeId i : ids_between(NodeId(0), node))
        if (inside(graph.nodes()[i].module, prefix)) return "";
      return prefix;
    }
    if (end == std::string::npos) return "";
  }
}

std::string first_module(const Graph& graph, const StageCut& cut) {
  if (cut.begin == NodeId(0)) return graph.nodes().front().module;
  const std::string name = cut_name(graph, cut.begin);
  return !name.empty() ? name : graph.nodes()[cut.begin - 1].module + ":end";
}

std::vector<StageCut> split_at(const Graph& graph, const std::vector<std::string>& modules) {
  std::vector<NodeId> cuts;
  for (const std::string& name : modules) {
    const bool at_end = name.ends_with(":end");
    const std::string module = at_end ? name.substr(0, name.size() - 4) : name;
    NodeId first, last;
    for (NodeId node : graph.nodes().ids())
      if (inside(graph.nodes()[node].module, module)) {
        if (!first) first = node;
        last = node;
      }
    if (!first) throw ConfigError(fmt::format("--split: the model has no module '{}'; 'ppengine inspect' lists them", module));
    const NodeId cut = at_end ? last + 1 : first;
    if (cut == NodeId(0) || cut == graph.nodes().end_id())
      throw ConfigError(fmt::format("--split: a cut at '{}' leaves a stage without anything to do", name));
    if (!cuts.empty() && cut <= cuts.back())
      throw ConfigError(
          fmt::format("--split: '{}' does not come after the module before it in the list; name the modules in the model's order", name));
    cuts.push_back(cut);
  }
  return make_stages(graph, cuts);
}

IdVector<NodeId, double> estimated_costs(const Graph& graph, std::int64_t batch, std::int64_t length) {
  IdVector<NodeId, double> costs;
  for (const Node& node : graph.nodes()) {
    const auto frozen = [&](ParameterId id) { return graph.parameters()[id].frozen; };
    const bool only_inputs = !node.parameters.empty() && std::ranges::all_of(node.parameters, frozen);
    const double passes = !graph.values()[node.output].needs_gradient ? 1.0 : only_inputs ? 2.0 : 3.0;
    costs.push_back(passes * node.op->flops(graph, node, batch, length));
  }
  return costs;
}

std::vector<StageCut> split_before(const Graph& graph, std::vector<NodeId> nodes) { return make_stages(graph, std::move(nodes)); }

std::vector<StageCut> split_everywhere(const Graph& graph) { return make_stages(graph, places(graph)); }

std::vector<StageCut> split_evenly(const Graph& graph, int stages, const IdVector<NodeId, double>& node_costs) {
  auto candidates = places(graph);
  const auto tears = tears_state(graph);
  std::erase_if(candidates, [&](NodeId node) { return tears[node.index()]; });
  if (stages < 1) throw ConfigError(fmt::format("a model is split into at least one stage, not {}", stages));
  if (static_cast<std::size_t>(stages) > candidates.size() + 1) {  // fewer modules than stages: between any two nodes
    candidates.resize(std::max<std::size_t>(graph.nodes().size(), 1) - 1);
    std::iota(candidates.begin(), candidates.end(), NodeId(1));
    std::erase_if(candidates, [&](NodeId node) { return tears[node.index()]; });
  }
  if (static_cast<std::size_t>(stages) > candidates.size() + 1)
    throw ConfigError(fmt::format("the model can be cut into at most {} stages, not {}: use fewer --stages or a deeper model",
                                  candidates.size() + 1, stages));
  // Pieces between places where a cut is possible, and what a cut costs: what crosses it, as arithmetic that would take as long.
  const auto last = last_uses(graph);
  std::vector<NodeId> ends = candidates;
  ends.push_back(graph.nodes().end_id());
  std::vector<double> until{0.0}, cut_cost{0.0};
  double total = 0;
  NodeId node = NodeId(0);
  for (NodeId end : ends) {
    for (; node < end; ++node) total += node_costs[node];
    until.push_back(total);
    double width = 0;
    for (Value value : crossing(graph, last, end)) width += double(graph.values()[value].width);
    cut_cost.push_back(width);
  }
  double widest = 1.0;
  for (double width : cut_cost) widest = std::max(widest, width);
  for (double& cost : cut_cost) cost *= 1e-3 * total / widest;  // breaks ties towards narrow cuts
  // best[k][i]: the smallest largest stage when the first i pieces make k stages.
  const std::size_t pieces = ends.size(), count = static_cast<std::size_t>(stages);
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(count + 1, std::vector<double>(pieces + 1, infinite));
  std::vector<std::vector<std::size_t>> from(count + 1, std::vector<std::size_t>(pieces + 1, 0));
  best[0][0] = 0.0;
  for (std::size_t k = 1; k <= count; ++k)
    for (std::size_t i = k; i <= pieces; ++i)
      for (std::size_t j = k - 1; j < i; ++j) {
        const double stage = until[i] - until[j] + (i < pieces ? cut_cost[i] : 0.0) + cut_cost[j];
        const double largest = std::max(best[k - 1][j], stage);
        if (largest < best[k][i]) {
          best[k][i] = largest;
          from[k][i] = j;
        }
      }
  std::vector<NodeId> cuts;
  for (std::size_t k = count, i = pieces; k > 1; --k) {
    i = from[k][i];
    cuts.insert(cuts.begin(), ends[i - 1]);
  }
  return make_stages(graph, cuts);
}

}  // namespace ppengine::engine
