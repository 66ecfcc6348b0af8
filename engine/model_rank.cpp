// One rank's share of a model.
#include <ppengine/engine/model_rank.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/stage/readiness.hpp>

namespace ppengine::engine {

ModelRank::ModelRank(std::shared_ptr<const Graph> graph, std::vector<StageCut> cuts, std::vector<int> stage_rank, int rank,
                     std::shared_ptr<ops::Device> device, const Options& options)
    : graph_(std::move(graph)),
      cuts_(std::move(cuts)),
      stage_rank_(std::move(stage_rank)),
      rank_(rank),
      device_(std::move(device)),
      options_(options) {
  PPENGINE_ASSERT(cuts_.size() == stage_rank_.size());
  users_.resize(graph_->parameters().size());
  for (StageId stage : cuts_.ids()) {
    for (ParameterId id : cuts_[stage].parameters) users_[id].push_back(stage);
    if (has_stage(stage)) stages_.push_back(stage);
  }
  const int shards = options_.sharding ? options_.sharding->data->size() : 1;
  std::vector<FlatLayout> layouts;
  layouts.reserve(stages_.size());
  for (StageId stage : stages_) layouts.push_back(layout_of(cuts_[stage], shards));
  const Shard shard = shard_for(layouts);
  for (FlatLayout& layout : layouts)
    stores_.emplace_back(device_, *graph_, std::move(layout), options_.compute, options_.training, &memory_, shard, options_.weights);
  if (!options_.sharding) return;
  std::vector<ParameterStore*> stores;
  stores.reserve(stores_.size());
  for (ParameterStore& store : stores_) stores.push_back(&store);
  sharding_ = std::make_unique<Sharding>(*options_.sharding, stages_, std::move(stores), device_, options_.training, memory_);
}

// Parts with blocks for whole stages beside them, or everything whole: whichever takes less.
Shard ModelRank::shard_for(const std::vector<FlatLayout>& layouts) const {
  if (!options_.sharding) return {};
  const ShardingOptions& how = *options_.sharding;
  if (how.always_gather) return {how.data->rank(), how.data->size()};
  std::size_t all = 0, largest = 0;
  for (const FlatLayout& layout : layouts) all += layout.count, largest = std::max(largest, layout.count);
  const auto whole = [&](int blocks) {
    return all <= all / static_cast<std::size_t>(how.data->size()) + largest * static_cast<std::size_t>(blocks);
  };
  return {how.data->rank(), how.data->size(), whole(how.active_stages), whole(how.gradient_stages)};
}

// In the order in which gradients become final: so the buckets of a stage are ranges that become ready one after the other, from the first
// step on. A weight that several stages use has a bucket of its own: the stages' parts of it are the same then. So has a table that fills
// one and of which only some rows are reduced.
FlatLayout ModelRank::layout_of(const StageCut& cut, int shards) const {
  const GradientOrder order = gradient_order(*graph_, cut);
  std::vector<FlatItem> items;
  const auto add = [&](ParameterId id, int key) {
    items.push_back({id, static_cast<std::size_t>(graph_->parameters()[id].shape.count()), key});
  };
  const std::vector<RowTable> tables = row_tables(*graph_, cut);
  const auto alone = [&](ParameterId id) {
    const auto table = std::ranges::find(tables, id, &RowTable::parameter);
    return tied(id) || (table != tables.end() &&
                        static_cast<std::size_t>(table->rows * table->width) * sizeof(float) >= options_.buckets.effective().front());
  };
  for (ParameterId id : order.used) add(id, alone(id) ? 1 + id.number() : 0);
  for (ParameterId id : order.unused) add(id, tied(id) ? 1 + id.number() : -1);
  for (const bool packed : {false, true})  // packed ones last
    for (ParameterId id : order.frozen)
      if (graph_->parameters()[id].is_packed() == packed) add(id, -1);
  return make_layout(items, options_.buckets, shards);
}

ParameterStore& ModelRank::parameters(StageId stage) {
  const auto found = std::ranges::find(stages_, stage);
  PPENGINE_ASSERT(found != stages_.end());
  return stores_[static_cast<std::size_t>(found - stages_.begin())];
}

std::vector<StagePlace> ModelRank::stage_places() const {
  std::vector<StagePlace> places;
  places.reserve(cuts_.size());
  for (StageId s : cuts_.ids()) places.push_back({stage_rank_[s], first_module(*graph_, cuts_[s])});
  return places;
}

}  // namespace ppengine::engine
