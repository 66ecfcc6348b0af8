// Generator: continues token sequences over a pipeline of ranks, several requests at once. Every rank makes one; the
// first rank is given the requests and hears of the tokens.
//
//   Generator generator(model, {.capacity = 256}, pipeline);
//   GenerationRequest request;
//   request.prompt = ids;
//   request.on_token = [](std::int32_t id) { return bool(std::cout << id << "\n"); };
//   if (pipeline.rank() == 0) generator.submit(std::move(request));
//   generator.run();  // on all ranks, until every request is finished
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/runs/sampler.hpp>

namespace ppengine::engine {
class ModelRank;
class Profile;
}  // namespace ppengine::engine

namespace ppengine::runs {

namespace constraint {
class TokenTrie;
}

enum class Finish { length, end_token, cancelled };
const char* finish_name(Finish finish);  // "length", "end_token", "cancelled"

struct Generated {
  std::vector<std::int32_t> ids;  // with the end token that finished it
  Finish finish = Finish::length;
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // of the prompt, that were in the cache already
  double prefill_seconds = 0;      // from the request's turn to its first token
  double decode_seconds = 0;       // from the first token to the last
  double prefill_tokens_per_second() const { return prefill_seconds > 0 ? double(prompt_tokens) / prefill_seconds : 0.0; }
  double decode_tokens_per_second() const { return ids.size() > 1 && decode_seconds > 0 ? double(ids.size() - 1) / decode_seconds : 0.0; }
};

struct GenerationRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t max_new_tokens = 128;  // fewer where the cache is full before
  SamplingOptions sampling;
  std::vector<std::int32_t> end_ids;  // any of them ends the request
  std::vector<TokenBias> bias{};      // added to logits
  std::string schema{};               // a JSON schema (constraint/json_schema.hpp) that the text must satisfy; empty: any text
  std::optional<std::uint64_t>
      random_stream{};  // what random numbers depend on beside the seed; the request's number where it is not given
  int adapter = -1;     // of GeneratorOptions::adapters; -1: none
  std::optional<std::uint64_t> owner{}, client{};  // requests of one owner, and owners of one client, share the places fairly with others
  // Called in the first rank's run(), in order. on_token: false ends the request with this token. Both may submit and
  // cancel.
  std::function<bool(std::int32_t id)> on_token{};
  std::function<bool(const Choice& choice)> on_choice{};  // in place of on_token: with log probabilities
  std::function<void(const Generated&)> on_finished{};
};

struct GeneratorOptions {
  std::int64_t capacity = 0;   // tokens that a request can reach, prompt included
  int groups = 1;              // microbatches in flight; as many as ranks keep all of them busy
  std::int64_t sequences = 1;  // requests of a group that go through the stages together
  std::int64_t pages = 0;      // of 64 tokens in the cache, for all requests: where there are fewer than they need, some make room and are
                               // resumed later; 0: as many as all places can need
  std::int64_t chunk = 512;    // tokens of a prompt that go through the stages at once
  bool interleaved = false;    // between two steps of a group goes one chunk of a prompt at most: long prompts do not hold others up
  // Pages of prompts stay until they are needed for others, and prompts that begin alike share them. In whole chunks, so that a result does
  // not depend on it: the same tokens are computed in the same pieces either way.
  bool reuse = false;
  bool cache_in_bytes = false;  // keys and values as bytes: a quarter of the memory, and results that differ a little (on CPUs)
  bool lookup = false;          // a sequence that runs alone in its group guesses from its own text what follows; tokens are the same
  engine::ModelRank* draft = nullptr;              // a small model that guesses instead, whole and on the first rank; null: none
  std::int64_t draft_capacity = 0;                 // tokens of a sequence that it can read
  std::vector<engine::AdapterMask> adapters = {};  // of a model with several (engine/graph/lora.hpp)
  const constraint::TokenTrie* tokens = nullptr;   // the tokenizer's, for requests with a schema; on the ranks that choose
  comm::Communicator* tensor = nullptr;            // ranks that divide this rank's stages with it; the first of them leads. Null: none
};

struct GeneratorStats {
  std::int64_t waiting = 0, running = 0, places = 0;
  std::uint64_t steps = 0, stepped_sequences = 0, prefilled_tokens = 0, reused_tokens = 0, guessed_tokens = 0, right_guesses = 0,
                drafted_tokens = 0, right_drafts = 0, preempted = 0;
  std::int64_t used_pages = 0, kept_pages = 0, pages = 0;  // of the cache: that sequences have, that prompts may begin with, all
};

class Generator {
 public:
  // `pipeline`: the ranks that hold the stages, in order.
  Generator(engine::ModelRank& model, const GeneratorOptions& options, comm::Communicator& pipeline);
  ~Generator();

  // Compiles for prompts of this length. Not needed, but then the first such prompt waits for it. All ranks call it.
  void prepare(std::int64_t prompt_length);
  void prepare_steps();  // the same for steps of any number of sequences

  // On the first rank, from any thread. Requests run in the order of submission, those of different owners in turn; the number that
  // identifies a request is also the one that its random numbers depend on. ConfigError for an empty prompt, one that does not fit, or ids
  // that the model does not know.
  std::uint64_t submit(GenerationRequest request);
  // A request that waits or runs ends before its next token; on_finished is called. Nothing happens for one that is
  // finished.
  void cancel(std::uint64_t number);

  // All ranks; returns when every request is finished. May be called again.
  void run();
  // As run(), but the first rank waits for more requests until stop() was called (from any thread, on the first rank).
  void serve();
  void stop();
  void stop_now();               // and everything that waits or runs is cancelled
  GeneratorStats stats() const;  // on the first rank, from any thread

  std::size_t cache_bytes() const;  // of this rank
  void set_profile(engine::Profile* profile);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::runs
