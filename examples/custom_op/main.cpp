// Trains a small network with an op of one's own (swish.hpp) over two ranks, beside the same network with the built-in SiLU: both begin
// with the same loss, and then the op's own weights are learned too.
#include <cmath>
#include <iostream>
#include <random>

#include <ppengine/ppengine.hpp>

#include "swish.hpp"

using namespace ppengine;

std::shared_ptr<const engine::Graph> make_graph(bool own) {
  auto graph = std::make_shared<engine::Graph>();
  engine::Value x = graph->input("points", 2);
  for (const char* layer : {"layer1", "layer2"}) {
    const auto scope = graph->module(layer);
    x = graph->linear(x, "fc", {.out = 32, .init_scale = 0.5f});
    x = own ? example::swish(*graph, x, "swish", 32) : graph->activation(x, ops::ActivationKind::silu);
  }
  graph->loss(graph->cross_entropy(graph->linear(x, "head", {.out = 2, .init_scale = 0.3f}), graph->tokens("targets")));
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

std::vector<double> train(bool own) {
  constexpr std::int64_t sequences = 8, length = 32;
  engine::TrainerOptions options;
  options.parallel.pipeline = 2;
  options.parallel.microbatches = 4;
  options.parallel.schedule = "zbvzerobubble";  // the weight half runs apart from the input half
  options.parallel.device = ops::Device::open();
  comm::LocalOptions local;
  local.devices.assign(2, options.parallel.device);
  std::vector<double> losses;
  comm::run_threads(2, local, [&](comm::Communicator& world) {
    engine::Trainer trainer(make_graph(own), options, world, sequences, length);
    std::mt19937 random(1);
    for (int step = 0; step < 60; ++step) {
      const engine::StepResult result = trainer.step(make_batch(random, sequences, length), 1e-2);
      if (world.rank() == 0) losses.push_back(result.loss);
    }
  });
  return losses;
}

int main() try {
  std::cout << "ppengine " << version() << " (" << commit() << ")\n";
  const auto own = train(true), built_in = train(false);
  std::cout << "first loss " << own.front() << " with swish, " << built_in.front() << " with SiLU\n";
  std::cout << "last loss  " << own.back() << " with swish, " << built_in.back() << " with SiLU\n";
  if (std::abs(own.front() - built_in.front()) < 1e-5 && own.back() < own.front() / 2) return 0;
  std::cerr << "not as expected\n";
  return 1;
} catch (const Error& e) {
  std::cerr << e.what() << "\n";
  return static_cast<int>(e.exit_code());
}
