// Measuring the pieces of a model.
#include <ppengine/engine/measure/piece_costs.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include <ppengine/engine/stage/compiled_stage.hpp>

namespace ppengine::engine {
namespace {

// What decides the cost of a piece: ops, widths and shapes of parameters.
std::string look_of(const Graph& graph, const StageCut& piece) {
  std::string look;
  for (NodeId i : piece.nodes()) {
    const Node& node = graph.nodes()[i];
    look += node.op->kind();
    for (Value value : node.inputs) {
      const ValueInfo& info = graph.values()[value];
      look += fmt::format(" {}{}", info.width, info.needs_gradient ? "" : "-");
    }
    for (ParameterId id : node.parameters) {
      const ParameterInfo& info = graph.parameters()[id];
      look += fmt::format(" {}{}", info.shape.text(), info.frozen ? "-" : "");
    }
    look += fmt::format(" {};", graph.values()[node.output].width);
  }
  return look;
}

// The best of a few runs: of one alone where that takes long.
double seconds_of(const Graph& graph, const StageCut& piece, const std::shared_ptr<ops::Device>& device, const CompileOptions& options) {
  ops::Stream stream(device);
  ParameterStore parameters(device, graph, plain_layout(graph, piece.parameters), options.type, /*training=*/true);
  parameters.initialize(stream, 0);
  const CompiledStage stage(device, graph, piece, parameters, options);
  Run run = stage.start(stream);
  std::vector<ops::Buffer> blocks;
  const auto give = [&](Region region, std::size_t bytes) {
    ops::Buffer& block = blocks.emplace_back(device, std::max<std::size_t>(bytes, sizeof(float)));
    stream.zero(block.data(), block.bytes());
    run.base[static_cast<int>(region)] = block.at(0);
  };
  give(Region::activations, stage.layout().activations);
  give(Region::gradients, stage.layout().gradients);
  for (Region region : {Region::values_in, Region::gradients_out}) give(region, stage.bytes_in());
  for (Region region : {Region::values_out, Region::gradients_in}) give(region, stage.bytes_out());
  give(Region::workspace, stage.layout().workspace);
  give(Region::inputs, stage.input_bytes());
  give(Region::results, sizeof(float));
  constexpr int most = 5;
  constexpr double enough = 0.5;
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; i < most && spent < enough; ++i) {
    stream.wait();
    const auto begin = std::chrono::steady_clock::now();
    stage.forward(run);
    stage.backward(run);
    stream.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
    spent += took.count();
  }
  return best;
}

}  // namespace

IdVector<NodeId, double> measured_costs_by_node(const Graph& graph, const std::shared_ptr<ops::Device>& device, ops::Type type,
                                                std::int64_t batch, std::int64_t length, comm::Communicator& world) {
  CompileOptions options;
  options.batch = batch;
  options.length = length;
  options.type = type;
  std::map<std::string, double> known;
  IdVector<NodeId, double> costs(graph.nodes().size());
  for (const StageCut& piece : split_everywhere(graph)) {
    const auto [entry, is_new] = known.try_emplace(look_of(graph, piece));
    if (is_new) entry->second = world.allreduce_value(world.rank() == 0 ? seconds_of(graph, piece, device, options) : 0.0);
    costs[piece.begin] = entry->second;
  }
  return costs;
}

}  // namespace ppengine::engine
