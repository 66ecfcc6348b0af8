// Parameters as whole tensors where ranks have parts of them, sharded or tensor-parallel: for optimizers that look at whole matrices.
#pragma once

#include <span>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/model_rank.hpp>

namespace ppengine::engine {

class WholeParameters {
 public:
  // tensor: the ranks that divide parameters; null where none does.
  WholeParameters(ModelRank& model, comm::Communicator* tensor);

  // Whether ranks wait for each other in open and whole: then all that share a stage call them for the same parameters, in one order.
  bool meets_ranks() const { return model_.sharding() || split_; }

  // The whole tensor: as it is stored, or where tensor-parallel ranks divide it as the file has it. A vector has one row.
  struct Form {
    std::int64_t rows = 1, columns = 1;
    bool transposed = false;  // against the file
    std::int64_t count() const { return rows * columns; }
  };
  Form form(StageId stage, ParameterId id) const;

  // Elements of a bucket, one for each of its parameters' that this rank has, in their order (gradients, say). They stay where they are
  // until the next call.
  void open(ops::Stream& stream, StageId stage, std::size_t bucket, const float* part);
  // A parameter of that bucket, until the next call.
  const float* whole(ops::Stream& stream, ParameterId id);
  // values <- values * factor + change, of what this rank has of a whole tensor.
  void add(ops::Stream& stream, StageId stage, ParameterId id, const float* change, double factor);
  // The same of a tensor on the host to elements of the stage's flat buffer on the host.
  void put(StageId stage, ParameterId id, std::span<const float> whole, std::span<float> flat) const;
  // Where this rank's elements of a parameter are.
  const ParameterPiece* piece_of(StageId stage, ParameterId id) const;  // null: other ranks have all of it

  // Sums over the ranks of numbers that each has for its elements of the opened bucket's parameters, one number each.
  void sum(std::vector<double>& by_parameter);

 private:
  // What a tensor-parallel rank has of a whole tensor, as it is stored.
  std::vector<float> part(ParameterId id, const ParameterRange& range, std::span<const float> whole) const;
  const ParameterInfo& info(ParameterId id) const { return model_.graph().parameters()[id]; }

  ModelRank& model_;
  comm::Communicator* tensor_;
  bool split_ = false;
  std::size_t largest_part_ = 0;  // of tensor-parallel ranks, in elements
  StageId stage_ = {};
  const Bucket* bucket_ = nullptr;
  const float* opened_ = nullptr;  // the bucket's elements, of all sharded ranks
  ops::Buffer gathered_, part_, parts_, whole_;
  std::vector<float> host_, host_whole_;
};

}  // namespace ppengine::engine
