// One rank's share of a model.
#include <ppengine/engine/model_rank.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

ModelRank::ModelRank(std::shared_ptr<const Graph> graph, std::vector<StageCut> cuts, std::vector<int> stage_rank, int rank,
                     std::shared_ptr<ops::Device> device, const Options& options)
    : graph_(std::move(graph)), cuts_(std::move(cuts)), stage_rank_(std::move(stage_rank)), rank_(rank), device_(std::move(device)), options_(options) {
  PPENGINE_ASSERT(cuts_.size() == stage_rank_.size());
  owners_.assign(graph_->parameters().size(), -1);
  for (size_t s = 0; s < cuts_.size(); ++s) {
    for (int id : cuts_[s].parameters)
      if (owners_[static_cast<size_t>(id)] < 0) owners_[static_cast<size_t>(id)] = static_cast<int>(s);
    if (stage_rank_[s] != rank_) continue;
    stages_.push_back(static_cast<int>(s));
    stores_.emplace_back(device_, *graph_, cuts_[s].parameters, options_.compute, options_.training, &memory_, options_.weights);
  }
}

ParameterStore& ModelRank::parameters(int stage) {
  const auto found = std::ranges::find(stages_, stage);
  PPENGINE_ASSERT(found != stages_.end());
  return stores_[static_cast<size_t>(found - stages_.begin())];
}

std::vector<int> ModelRank::users(int parameter) const {
  std::vector<int> found;
  for (size_t s = 0; s < cuts_.size(); ++s)
    if (std::ranges::binary_search(cuts_[s].parameters, parameter)) found.push_back(static_cast<int>(s));
  return found;
}

}  // namespace ppengine::engine
