// Graphs within a program (no_grad, autocast, checkpointing), and the buffers that it changes itself.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

std::string root_of(const std::map<std::string, std::string>& roots, const std::string& name) {
  const auto found = roots.find(name);
  return found == roots.end() ? "" : found->second;
}

bool writes(const std::string& target) {
  const std::string op = target.substr(0, target.rfind('.'));
  return op.ends_with("_") && !op.ends_with("__");
}

// Which of the outermost values are written, also through views and in inner graphs. roots: names here -> outermost values.
void find_written(const ExportedGraph& graph, std::map<std::string, std::string> roots, std::set<std::string>& found) {
  static const std::set<std::string> views{"slice",     "select",  "view",    "reshape", "narrow", "t",      "transpose", "permute",
                                           "unsqueeze", "squeeze", "flatten", "expand",  "alias",  "detach", "diagonal"};
  for (const ExportedNode& node : graph.nodes) {
    std::string first, out;
    for (const auto& [key, argument] : node.arguments) {
      if (argument.kind == ExportedArgument::Kind::tensor && key == "self") first = root_of(roots, argument.names[0]);
      if (argument.kind == ExportedArgument::Kind::tensor && key == "out" && node.target.ends_with("out"))
        out = root_of(roots, argument.names[0]);
    }
    if (!out.empty()) found.insert(out);
    if (!first.empty() && node.target.starts_with("aten.")) {
      if (writes(node.target)) found.insert(first);
      const std::string op = node.target.substr(5, node.target.rfind('.') - 5);
      if ((views.contains(op) || writes(node.target)) && !node.outputs.empty()) roots[node.outputs[0]] = first;
    }
    for (std::size_t i = 0; i < node.arguments.size(); ++i) {
      if (node.arguments[i].second.kind != ExportedArgument::Kind::graph) continue;
      const ExportedGraph& inner = *node.arguments[i].second.graph;
      std::map<std::string, std::string> inside;
      std::size_t next = 0;
      for (std::size_t k = i + 1; k < node.arguments.size(); ++k) {
        const auto& names = node.arguments[k].second.names;
        for (const std::string& name : names) {
          if (next < inner.inputs.size() && !root_of(roots, name).empty()) inside[inner.inputs[next]] = root_of(roots, name);
          ++next;
        }
        if (names.empty()) ++next;
      }
      find_written(inner, inside, found);
    }
  }
}

}  // namespace

std::vector<TensorRef> Lowering::lower_inner(const ExportedNode& node, const ExportedGraph& graph, std::size_t first) {
  Names inner{&graph, {}, {}};
  std::vector<std::pair<std::string, int>> given;  // inputs and the values that they had
  std::size_t next = 0;
  for (std::size_t k = first; k < node.arguments.size(); ++k) {
    const ExportedArgument& one = node.arguments[k].second;
    for (const std::string& name : one.names) {
      if (next < graph.inputs.size()) {
        read_state(name);
        const auto outer = names_->tensors.find(name);
        if (outer != names_->tensors.end()) {
          inner.tensors[graph.inputs[next]] = outer->second;
          given.emplace_back(graph.inputs[next], outer->second.value);
        } else if (buffers_.contains(name)) {
          inner.tensors[graph.inputs[next]] = stored_constant(buffers_[name]);
        }
      }
      ++next;
    }
    if (one.names.empty()) ++next;
  }
  std::vector<TensorRef> results;
  lower_graph(graph, inner, &results);
  for (const auto& [name, before] : given)  // what it has written is seen outside
    if (const int now = inner.tensors[name].value; now != before && before >= 0)
      for (auto& [other, ref] : names_->tensors)
        if (ref.value == before) ref.value = now;
  const bool no_gradient = node.target.find("set_grad_enabled") != std::string::npos && !node.arguments.empty() &&
                           node.arguments[0].second.kind == ExportedArgument::Kind::boolean && !node.arguments[0].second.boolean;
  for (TensorRef& one : results) {
    if (!no_gradient || !one.exists() || one.type != 'f') continue;
    one = build_.read(one);
    if (into_.graph->values()[engine::Value(one.value)].needs_gradient) one = build_.apply("$0", {""}, {one});
  }
  return results;
}

// Ops whose arguments are graphs of their own.
std::vector<TensorRef> Lowering::lower_higher_order(const ExportedNode& node) {
  using Kind = ExportedArgument::Kind;
  static const std::set<std::string> once{"wrap",
                                          "wrap_with_set_grad_enabled",
                                          "wrap_with_autocast",
                                          "tag_activation_checkpoint",
                                          "wrap_activation_checkpoint",
                                          "invoke_subgraph",
                                          "strict_mode",
                                          "hints_wrapper"};
  const std::string op = node.target.substr(node.target.find('.') + 1);
  const auto& given = node.arguments;
  const auto is_graph = [&](std::size_t i) { return i < given.size() && given[i].second.kind == Kind::graph; };
  if (op == "cond" && is_graph(1) && is_graph(2) && given[0].second.kind == Kind::tensor) {  // both are computed, one is taken
    const TensorRef which = Arguments(*this, node).tensor(given[0].first.c_str());
    const auto yes = lower_inner(node, *given[1].second.graph, 3), no = lower_inner(node, *given[2].second.graph, 3);
    std::vector<TensorRef> made;
    for (std::size_t i = 0; i < yes.size() && i < no.size(); ++i) {
      if (!yes[i].exists() || !no[i].exists()) Arguments::refuse("has a branch that is not supported");
      made.push_back(
          build_.apply("$0 != 0 ? $1 : $2", {"", "$0 != 0 ? $g : 0.0f", "$0 != 0 ? 0.0f : $g"}, {which, yes[i], no[i]}, yes[i].type));
    }
    return made;
  }
  if (!once.contains(op)) Arguments::refuse("runs a graph of its own in a way that is not supported");
  for (std::size_t i = 0; i < given.size(); ++i) {  // the graph, with the arguments behind it
    if (!is_graph(i)) continue;
    std::size_t first = i + 1;
    while (first < given.size() && given[first].second.kind == Kind::text) ++first;
    return lower_inner(node, *given[i].second.graph, first);
  }
  Arguments::refuse("has no graph");
}

void Lowering::bind_state() {
  std::map<std::string, std::string> roots;
  for (const auto& [value, name] : buffers_) roots[value] = value;
  std::set<std::string> written;
  find_written(program_.graph, roots, written);
  for (const std::string& value : written) {
    const std::string& name = buffers_.at(value);
    const StoredTensor& stored = tensor_(name);
    if (stored.type != StoredType::f32 && stored.type != StoredType::f16 && stored.type != StoredType::bf16 &&
        stored.type != StoredType::f64)
      continue;  // a counter, or refused
    state_[value] = {parameter_of(name, true), -1};
    into_.graph->parameter_info(engine::ParameterId(state_[value].first)).frozen = true;
  }
}

// Made a value where it is first used: reading and writing should lie in one stage.
void Lowering::read_state(const std::string& value) {
  const auto found = state_.find(value);
  if (found == state_.end() || names_->tensors.contains(value)) return;
  const TensorRef now = build_.state(found->second.first);
  names_->tensors[value] = now;
  found->second.second = now.value;
}

void Lowering::keep_state() {
  for (auto& [value, before] : state_) {
    const auto now = names_->tensors.find(value);
    if (now == names_->tensors.end() || now->second.value == before.second) continue;
    build_.set_state(before.first, now->second);
    before.second = now->second.value;
  }
}

}  // namespace ppengine::models
