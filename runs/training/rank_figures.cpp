// Gathering what ranks did.
#include <ppengine/runs/training/rank_figures.hpp>

#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/pipeline.hpp>

namespace ppengine::runs {

void gather_ranks(engine::Trainer& trainer, TrainingResult& result) {
  comm::Communicator& world = trainer.mesh().world();
  for (const auto& one : comm::gather(world, std::vector<std::size_t>{trainer.model().memory().peak()}))
    result.peak_bytes.push_back(one.front());
  for (const auto& one : comm::gather(world, std::vector<double>{result.last.idle_share})) result.idle_share.push_back(one.front());
  result.plan = trainer.plan();
}

void show_ranks(engine::Trainer& trainer, const TrainingOptions& options, const engine::StepResult& last, TrainingListener& listener) {
  if (!options.observe) return;
  comm::Communicator& world = trainer.mesh().world();
  const bool first_rank = world.rank() == 0;
  if (world.allreduce_value(std::int64_t{first_rank && listener.wants_ranks()}, comm::Reduce::max) == 0) return;
  TrainingResult now;
  now.last = last;
  gather_ranks(trainer, now);
  now.timelines = comm::gather(world, trainer.timeline());
  if (first_rank) listener.ranks_gathered(now);
}

}  // namespace ppengine::runs
