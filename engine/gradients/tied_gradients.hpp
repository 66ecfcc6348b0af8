// Weights that several stages use (a tied embedding and head): their gradients are summed once all stages have theirs.
#pragma once

#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/model_rank.hpp>

namespace ppengine::engine {

class TiedGradients {
 public:
  TiedGradients(ModelRank& model, comm::Communicator& pipeline);

  // The gradients go to the first stage that uses the weight; it sums them in the order of stages and gives the sum to the others, so
  // that all copies stay equal bit for bit. Every rank of the pipeline calls it.
  void sum(ops::Stream& stream);

 private:
  struct Tied {
    ParameterId parameter;
    std::size_t count;            // of what this rank holds of it
    std::vector<StageId> stages;  // ascending; the first one sums
    int tag() const { return (1 << 28) + parameter.number(); }
    std::size_t bytes() const { return count * sizeof(float); }
  };
  const Bucket& bucket_of(const Tied& tied, StageId stage) const;
  float* gradient(const Tied& tied, StageId stage) const;
  int rank_of(StageId stage) const { return model_.stage_rank()[stage]; }
  void sum_here(ops::Stream& stream, const Tied& tied);
  void hand_over(ops::Stream& stream, const Tied& tied);

  ModelRank& model_;
  comm::Communicator& pipeline_;
  std::vector<Tied> tied_;
  ops::Buffer incoming_;  // one gradient of another rank
};

}  // namespace ppengine::engine
