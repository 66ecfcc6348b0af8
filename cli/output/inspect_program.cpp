// ppengine inspect FILE.pt2: inputs, outputs, parameters, buffers, modules, ops, and what is not supported.
#include "output/inspect_program.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <map>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/runs/program.hpp>

#include "output/results.hpp"

namespace ppengine::cli {
namespace {

std::map<std::string, int> kinds_of(const engine::Graph& graph) {
  std::map<std::string, int> kinds;
  for (const engine::Node& node : graph.nodes()) ++kinds[node.op->kind()];
  return kinds;
}

void print_json(const runs::ProgramInspection& found) {
  nlohmann::json out{
      {"family", "program"}, {"modules", found.modules}, {"ops", found.program.ops}, {"nodes", kinds_of(*found.program.graph)}};
  out["parameters"] = out["buffers"] = out["inputs"] = out["outputs"] = out["stages"] = out["unsupported"] = nlohmann::json::array();
  std::int64_t parameters = 0;
  for (const auto& one : found.state) {
    if (!one.buffer) parameters += one.elements;
    out[one.buffer ? "buffers" : "parameters"].push_back(
        {{"name", one.name},
         {"shape", one.shape},
         {"type", one.type},
         {"elements", one.elements},
         {"stages", one.stages},
         {"stage", one.stages.empty() ? nlohmann::json() : nlohmann::json(one.stages.front())}});
  }
  out["parameter_count"] = parameters;
  for (const auto& one : found.program.inputs)
    out["inputs"].push_back({{"name", one.name}, {"shape", one.shape}, {"integers", one.integers}});
  for (const auto& one : found.program.outputs)
    out["outputs"].push_back({{"name", one.name}, {"shape", one.shape}, {"batched", one.batched}});
  for (const auto& one : found.stages)
    out["stages"].push_back({{"first_module", one.first_module}, {"last_module", one.last_module}, {"parameters", one.parameters}});
  for (const auto& one : found.program.unsupported)
    out["unsupported"].push_back({{"op", one.op}, {"module", one.module}, {"line", one.place}, {"reason", one.reason}});
  print_result("{}\n", out.dump());
}

void print_text(const runs::ProgramInspection& found) {
  for (const auto& one : found.program.inputs) print_result("input   {} {} {}\n", one.name, one.shape, one.integers ? "integers" : "f32");
  for (const auto& one : found.program.outputs)
    print_result("output  {} [{}{}{}]\n", one.name, one.batched ? "B" : "", one.batched && !one.shape.empty() ? "," : "",
                 fmt::join(one.shape, ","));
  std::size_t width = 9;
  for (const auto& one : found.state) width = std::max(width, one.name.size());
  print_result("\n{:<{}}  {:<18}{:<6}{:>12}  stage\n", "parameter", width, "shape", "type", "elements");
  for (const auto& one : found.state)
    print_result("{:<{}}  {:<18}{:<6}{:>12}  {}{}\n", one.name, width, fmt::format("[{}]", fmt::join(one.shape, ", ")), one.type,
                 one.elements, fmt::join(one.stages, ", "), one.buffer ? " buffer" : "");
  print_result("\nmodules: {}\n", fmt::join(found.modules, " "));
  if (!found.stages.empty()) print_result("\n{:<7}{:>14}  modules\n", "stage", "parameters");
  for (std::size_t s = 0; s < found.stages.size(); ++s)
    print_result("{:<7}{:>14}  {} to {}\n", s, found.stages[s].parameters, found.stages[s].first_module, found.stages[s].last_module);
  print_result("\nops of the program\n");
  for (const auto& [op, count] : found.program.ops) print_result("  {:<48}{:>5}\n", op, count);
  print_result("run as\n");
  const std::map<std::string, const char*> by{{"linear", "oneDNN or own"},
                                              {"matmul", "oneDNN or SYCL"},
                                              {"convolution", "own or oneDNN"},
                                              {"layer_norm", "oneDNN or own"},
                                              {"rms_norm", "oneDNN or own"},
                                              {"group_norm", "own or generated kernels"},
                                              {"batch_norm", "own or generated kernels"},
                                              {"attention", "oneDNN or own"},
                                              {"causal_attention", "oneDNN or own"},
                                              {"activation", "oneDNN or own"},
                                              {"add", "part of the linear layer before it, or SYCL"},
                                              {"softmax", "oneDNN or SYCL"},
                                              {"embedding", "SYCL"},
                                              {"cross_entropy", "SYCL"},
                                              {"dropout", "SYCL"},
                                              {"parameter", "nothing to do"},
                                              {"constant", "nothing to do"}};
  for (const auto& [kind, count] : kinds_of(*found.program.graph)) {
    const auto known = by.find(kind);
    print_result("  {:<32}{:>5}  {}\n", kind, count, known == by.end() ? "generated kernel" : known->second);
  }
  for (const auto& one : found.program.unsupported)
    print_result("not supported: {} in {} ({}): {}\n", one.op, one.module.empty() ? "the model" : one.module,
                 one.place.empty() ? "no line" : one.place, one.reason);
}

}  // namespace

void inspect_program(const std::string& file, int stages, const std::vector<std::string>& split, bool json) {
  const int count = split.empty() ? stages : static_cast<int>(split.size()) + 1;
  const runs::ProgramInspection found = runs::inspect_program(file, {}, count, split);
  json ? print_json(found) : print_text(found);
}

}  // namespace ppengine::cli
