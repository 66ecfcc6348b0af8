// Layouts of data-parallel and sharded ranks, for tests that train on them as threads.
#pragma once

#include <functional>

#include "support.hpp"

namespace ppengine::engine::test {

struct Setup {
  const char* schedule = "1f1b";
  int pipeline = 1, data = 1, tensor = 1, stages = 0, microbatches = 2;
  enum Shard { none, least, parts } shard = none;  // least: whatever takes less memory; parts: gathered into blocks in any case
};

inline std::ostream& operator<<(std::ostream& out, const Setup& l) {
  constexpr const char* sharded[] = {", ", " sharded, ", " sharded into parts, "};
  return out << l.schedule << ", pp " << l.pipeline << " dp " << l.data << " tp " << l.tensor << sharded[l.shard] << l.stages << " stages";
}

inline TrainerOptions options(const Setup& layout) {
  TrainerOptions result;
  result.parallel.schedule = layout.schedule;
  result.parallel.pipeline = layout.pipeline;
  result.parallel.data = layout.data;
  result.parallel.tensor = layout.tensor;
  result.parallel.stages = layout.stages;
  result.parallel.microbatches = layout.microbatches;
  result.parallel.shard = layout.shard != Setup::none;
  result.parallel.always_gather = layout.shard == Setup::parts;
  result.parallel.device = shared_device();
  result.buckets.caps = {1000, 6000};  // several buckets a stage
  result.seed = 3;
  result.optimizer.epsilon = 1e-2;  // see test_training.cpp; divided linears round in another order
  return result;
}

inline void on_ranks(const TrainerOptions& how, const std::function<void(comm::Communicator&)>& body) {
  on_ranks(how.parallel.mesh().size(), body);
}

}  // namespace ppengine::engine::test
