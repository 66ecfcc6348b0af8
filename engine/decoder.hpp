// Decoder: one rank's stages over sequences that grow. New tokens go in; the keys and values of earlier ones stay in a cache. Each call is
// a run of a plan of forwards.
#pragma once

#include <span>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/stage/host_output.hpp>

namespace ppengine::engine {

class Decoder {
 public:
  static constexpr int first_free_tag = 2 * (schedules::max_stages + 1);  // below: the decoder's own messages
  struct Options {
    std::int64_t capacity = 0;   // tokens that the cache holds per sequence
    int groups = 1;              // sequences that go through the stages together; as many groups as ranks keep all of them busy
    std::int64_t sequences = 1;  // of a group
    std::int64_t pages = 0;      // of CompileOptions::cache_page tokens, for all sequences; 0: as many as they need, and theirs for good
    std::int64_t chunk = 0;      // the most tokens that a prefill has; 0: as many as the cache holds
    comm::Communicator* peers = nullptr;     // the ranks of the pipeline; may be null for one rank
    comm::Communicator* tensor = nullptr;    // the ranks that divide this rank's work with it; may be null for one
    std::vector<AdapterMask> adapters = {};  // of a graph with several (engine/graph/lora.hpp)
    bool cache_in_bytes = false;             // keys and values as bytes with a scale per head and token (on CPUs)
  };
  // Rank r must hold stages that follow those of rank r - 1. Compiles the step; prefills are compiled once per length,
  // in prepare() or when they first run. After that nothing is allocated or built.
  Decoder(ModelRank& model, const Options& options);

  // All ranks call the methods below with the same arguments in the same order; ids count on the first rank
  // of the pipeline only, and are given to all that divide its work.

  // Tokens of one sequence, from `position` on, go into the cache. Where output is wanted: that of the last token, as step() gives it.
  // whole: tokens that the sequence has with those that follow in the same prompt; 0: it ends with these.
  std::span<float> prefill(int group, std::int64_t sequence, std::int64_t position, std::int64_t length, bool output,
                           std::span<const std::int32_t> ids, std::int64_t whole = 0);
  void prepare(std::int64_t position, std::int64_t length, bool output);
  // As prefill(), with the output of every token [length, width].
  std::span<float> read(int group, std::int64_t sequence, std::int64_t position, std::int64_t length, std::span<const std::int32_t> ids,
                        std::int64_t whole = 0);
  // One more token of sequences of a group, from `first` on as many as there are positions, at these positions; compiled once per number. A
  // sequence that takes no part has any id and a position behind its tokens: what is written there is overwritten when the sequence gets so
  // far. On the last ranks: the graph's output [sequences, width] in f32, valid until the next call; empty elsewhere.
  std::span<float> step(int group, std::int64_t first, std::span<const std::int32_t> positions, std::span<const std::int32_t> ids);
  void prepare_step(std::int64_t sequences);
  // Several tokens of one sequence, at most so many, from `position` on, with the output of each [tokens, width]: what as many steps would
  // give.
  static constexpr std::int64_t most_verified = 8;
  std::span<float> verify(int group, std::int64_t sequence, std::int64_t position, std::int64_t length, std::span<const std::int32_t> ids,
                          std::int64_t whole = 0);
  // The adapter that a sequence has from now on; -1: none, as at the beginning.
  void set_adapter(int group, std::int64_t sequence, int adapter);
  // Keys and values lie in pages, of which the caller gives each sequence as many as its tokens need; sequences that begin alike may share
  // them. Page 0 belongs to nobody: what is written for tokens without a page goes there.
  void set_page(int group, std::int64_t sequence, std::int64_t index, std::int32_t page);
  void clear_pages(int group, std::int64_t sequence);

  const Options& options() const { return options_; }
  // Above 0: where a sequence gets more tokens than this, all of it must go in again (prefill), since rotary frequencies change.
  std::int64_t rotary_switch() const { return rotary_switch_; }
  // Bytes that all caches of this rank take.
  std::size_t cache_bytes() const { return pipeline_.cache_bytes(); }
  // Measures every instruction from now on (slower); null: no more.
  void set_profile(Profile* profile) { pipeline_.set_profile(profile); }

 private:
  // What goes through the stages in one call: so many tokens of so many sequences of a group, from `first` on.
  struct Call {
    Output output = Output::all;
    int group = 0;
    std::int64_t first = 0, sequences = 1, length = 1;
    std::int64_t row = 0;                                    // of Output::one_row
    std::span<const std::int32_t> positions = {}, ids = {};  // a position per sequence
    std::int64_t whole = 0;
  };
  MicrobatchRange range_of(const Call& call) const { return {call.group * options_.sequences + call.first, call.sequences, call.length}; }
  void prepare(const Call& call);
  std::span<float> prefill(Output output, int group, std::int64_t sequence, std::int64_t position, std::int64_t length,
                           std::span<const std::int32_t> ids, std::int64_t whole);
  std::span<float> run(const Call& call);
  // The inputs of a call.
  void fill(StageRuntime& stage, const Call& call);
  void find_rotary_rows(const Call& call);
  void make_masks(const Call& call);
  std::int64_t padded(std::int64_t position, std::int64_t length) const;
  std::span<std::int32_t> page_table(int group, std::int64_t sequence, std::int64_t count);

  ModelRank& model_;
  Options options_;
  Value input_;  // the graph's value that holds the tokens
  struct Mask {
    Value value;  // of the graph
    std::vector<int> columns;
    std::vector<float> rows;  // of the call under way
  };
  std::vector<Mask> masks_;
  std::vector<int> adapters_;        // by group and sequence
  std::vector<std::int32_t> pages_;  // by group, sequence and index
  std::vector<std::int32_t> ids_, rotary_rows_;
  std::int64_t rotary_switch_ = 0;
  HostOutput host_;
  std::span<float> output_;  // of the call under way
  StepInputs inputs_;
  Pipeline pipeline_;
};

}  // namespace ppengine::engine
