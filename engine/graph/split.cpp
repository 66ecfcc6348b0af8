// Cutting a graph into stages.
#include <ppengine/engine/graph/split.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
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
std::vector<int> last_uses(const Graph& graph) {
  std::vector<int> last(graph.values().size(), -1);
  const int nodes = static_cast<int>(graph.nodes().size());
  for (int i = 0; i < nodes; ++i)
    for (int value : graph.nodes()[static_cast<size_t>(i)].inputs) last[static_cast<size_t>(value)] = i;
  if (graph.output_value() >= 0) last[static_cast<size_t>(graph.output_value())] = nodes - 1;
  if (graph.loss_value() >= 0) last[static_cast<size_t>(graph.loss_value())] = nodes - 1;
  return last;
}

std::vector<int> crossing(const Graph& graph, const std::vector<int>& last, int cut) {
  std::vector<int> values;
  for (size_t i = 0; i < graph.values().size(); ++i) {
    const ValueInfo& info = graph.values()[i];
    if (info.producer >= 0 && info.producer < cut && last[i] >= cut) values.push_back(static_cast<int>(i));
  }
  return values;
}

std::vector<StageCut> make_stages(const Graph& graph, std::vector<int> cuts) {
  const auto last = last_uses(graph);
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(static_cast<int>(graph.nodes().size()));
  std::vector<StageCut> stages;
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    StageCut stage{cuts[s], cuts[s + 1], {}, {}, {}};
    if (s > 0) stage.receives = crossing(graph, last, stage.begin);
    if (s + 2 < cuts.size()) stage.sends = crossing(graph, last, stage.end);
    std::set<int> parameters;
    for (int i = stage.begin; i < stage.end; ++i) {
      const Node& node = graph.nodes()[static_cast<size_t>(i)];
      parameters.insert(node.parameters.begin(), node.parameters.end());
    }
    stage.parameters.assign(parameters.begin(), parameters.end());
    stages.push_back(std::move(stage));
  }
  return stages;
}

// Nodes that are the first of a module of their own: a cut there can be named.
std::vector<int> places(const Graph& graph) {
  std::vector<int> found;
  for (int i = 1; i < static_cast<int>(graph.nodes().size()); ++i)
    if (!cut_name(graph, i).empty()) found.push_back(i);
  return found;
}

}  // namespace

std::string cut_name(const Graph& graph, int node) {
  const std::string& module = graph.nodes()[static_cast<size_t>(node)].module;
  const std::string& before = graph.nodes()[static_cast<size_t>(node - 1)].module;
  // The outermost enclosing module that begins here.
  for (size_t end = module.find('.');; end = module.find('.', end + 1)) {
    std::string prefix = module.substr(0, end);
    if (!inside(before, prefix)) {
      for (int i = 0; i < node; ++i)
        if (inside(graph.nodes()[static_cast<size_t>(i)].module, prefix)) return "";
      return prefix;
    }
    if (end == std::string::npos) return "";
  }
}

std::string first_module(const Graph& graph, const StageCut& cut) {
  if (cut.begin == 0) return graph.nodes().front().module;
  const std::string name = cut_name(graph, cut.begin);
  return !name.empty() ? name : graph.nodes()[static_cast<size_t>(cut.begin - 1)].module + ":end";
}

std::vector<StageCut> split_at(const Graph& graph, const std::vector<std::string>& modules) {
  std::vector<int> cuts;
  for (const std::string& name : modules) {
    const bool at_end = name.ends_with(":end");
    const std::string module = at_end ? name.substr(0, name.size() - 4) : name;
    int first = -1, last = -1;
    for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i)
      if (inside(graph.nodes()[static_cast<size_t>(i)].module, module)) {
        if (first < 0) first = i;
        last = i;
      }
    if (first < 0) throw ConfigError(fmt::format("--split: the model has no module '{}'; 'ppengine inspect' lists them", module));
    const int cut = at_end ? last + 1 : first;
    if (cut == 0 || cut == static_cast<int>(graph.nodes().size()))
      throw ConfigError(fmt::format("--split: a cut at '{}' leaves a stage without anything to do", name));
    if (!cuts.empty() && cut <= cuts.back())
      throw ConfigError(
          fmt::format("--split: '{}' does not come after the module before it in the list; name the modules in the model's order", name));
    cuts.push_back(cut);
  }
  return make_stages(graph, cuts);
}

std::vector<double> estimated_costs(const Graph& graph, int64_t batch, int64_t length) {
  std::vector<double> costs;
  for (const Node& node : graph.nodes()) {
    const auto frozen = [&](int id) { return graph.parameters()[static_cast<size_t>(id)].frozen; };
    const bool only_inputs = !node.parameters.empty() && std::ranges::all_of(node.parameters, frozen);
    const double passes = !graph.values()[static_cast<size_t>(node.output)].needs_gradient ? 1.0 : only_inputs ? 2.0 : 3.0;
    costs.push_back(passes * node.op->flops(graph, node, batch, length));
  }
  return costs;
}

std::vector<StageCut> split_before(const Graph& graph, std::vector<int> nodes) { return make_stages(graph, std::move(nodes)); }

std::vector<StageCut> split_everywhere(const Graph& graph) { return make_stages(graph, places(graph)); }

std::vector<StageCut> split_evenly(const Graph& graph, int stages, const std::vector<double>& node_costs) {
  auto candidates = places(graph);
  if (stages < 1) throw ConfigError(fmt::format("a model is split into at least one stage, not {}", stages));
  if (static_cast<size_t>(stages) > candidates.size() + 1) {  // fewer modules than stages: between any two nodes
    candidates.resize(std::max<size_t>(graph.nodes().size(), 1) - 1);
    std::iota(candidates.begin(), candidates.end(), 1);
  }
  if (static_cast<size_t>(stages) > candidates.size() + 1)
    throw ConfigError(fmt::format("the model can be cut into at most {} stages, not {}: use fewer --stages or a deeper model",
                                  candidates.size() + 1, stages));
  // Pieces between places where a cut is possible, and what a cut costs: what crosses it, as arithmetic that would take as long.
  const auto last = last_uses(graph);
  std::vector<int> ends = candidates;
  ends.push_back(static_cast<int>(graph.nodes().size()));
  std::vector<double> until{0.0}, cut_cost{0.0};
  double total = 0;
  for (size_t i = 0, node = 0; i < ends.size(); ++i) {
    for (; node < static_cast<size_t>(ends[i]); ++node) total += node_costs[node];
    until.push_back(total);
    double width = 0;
    for (int value : crossing(graph, last, ends[i])) width += double(graph.values()[static_cast<size_t>(value)].width);
    cut_cost.push_back(width);
  }
  double widest = 1.0;
  for (double width : cut_cost) widest = std::max(widest, width);
  for (double& cost : cut_cost) cost *= 1e-3 * total / widest;  // breaks ties towards narrow cuts
  // best[k][i]: the smallest largest stage when the first i pieces make k stages.
  const size_t pieces = ends.size(), count = static_cast<size_t>(stages);
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(count + 1, std::vector<double>(pieces + 1, infinite));
  std::vector<std::vector<size_t>> from(count + 1, std::vector<size_t>(pieces + 1, 0));
  best[0][0] = 0.0;
  for (size_t k = 1; k <= count; ++k)
    for (size_t i = k; i <= pieces; ++i)
      for (size_t j = k - 1; j < i; ++j) {
        const double stage = until[i] - until[j] + (i < pieces ? cut_cost[i] : 0.0) + cut_cost[j];
        const double largest = std::max(best[k - 1][j], stage);
        if (largest < best[k][i]) {
          best[k][i] = largest;
          from[k][i] = j;
        }
      }
  std::vector<int> cuts;
  for (size_t k = count, i = pieces; k > 1; --k) {
    i = from[k][i];
    cuts.insert(cuts.begin(), ends[i - 1]);
  }
  return make_stages(graph, cuts);
}

}  // namespace ppengine::engine
