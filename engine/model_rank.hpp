// One rank's share of a model: the stages that a placement gives it, with their parameters on its device.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <ppengine/engine/graph/split.hpp>
#include <ppengine/engine/parallel.hpp>
#include <ppengine/engine/weights/parameters.hpp>
#include <ppengine/engine/weights/sharding.hpp>

namespace ppengine::engine {

class ModelRank {
 public:
  struct Options {
    ops::Type compute = ops::Type::f32;
    bool training = true;
    BucketOptions buckets = {};
    std::optional<ShardingOptions> sharding = {};  // parameters, gradients and optimizer state in parts over the data-parallel ranks
    ops::WeightStorage weights = {};               // of linears, in inference
  };
  // stage_rank: the rank of each stage, as in a plan.
  ModelRank(std::shared_ptr<const Graph> graph, std::vector<StageCut> cuts, std::vector<int> stage_rank, int rank,
            std::shared_ptr<ops::Device> device, const Options& options);

  const Graph& graph() const { return *graph_; }
  const std::shared_ptr<const Graph>& graph_ptr() const { return graph_; }
  const IdVector<StageId, StageCut>& cuts() const { return cuts_; }
  const IdVector<StageId, int>& stage_rank() const { return stage_rank_; }
  std::vector<StagePlace> stage_places() const;  // of all stages
  int rank() const { return rank_; }
  const std::shared_ptr<ops::Device>& device() const { return device_; }
  ops::MemoryCounter& memory() { return memory_; }
  const Options& options() const { return options_; }

  const std::vector<StageId>& stages() const { return stages_; }  // ascending
  bool has_stage(StageId stage) const { return stage_rank_[stage] == rank_; }
  ParameterStore& parameters(StageId stage);
  Sharding* sharding() { return sharding_.get(); }  // null: every rank has whole parameters
  // A stage's whole gradients of this rank while the backward makes them; null where sharding has no block for them at the time.
  float* whole_gradients(StageId stage) { return sharding_ ? sharding_->gradients(stage) : parameters(stage).gradients(); }
  // Of gradients only this rank's parts stay: whole ones are there until they are reduced.
  bool keeps_gradient_parts() const { return sharding_ && !sharding_->whole_gradients(); }
  // The stage that a parameter belongs to for norms and files: the first that uses it.
  StageId owner(ParameterId parameter) const { return users(parameter).empty() ? StageId() : users(parameter).front(); }
  // Stages that use the parameter, ascending; more than one for tied weights.
  const std::vector<StageId>& users(ParameterId parameter) const { return users_[parameter]; }
  bool tied(ParameterId parameter) const { return users(parameter).size() > 1; }
  // A tied weight's gradient is not whole before those of all its stages are summed. It has a bucket of its own.
  bool tied(const Bucket& bucket) const { return tied(bucket.parameters.front()); }

 private:
  FlatLayout layout_of(const StageCut& cut, int shards) const;
  Shard shard_for(const std::vector<FlatLayout>& layouts) const;

  std::shared_ptr<const Graph> graph_;
  IdVector<StageId, StageCut> cuts_;
  IdVector<StageId, int> stage_rank_;
  int rank_;
  std::shared_ptr<ops::Device> device_;
  Options options_;
  ops::MemoryCounter memory_;
  std::vector<StageId> stages_;
  IdVector<ParameterId, std::vector<StageId>> users_;
  std::deque<ParameterStore> stores_;  // one per entry of stages_
  std::unique_ptr<Sharding> sharding_;
};

}  // namespace ppengine::engine
