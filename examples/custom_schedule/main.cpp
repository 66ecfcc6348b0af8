// Registers a schedule and trains with it: GPipe whose backwards run in the order of the forwards, draws it, and compares the losses
// with those of 1F1B. A schedule changes when things happen, never what is computed.
#include <cmath>
#include <iostream>

#include <ppengine/ppengine.hpp>
#include <ppengine/schedules/simulate.hpp>

using namespace ppengine;

// A schedule is a function from a request to a plan: for every rank the list of its actions. Communication is added later.
schedules::Plan first_in_first_out(const schedules::PlanRequest& request) {
  using schedules::ActionType;
  schedules::Plan plan =
      schedules::empty_plan(request.ranks, request.stages, request.microbatches, schedules::loop_placement(request.ranks, request.stages));
  for (int rank = 0; rank < plan.ranks; ++rank)
    for (const ActionType type : {ActionType::forward, ActionType::backward})
      for (int microbatch = 0; microbatch < plan.microbatches; ++microbatch)
        plan.of(rank).push_back(schedules::make_action(rank, type, microbatch));
  return plan;
}

// The losses of a few steps of a preset model on made-up tokens.
std::vector<double> train(const schedules::Registry& registry, const std::string& schedule) {
  runs::TrainingOptions options;
  options.model = "demo";
  options.data.data = "synthetic";
  options.data.batch_size = 8;
  options.steps = 5;
  options.trainer.parallel.pipeline = 2;
  options.trainer.parallel.microbatches = 4;
  options.trainer.parallel.schedule = schedule;
  options.trainer.parallel.registry = &registry;
  options.trainer.parallel.device = ops::Device::open();

  struct Listener final : runs::TrainingListener {
    std::vector<double> losses;
    void stepped(const engine::StepResult& result, std::size_t) override { losses.push_back(result.loss); }
  } listener;
  comm::LocalOptions local;
  local.devices.assign(2, options.trainer.parallel.device);
  comm::run_threads(2, local, [&](comm::Communicator& world) { runs::run_training(options, world, listener); });
  return listener.losses;
}

int main() try {
  std::cout << "ppengine " << version() << " (" << commit() << ")\n";
  schedules::Registry registry = schedules::builtin_schedules();
  registry.add(
      {.name = "fifo", .summary = "all forwards, then all backwards in the same order", .stages_per_rank = 1, .make = first_in_first_out});

  const schedules::Plan plan = registry.make("fifo", {.ranks = 2, .stages = 2, .microbatches = 4});
  std::cout << schedules::chart_text(schedules::make_timeline(plan, schedules::simulate(plan), {}, "fifo")) << "\n";

  const auto mine = train(registry, "fifo"), reference = train(registry, "1f1b");
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::cout << "step " << i + 1 << "  loss " << mine[i] << "  with 1f1b " << reference[i] << "\n";
    if (std::abs(mine[i] - reference[i]) > 1e-4 * reference[i]) {
      std::cerr << "the losses differ\n";
      return 1;
    }
  }
  return 0;
} catch (const Error& e) {
  std::cerr << e.what() << "\n";
  return static_cast<int>(e.exit_code());
}
