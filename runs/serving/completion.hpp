// A completion under way: one request of a client, which may ask for several sequences, streamed or whole.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ppengine/models/tokenizer/tokenizer.hpp>
#include <ppengine/runs/generator.hpp>
#include <ppengine/runs/serving/api.hpp>
#include <ppengine/runs/serving/http.hpp>
#include <ppengine/runs/serving/metrics.hpp>
#include <ppengine/runs/serving/tool_calls.hpp>

namespace ppengine::runs::serving {

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  struct Setup {
    CompletionRequest request;
    std::string model;
    int adapter = -1;
    std::optional<models::Tokenizer> tokenizer;
    std::vector<Ids> prompts;
    std::vector<std::int32_t> end_ids;
    std::int64_t max_new_tokens = 0;
    std::uint64_t client = 0;
    Metrics* metrics = nullptr;
    std::function<void(int status)> on_answered;  // once
  };
  Completion(Setup setup, std::shared_ptr<Reply> reply);

  std::size_t sequences() const { return states_.size(); }
  // Gives all sequences to the generator.
  void start(Generator& generator);
  void fail(const ApiError& error);  // an answer, where none was given yet

 private:
  // Text and log probabilities of one sequence.
  struct State {
    std::size_t prompt = 0;
    std::optional<models::StreamDecoder> decoder;
    StopMatcher stops, calls{{std::string(call_mark)}};
    std::string text;
    std::size_t seen = 0;  // bytes of the text that were shown as text
    std::vector<ToolCall> called;
    Json tokens = Json::array(), unsent = Json::array();  // log probabilities: all, and those not streamed yet
    std::size_t offset = 0;                               // of the next token's text, where they are streamed
    double logprob = 0;                                   // of all its tokens
    Generated result;
    bool begun = false, streamed = false;
    explicit State(const std::vector<std::string>& stop_strings) : stops(stop_strings) {}
  };
  using Clock = std::chrono::steady_clock;

  bool choose(std::size_t index, const Choice& choice);
  void finish(std::size_t index, const Generated& result);
  void complete();
  std::string shown(State& state, const std::string& piece);
  void stream(std::size_t index, const std::string& piece, const char* finish_reason);
  Json delta(std::size_t index, const std::string& piece, bool has_tokens, bool finished) const;
  std::string call_id(std::size_t index) const;
  Json token_json(std::int32_t id, float logprob) const;
  // offset: of the first one's text; that behind the last one comes back.
  Json logprobs_json(const Json& tokens, std::size_t& offset) const;
  Json choice_json(std::size_t index, std::size_t shown_as) const;
  std::vector<std::size_t> best() const;
  Json usage() const;
  Json envelope(const char* object) const;
  void event(const Json& data);
  const char* reason_of(const State& state) const;
  std::string token_bytes(std::int32_t id) const;

  Setup setup_;
  std::shared_ptr<Reply> reply_;
  std::string id_;
  std::int64_t created_;
  Clock::time_point arrived_ = Clock::now();
  std::vector<State> states_;
  std::size_t left_;
  std::mutex mutex_;   // the generator's thread and whoever ends all that is under way
  bool over_ = false;  // an answer was given, or given up
};

}  // namespace ppengine::runs::serving
