// Sharding: each data-parallel rank keeps a part of every stage's parameters, gradients and optimizer state. Stages are gathered into a few
// blocks before they are used, and their whole gradients live in others until they are reduced. Where such blocks would take more memory
// than all stages of the rank do, parameters or gradients are whole on every rank and each stage is its own block: what is saved then is
// the optimizer's state.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/weights/parameters.hpp>

namespace ppengine::engine {

class GradientSink;

struct ShardingOptions {
  comm::Communicator* data = nullptr;  // the ranks that share the stages
  int active_stages = 1;               // gathered at the same time, at most: from the plan
  int gradient_stages = 1;             // with whole gradients at the same time, at most: from the plan
  bool always_gather = false;          // into blocks, even where they take more memory than whole stages
};

// Not thread-safe: one rank's pipelines use it by turns.
class Sharding {
 public:
  Sharding(const ShardingOptions& options, std::vector<StageId> stages, std::vector<ParameterStore*> stores,
           const std::shared_ptr<ops::Device>& device, bool training, ops::MemoryCounter& counter);

  comm::Communicator& data() const { return data_; }

  // Starts to gather the stage's parameters; all ranks call it in the same order.
  void unshard(StageId stage, ops::Stream& after);
  // Work submitted to the stream from now on sees them. Error where the plan never gathered the stage.
  void wait(StageId stage, ops::Stream& stream);
  std::byte* parameters(StageId stage) const;  // null: not gathered
  // The stage's block may be used for another one; what was submitted to the stream is done with it first.
  void reshard(StageId stage);

  // The whole gradient of a stage, from its first weight gradient until it has been reduced. Takes a free block; where there is none,
  // the one that has been released first, when `sink` reads it no more.
  float* begin_gradients(StageId stage, ops::Stream& stream, GradientSink* sink);
  float* gradients(StageId stage) const;  // null: none
  // All of it has been handed to the reducer.
  void end_gradients(StageId stage);

  // Gradients stay whole between two backward passes, and add up there.
  bool whole_gradients() const { return whole_gradients_; }

  // A whole flat buffer of the stage from all ranks' parts of it (values, gradients, optimizer state), for files; stays until the next
  // call. All ranks call it, between steps; what it gives may lie where the gradients were.
  const float* gather(StageId stage, const float* local, ops::Stream& stream);

 private:
  struct Block {
    StageId stage;
    bool free = true;  // whoever wants it may have it, after waiting
    std::vector<comm::Pending> gathering;
  };
  ParameterStore& store(StageId stage) const;
  // A bucket of a whole buffer from this rank's part of it.
  comm::Pending gather_bucket(const Bucket& bucket, const void* part, void* whole, ops::Type type, ops::Stream& after);
  Block* find(std::vector<Block>& blocks, StageId stage) const;

  comm::Communicator& data_;
  std::vector<StageId> stages_;
  std::vector<ParameterStore*> stores_;
  bool whole_weights_ = false, whole_gradients_ = false;
  std::shared_ptr<ops::Device> device_;
  ops::MemoryCounter& counter_;
  std::size_t parameter_stride_ = 0, gradient_stride_ = 0;  // bytes
  ops::Buffer file_memory_;                                 // gather(): values with frozen ones among them
  ops::Buffer parameter_memory_, gradient_memory_;
  mutable std::vector<Block> parameter_blocks_, gradient_blocks_;
  std::vector<int> released_;  // gradient blocks, in the order of their release
};

}  // namespace ppengine::engine
