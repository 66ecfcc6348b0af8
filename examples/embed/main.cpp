// A program of one's own that trains a small network over two ranks: which class a point belongs to, from its two coordinates.
#include <cmath>
#include <iostream>
#include <memory>
#include <random>

#include <ppengine/ppengine.hpp>

using namespace ppengine;

// Inputs, layers, output and loss. Modules have names: stages can begin at each of them.
std::shared_ptr<const engine::Graph> make_graph() {
  auto graph = std::make_shared<engine::Graph>();
  engine::Value x = graph->input("points", 2);
  for (const char* layer : {"layer1", "layer2", "layer3"}) {
    const auto scope = graph->module(layer);
    x = graph->linear(x, "fc", {.out = 32, .init_scale = 0.3f});
    x = graph->activation(x, ops::ActivationKind::gelu_tanh);
  }
  const engine::Value classes = graph->linear(x, "head", {.out = 2, .init_scale = 0.3f});
  graph->output(classes);
  graph->loss(graph->cross_entropy(classes, graph->tokens("targets")));
  return graph;
}

// Points inside of the unit circle are of class 1.
engine::Batch make_batch(std::mt19937& random, std::int64_t sequences, std::int64_t length) {
  engine::Batch batch{sequences, length, {{"points", {}, {}}, {"targets", {}, {}}}};
  std::uniform_real_distribution<float> coordinate(-1.5f, 1.5f);
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    const float x = coordinate(random), y = coordinate(random);
    batch.inputs[0].values.insert(batch.inputs[0].values.end(), {x, y});
    batch.inputs[1].tokens.push_back(std::hypot(x, y) < 1.0f ? 1 : 0);
  }
  return batch;
}

int main() try {
  std::cout << "ppengine " << version() << " (" << commit() << ")\n";
  constexpr std::int64_t sequences = 8, length = 32;
  engine::TrainerOptions options;
  options.parallel.pipeline = 2;
  options.parallel.microbatches = 4;
  options.parallel.device = ops::Device::open();
  comm::LocalOptions local;
  local.devices.assign(2, options.parallel.device);
  double first = 0, last = 0;
  comm::run_threads(2, local, [&](comm::Communicator& world) {  // once per rank
    engine::Trainer trainer(make_graph(), options, world, sequences, length);
    std::mt19937 random(1);  // all ranks give the same batches
    for (int step = 1; step <= 100; ++step) {
      const engine::StepResult result = trainer.step(make_batch(random, sequences, length), 1e-2);
      if (world.rank() != 0) continue;
      if (step == 1) first = result.loss;
      last = result.loss;
      if (step % 25 == 0) std::cout << "step " << step << "  loss " << result.loss << "\n";
    }
  });
  if (last < first / 2) return 0;
  std::cerr << "the loss did not fall: " << first << " to " << last << "\n";
  return 1;
} catch (const Error& e) {
  std::cerr << e.what() << "\n";
  return static_cast<int>(e.exit_code());
}
