// One rank, or all of them as threads, of the comparison of processes with threads: trains a small model with every schedule in turn and
// writes the losses and norms, to the last bit, to a file.
//   schedule_rank FILE RANKS     as a rank that a launcher has started; otherwise with threads
#include <fmt/core.h>

#include <cstdio>
#include <fstream>

#include <ppengine/comm/processes.hpp>
#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/source.hpp>

using namespace ppengine;

namespace {

engine::Batch make_batch(std::int64_t sequences, std::int64_t length, std::int64_t vocabulary, int step) {
  engine::Batch batch{sequences, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}};
  for (std::size_t i = 0; i < 2; ++i)
    for (std::int64_t t = 0; t < sequences * length; ++t)
      batch.inputs[i].tokens.push_back(static_cast<std::int32_t>((t * 7 + step * 13 + static_cast<std::int64_t>(i) * 5) % vocabulary));
  return batch;
}

void train(comm::Communicator& world, const std::shared_ptr<ops::Device>& device, const std::string& file) {
  const models::ModelSource model = models::open_model("tiny");
  const auto graph = models::build_graph(model.config);
  std::ofstream out;
  if (world.rank() == 0) out.open(file);
  for (const std::string& name : schedules::builtin_schedules().names()) {
    const schedules::Schedule& schedule = schedules::builtin_schedules().find(name);
    // The model has four blocks: with more ranks, schedules of two stages each would have empty ones.
    if (schedule.inference || world.size() * std::max(1, schedule.default_per_rank) > 4) continue;
    engine::TrainerOptions options;
    options.parallel.pipeline = world.size();
    options.parallel.schedule = name;
    options.parallel.microbatches = 2 * world.size();
    options.parallel.device = device;
    engine::Trainer trainer(graph, options, world, options.parallel.microbatches, 8);
    for (int step = 0; step < 2; ++step) {
      const auto result = trainer.step(make_batch(options.parallel.microbatches, 8, model.config.vocabulary(), step), 1e-3);
      if (world.rank() == 0) out << fmt::format("{} {} {:a} {:a}\n", name, step, result.loss, result.grad_norm);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::unique_ptr<comm::Communicator> world;
  try {
    const auto device = ops::Device::open("cpu");
    if (const auto me = comm::detect_ranks()) {
      comm::ProcessOptions options;
      options.device = device;
      options.timeout = std::chrono::seconds(100);
      world = comm::connect_processes(*me, options);
      train(*world, device, argv[1]);
    } else {
      const int ranks = std::stoi(argv[2]);
      comm::LocalOptions local;
      local.devices.assign(static_cast<std::size_t>(ranks), device);
      local.timeout = std::chrono::seconds(100);
      comm::run_threads(ranks, local, [&](comm::Communicator& rank) { train(rank, device, argv[1]); });
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    comm::leave(1);
  }
}
