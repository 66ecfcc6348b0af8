// Decoder: one rank's stages over sequences that grow. New tokens go in; the keys and values of earlier ones stay in a
// cache.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/stage/block_pool.hpp>
#include <ppengine/engine/stage/compiled_stage.hpp>

namespace ppengine::engine {

class Decoder {
 public:
  static constexpr int first_free_tag = 1024;  // below: the decoder's own messages
  struct Options {
    int64_t capacity = 0;   // tokens that the cache holds per sequence
    int groups = 1;         // sequences that go through the stages together; as many groups as ranks keep all of them busy
    int64_t sequences = 1;  // of a group
    int64_t pages = 0;      // of CompileOptions::cache_page tokens, for all sequences; 0: as many as they need, and theirs for good
    int64_t chunk = 0;      // the most tokens that a prefill has; 0: as many as the cache holds
    comm::Communicator* peers = nullptr;     // the ranks of the pipeline; may be null for one rank
    comm::Communicator* tensor = nullptr;    // the ranks that divide this rank's work with it; may be null for one
    std::vector<AdapterMask> adapters = {};  // of a graph with several (engine/graph/lora.hpp)
  };
  // Rank r must hold stages that follow those of rank r - 1. Compiles the step; prefills are compiled once per length,
  // in prepare() or when they first run. After that nothing is allocated or built.
  Decoder(ModelRank& model, const Options& options);

  // All ranks call the methods below with the same arguments in the same order; ids count on the first rank
  // of the pipeline only, and are given to all that divide its work.

  // Tokens of one sequence, from `position` on, go into the cache. Where output is wanted: that of the last token, as step() gives it.
  // whole: tokens that the sequence has with those that follow in the same prompt; 0: it ends with these.
  std::span<float> prefill(int group, int64_t sequence, int64_t position, int64_t length, bool output, std::span<const int32_t> ids,
                           int64_t whole = 0);
  void prepare(int64_t position, int64_t length, bool output);
  // One more token of sequences of a group, from `first` on as many as there are positions, at these positions; compiled once per number. A
  // sequence that takes no part has any id and a position behind its tokens: what is written there is overwritten when the sequence gets so
  // far. On the last ranks: the graph's output [sequences, width] in f32, valid until the next call; empty elsewhere.
  std::span<float> step(int group, int64_t first, std::span<const int32_t> positions, std::span<const int32_t> ids);
  void prepare_step(int64_t sequences);
  // Several tokens of one sequence, at most so many, from `position` on, with the output of each [tokens, width]: what as many steps would
  // give.
  static constexpr int64_t most_verified = 8;
  std::span<float> verify(int group, int64_t sequence, int64_t position, int64_t length, std::span<const int32_t> ids, int64_t whole = 0);
  // The adapter that a sequence has from now on; -1: none, as at the beginning.
  void set_adapter(int group, int64_t sequence, int adapter);
  // Keys and values lie in pages, of which the caller gives each sequence as many as its tokens need; sequences that begin alike may share
  // them. Page 0 belongs to nobody: what is written for tokens without a page goes there.
  void set_page(int group, int64_t sequence, int64_t index, int32_t page);
  void clear_pages(int group, int64_t sequence);

  const Options& options() const { return options_; }
  // Above 0: where a sequence gets more tokens than this, all of it must go in again (prefill), since rotary frequencies change.
  int64_t rotary_switch() const { return rotary_switch_; }
  // Bytes that all caches of this rank take.
  size_t cache_bytes() const;
  // Measures every instruction from now on (slower); null: no more.
  void set_profile(Profile* profile) { profile_ = profile; }

 private:
  // One stage, compiled for one shape.
  struct Shape {
    std::unique_ptr<CompiledStage> stage;
    BlockPool blocks;
    ops::Buffer inputs;
  };
  using Shapes = std::vector<Shape>;  // by local stage
  enum class Use { step, prefill, last_prefill, verify };
  Shapes& shapes(Use use, int64_t length);
  int64_t padded(int64_t position, int64_t length) const;
  // The sequences of a group from `first_sequence` on; gives the output, of `output_row` where the shape has it of one row.
  std::span<float> run(Shapes& shapes, int group, int64_t first_sequence, int64_t output_row, std::span<const int32_t> positions,
                       std::span<const int32_t> ids, int64_t whole = 0);
  void give_rotary_rows(void* to, std::span<const int32_t> positions, int64_t whole);
  std::span<int32_t> page_table(int group, int64_t sequence, int64_t count);
  void make_masks(const CompileOptions& shape, int group, int64_t first_sequence);
  BufferId output_of(const CompiledStage& stage, StageId index) const;
  std::span<float> read_output(const CompiledStage& stage, const Run& run, BufferId output);

  ModelRank& model_;
  Options options_;
  Value input_;                                       // the graph's value that holds the tokens
  std::map<std::pair<Use, int64_t>, Shapes> shapes_;  // by use and length; of steps the sequences
  std::vector<ops::Buffer> caches_;                   // by local stage
  ops::Buffer workspace_, wide_;
  struct Mask {
    Value value;  // of the graph
    std::vector<int> columns;
    std::vector<float> rows;  // of the run under way
  };
  std::vector<Mask> masks_;
  std::vector<int> adapters_;   // by group and sequence
  std::vector<int32_t> pages_;  // by group, sequence and index
  std::vector<int32_t> ids_, rotary_rows_;
  int64_t rotary_switch_ = 0;
  std::vector<float> output_;
  Profile* profile_ = nullptr;
  ops::Stream stream_;  // last: its destructor waits for work that uses the memory above
};

}  // namespace ppengine::engine
