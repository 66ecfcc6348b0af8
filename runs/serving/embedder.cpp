// Embeddings of texts.
#include <ppengine/runs/serving/embedder.hpp>

#include <string_view>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/local.hpp>
#include <ppengine/comm/mesh.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/generator/adapters.hpp>

namespace ppengine::runs::serving {
namespace {

// The model with the head's input as its output.
std::shared_ptr<const engine::Graph> hidden_graph(const engine::Graph& whole) {
  auto graph = std::make_shared<engine::Graph>(whole);
  engine::Value value = graph->output_value();
  for (;;) {
    const engine::NodeId producer = graph->values()[value].producer;
    if (!producer) throw ConfigError("the model has no head: there are no hidden states to give");
    const engine::Node& node = graph->nodes()[producer];
    value = node.inputs[0];
    if (node.op->is_linear()) break;
  }
  graph->output(value);
  return graph;
}

}  // namespace

struct Embedder::Loaded {
  std::vector<std::unique_ptr<comm::Communicator>> world;
  comm::Mesh mesh;
  engine::ParallelOptions parallel;
  engine::AdapterBank bank;
  engine::ModelRank model;
  engine::Evaluator evaluator;

  static comm::LocalOptions local(const std::shared_ptr<ops::Device>& device) {
    comm::LocalOptions options;
    options.devices = {device};
    return options;
  }
  static engine::ParallelOptions alone(const std::shared_ptr<ops::Device>& device) {
    engine::ParallelOptions options;
    options.device = device;
    return options;
  }
  static engine::ModelRank make(const std::shared_ptr<const engine::Graph>& graph, const engine::ParallelOptions& parallel) {
    return engine::ModelRank(graph, engine::make_cuts(*graph, parallel, 1, 1, 1), {0}, 0, parallel.device, engine::ModelRank::Options{});
  }
  Loaded(const models::ModelSource& source, const std::shared_ptr<ops::Device>& device, std::uint64_t seed)
      : world(comm::make_local(1, local(device))),
        mesh(*world[0], {}),
        parallel(alone(device)),
        bank(graph_with_adapters(source)),
        model(make(hidden_graph(*bank.graph), parallel)),
        evaluator(model, parallel, mesh, true) {
    ops::Stream stream(device);
    if (source.folder)
      models::load_weights(model, stream, source);
    else
      for (engine::StageId stage : model.stages()) model.parameters(stage).initialize(stream, seed);
    if (!source.adapters.empty()) models::load_adapters(model, stream, open_adapters(source));
    stream.wait();
  }
};

Embedder::Embedder(const models::ModelSource& source, std::shared_ptr<ops::Device> device, std::uint64_t weight_seed)
    : source_(source), device_(std::move(device)), weight_seed_(weight_seed) {}
Embedder::~Embedder() = default;

std::vector<std::vector<float>> Embedder::embed(const std::vector<std::vector<std::int32_t>>& ids, bool last_token, int adapter) {
  const std::lock_guard lock(mutex_);
  if (!device_) device_ = ops::Device::open();
  if (!loaded_) loaded_ = std::make_unique<Loaded>(source_, device_, weight_seed_);
  std::vector<std::vector<float>> all;
  for (const auto& one : ids) {
    std::vector<float> sum;
    loaded_->evaluator.on_output = [&](std::int64_t, std::int64_t, std::span<const float> output) {
      const std::size_t width = output.size() / one.size();
      std::vector<double> mean(width);
      for (std::size_t t = last_token ? one.size() - 1 : 0; t < one.size(); ++t)
        for (std::size_t i = 0; i < width; ++i) mean[i] += output[t * width + i];
      for (const double each : mean) sum.push_back(static_cast<float>(each / static_cast<double>(last_token ? 1 : one.size())));
    };
    engine::Batch batch{
        1, static_cast<std::int64_t>(one.size()), {{"input_ids", one, {}}, {"targets", std::vector<std::int32_t>(one.size(), -100), {}}}};
    for (const engine::AdapterMask& mask : loaded_->bank.masks) {
      std::vector<float> rows;
      for (std::size_t t = 0; t < one.size(); ++t)
        for (const int owner : mask.columns) rows.push_back(owner == adapter ? 1.0f : 0.0f);
      batch.inputs.push_back({mask.input, {}, std::move(rows)});
    }
    loaded_->evaluator.run(batch);
    all.push_back(std::move(sum));
  }
  return all;
}

}  // namespace ppengine::runs::serving
