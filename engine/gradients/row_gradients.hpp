// The gradient of an embedding's table is zero but in the rows of the batch's tokens: only rows that some data-parallel rank has touched
// are summed over the ranks. The result is the same, bit for bit.
#pragma once

#include <vector>

#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/stage/readiness.hpp>

namespace ppengine::engine {

class RowGradients {
 public:
  // used: false where buckets are summed whole; then there is nothing here.
  RowGradients(ModelRank& model, bool used);

  // What this rank's gradients are made of: nothing yet; then sequences [begin, begin + count) of a batch too.
  void clear();
  void add(const Batch& batch, std::int64_t begin, std::int64_t count);
  bool empty() const { return tables_.empty(); }

  // The rows that any rank has touched. All ranks of the group call it, on the thread that reduces.
  void agree(comm::Communicator& data);
  // Whether so few of the bucket's rows were touched that they are better summed alone.
  bool few(StageId stage, std::size_t bucket) const;
  // Copies them out of the bucket's gradients, one after the other; count: elements. Valid until the next call.
  float* pack(StageId stage, std::size_t bucket, const float* gradients, std::size_t& count, ops::Stream& stream);
  // Puts them back: into the elements [begin, end) of the bucket, of which dst is the first.
  void unpack(StageId stage, std::size_t bucket, float* dst, std::size_t begin, std::size_t end, ops::Stream& stream) const;

 private:
  struct Table : RowTable {
    StageId stage;
    std::size_t bucket = 0;
    std::vector<char> touched;           // by row: in this rank's batches
    std::vector<std::int32_t> anywhere;  // rows that any rank touched, ascending
  };
  const Table* find(StageId stage, std::size_t bucket) const;

  ModelRank& model_;
  std::vector<Table> tables_;
  ops::Buffer rows_, packed_;
};

}  // namespace ppengine::engine
