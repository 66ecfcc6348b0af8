// A graph of one's own, trained on two ranks, saved, and resumed on one: the resumed run goes on as if it had never stopped. Then the
// weights alone are loaded into another run.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>

#include <ppengine/ppengine.hpp>

using namespace ppengine;

constexpr std::int64_t sequences = 8, length = 16;

std::shared_ptr<const engine::Graph> make_graph() {
  auto graph = std::make_shared<engine::Graph>();
  engine::Value x = graph->input("points", 2);
  x = graph->activation(graph->linear(x, "first", {.out = 32, .init_scale = 0.3f}), ops::ActivationKind::gelu_tanh);
  x = graph->activation(graph->linear(x, "second", {.out = 32, .init_scale = 0.3f}), ops::ActivationKind::gelu_tanh);
  graph->loss(graph->cross_entropy(graph->linear(x, "head", {.out = 2, .init_scale = 0.3f}), graph->tokens("targets")));
  return graph;
}

// The batch of a step: points inside of the unit circle are of class 1.
engine::Batch make_batch(std::int64_t step) {
  std::mt19937 random(static_cast<unsigned>(step));
  std::uniform_real_distribution<float> coordinate(-1.5f, 1.5f);
  engine::Batch batch{sequences, length, {{"points", {}, {}}, {"targets", {}, {}}}};
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    const float x = coordinate(random), y = coordinate(random);
    batch.inputs[0].values.insert(batch.inputs[0].values.end(), {x, y});
    batch.inputs[1].tokens.push_back(std::hypot(x, y) < 1.0f ? 1 : 0);
  }
  return batch;
}

// Trains up to a step, from a checkpoint where the folder holds one, and saves at the end. The last loss.
double train(const std::filesystem::path& folder, int ranks, std::int64_t until) {
  engine::TrainerOptions options;
  options.parallel.pipeline = ranks;
  options.parallel.microbatches = 4;
  options.parallel.device = ops::Device::open();
  comm::LocalOptions local;
  local.devices.assign(static_cast<std::size_t>(ranks), options.parallel.device);
  double loss = 0;
  comm::run_threads(ranks, local, [&](comm::Communicator& world) {
    engine::Trainer trainer(make_graph(), options, world, sequences, length);
    std::int64_t step = 0;
    if (runs::find_checkpoint(folder)) step = runs::load_checkpoint(folder, trainer).step;  // resume
    while (step < until) {
      const engine::StepResult result = trainer.step(make_batch(step), 1e-2);
      ++step;
      if (world.rank() == 0) loss = result.loss;
    }
    runs::save_checkpoint(folder, trainer);  // save
  });
  std::cout << "step " << until << " on " << ranks << (ranks == 1 ? " rank" : " ranks") << "  loss " << loss << "\n";
  return loss;
}

int main() try {
  std::cout << "ppengine " << version() << " (" << commit() << ")\n";
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("ppengine-example-" + std::to_string(std::random_device{}()));
  const double whole = train(folder / "whole", 1, 40);
  train(folder / "parts", 2, 25);
  const double resumed = train(folder / "parts", 1, 40);  // another number of ranks
  std::filesystem::remove_all(folder);
  if (std::abs(whole - resumed) <= 1e-4 * whole) return 0;
  std::cerr << "the resumed run differs: " << resumed << " in place of " << whole << "\n";
  return 1;
} catch (const Error& e) {
  std::cerr << e.what() << "\n";
  return static_cast<int>(e.exit_code());
}
