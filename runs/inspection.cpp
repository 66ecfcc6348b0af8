// Inspection of a model: parameters, stages and memory.
#include <ppengine/runs/inspection.hpp>

#include <algorithm>
#include <optional>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/graph/split.hpp>
#include <ppengine/engine/graph/tensor_parallel.hpp>
#include <ppengine/engine/stage/plan_memory.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/runs/generator.hpp>

namespace ppengine::runs {
namespace {

// What the values of a stage take for one sequence of this length, if all of them are kept for the backward.
std::int64_t activation_elements(const engine::Graph& graph, const engine::StageCut& cut, std::int64_t length) {
  std::int64_t width = 0;
  const auto add = [&](engine::Value value) { width += graph.values()[value].width; };
  std::ranges::for_each(cut.receives, add);
  for (engine::NodeId i : cut.nodes()) add(graph.nodes()[i].output);
  return width * length;
}

// What is left of a rank's memory when data-parallel ranks keep a part each: whole stages only as many at a time as the plan gathers, or
// all of them where that is no more.
void divide(Inspection& model, int number, const engine::ActiveCount& active, int ranks, std::int64_t size) {
  InspectedRank& rank = model.ranks[static_cast<std::size_t>(number)];
  std::int64_t largest = 0;
  for (int stage : rank.stages) largest = std::max(largest, model.stages[static_cast<std::size_t>(stage)].parameters);
  const auto part = [&](std::int64_t bytes) { return (bytes + ranks - 1) / ranks; };
  const auto whole = [&](std::int64_t element, int blocks) {
    return std::min(element * rank.parameters, part(element * rank.parameters) + element * largest * blocks);
  };
  // Beside weights in bf16 there are master weights in f32, which are divided in any case.
  rank.weights = whole(size, active.gathered) + (size == 4 ? 0 : part(4 * rank.parameters));
  rank.gradients = whole(4, active.gradients);
  rank.optimizer = part(rank.optimizer);
  rank.inference_weights = whole(size, active.gathered);
}

}  // namespace

Inspection inspect_model(const std::string& folder_or_preset, const InspectionOptions& options) {
  const models::ModelSource model = models::open_model(folder_or_preset);
  const engine::ParallelOptions& parallel = options.parallel;
  // As each tensor-parallel rank has it: the first one's part is the largest.
  const auto graph = engine::shard_graph(models::build_graph(model.config), 0, parallel.tensor, parallel.sequence_parallel);
  const std::int64_t length = options.sequence_length > 0 ? options.sequence_length : model.sequence_length;
  if (options.parallel.stages > 0)  // more than the model can have are refused before a plan of that size is made
    engine::make_cuts(*graph, options.parallel, options.parallel.stages, options.microbatch_size, length);
  const schedules::Plan plan = engine::make_plan(options.parallel, false);
  const auto cuts = engine::make_cuts(*graph, options.parallel, plan.stages, options.microbatch_size, length);
  const std::int64_t size = options.parallel.type == ops::Type::bf16 ? 2 : 4;

  Inspection result;
  result.family = model.config.family_name();
  result.sequence_length = length;
  const auto list = models::list_parameters(model.config);
  std::vector<const models::StoredTensor*> stored(list.size(), nullptr);
  std::optional<models::WeightFiles> files;
  if (model.folder) {
    files = models::WeightFiles::open(*model.folder);
    stored = models::match_parameters(model.config, *files);
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    InspectedParameter one{list[i].name, list[i].shape, stored[i] ? stored[i]->type_name : "", list[i].elements(), {}};
    const engine::ParameterId id = graph->find_parameter(one.name);
    for (std::size_t s = 0; s < cuts.size(); ++s)
      if (std::ranges::binary_search(cuts[s].parameters, id)) one.stages.push_back(static_cast<int>(s));
    result.parameters += one.elements;
    if (stored[i]) result.stored_bytes += static_cast<std::int64_t>(stored[i]->bytes);
    result.list.push_back(std::move(one));
  }

  result.ranks.resize(static_cast<std::size_t>(plan.ranks));
  for (int s = 0; s < plan.stages; ++s) {
    const engine::StageCut& cut = cuts[static_cast<std::size_t>(s)];
    const auto node = [&](engine::NodeId i) -> const engine::Node& { return graph->nodes()[i]; };
    InspectedStage stage{plan.rank_of(s), node(cut.begin).module, node(cut.end - 1).module, 0};
    for (engine::ParameterId id : cut.parameters) stage.parameters += graph->parameters()[id].shape.count();
    engine::CompileOptions cached;
    cached.cache_capacity = length;
    cached.cache_chunk = std::min(length, GeneratorOptions().chunk);
    cached.type = size == 4 ? ops::Type::f32 : ops::Type::bf16;
    InspectedRank& rank = result.ranks[static_cast<std::size_t>(stage.rank)];
    rank.stages.push_back(s);
    rank.parameters += stage.parameters;
    rank.weights += stage.parameters * (size == 4 ? 4 : 6);  // bf16 beside f32 master weights
    rank.gradients += 4 * stage.parameters;
    rank.optimizer += 8 * stage.parameters;
    rank.activations += engine::count_blocks(plan, engine::StageId(s)).activations * activation_elements(*graph, cut, length) *
                        options.microbatch_size * size;
    rank.inference_weights += size * stage.parameters;
    for (engine::NodeId i : cut.nodes()) rank.cache += static_cast<std::int64_t>(node(i).op->cache_bytes(cached));
    result.stages.push_back(std::move(stage));
  }
  if (parallel.sharded())
    for (int rank = 0; rank < plan.ranks; ++rank) divide(result, rank, engine::count_active(plan, rank), parallel.data, size);
  return result;
}

}  // namespace ppengine::runs
