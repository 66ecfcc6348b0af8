// The plan and the cuts that parallel options give.
#include <ppengine/engine/parallel.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/split.hpp>
#include <ppengine/engine/measure/piece_costs.hpp>
#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/lower.hpp>

namespace ppengine::engine {

std::shared_ptr<ops::Device> ParallelOptions::device_of(const comm::Communicator& rank) const {
  if (!devices.empty()) return devices[static_cast<std::size_t>(rank.world_rank(rank.rank())) % devices.size()];
  return device ? device : ops::Device::open();
}

schedules::Plan make_plan(const ParallelOptions& options, bool inference, std::vector<int> stage_rank) {
  schedules::LowerOptions lowering;
  lowering.unshard = options.sharded();
  lowering.max_active_stages = options.active_stages;
  const schedules::Registry& registry = options.registry ? *options.registry : schedules::builtin_schedules();
  if (options.plan && !inference) {
    const schedules::Plan& own = *options.plan;
    if (own.ranks != options.pipeline)
      throw ConfigError(fmt::format("the plan is for {} ranks, and --pp is {}", own.ranks, options.pipeline));
    if (options.stages > 0 && own.stages != options.stages)
      throw ConfigError(fmt::format("the plan has {} stages, and --stages is {}", own.stages, options.stages));
    return own.lowered() ? own : schedules::lower(own, lowering);
  }
  schedules::PlanRequest request;
  request.ranks = options.pipeline;
  request.stages = options.stages;
  request.microbatches = options.plan ? options.plan->microbatches : options.microbatches;
  if (!inference) return schedules::lower(registry.make(options.schedule, request), lowering);
  if (stage_rank.empty()) {
    const schedules::Schedule& schedule = registry.find(options.schedule);
    if (request.stages == 0) request.stages = options.pipeline * schedule.default_per_rank;
    stage_rank = options.plan ? options.plan->stage_rank : schedule.placement(request.ranks, request.stages);
  }
  request.stages = static_cast<int>(stage_rank.size());
  request.stage_rank = std::move(stage_rank);
  return schedules::lower(schedules::builtin_schedules().make("forward", request), lowering);
}

std::vector<StageCut> make_cuts(const Graph& graph, const ParallelOptions& options, int stages, std::int64_t batch, std::int64_t length,
                                comm::Communicator* world) {
  if (options.split.empty()) {
    const bool any_split_alike = options.data <= 2 && !options.sharded();
    const bool measure =
        world && stages > 1 && (options.balance == Balance::measured || (options.balance == Balance::automatic && any_split_alike));
    return split_evenly(graph, stages,
                        measure ? measured_costs_by_node(graph, options.device_of(*world), options.type, batch, length, *world)
                                : estimated_costs(graph, batch, length));
  }
  auto cuts = split_at(graph, options.split);
  if (static_cast<int>(cuts.size()) != stages)
    throw ConfigError(
        fmt::format("--split names {} modules, which makes {} stages, and the plan has {}", options.split.size(), cuts.size(), stages));
  return cuts;
}

}  // namespace ppengine::engine
