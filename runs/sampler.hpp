// Choosing the next token from logits. Random numbers are a function of (seed, request, position), so that the result
// does not depend on batching, on the split, or on what else is running.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine::runs {

struct SamplingOptions {
  double temperature = 0.0;  // 0: greedy
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  std::uint64_t seed = 0;
  double presence_penalty = 0.0;   // taken from the logits of tokens that were generated (OpenAI's)
  double frequency_penalty = 0.0;  // the same, as often as they were
  std::int32_t logprobs = -1;      // of the chosen token and of so many likeliest ones; below 0: none
};

struct TokenBias {
  std::int32_t id = 0;
  float bias = 0;
};

// A token that was chosen. Log probabilities are the model's own, before anything changes the logits.
struct Choice {
  static constexpr int most_alternatives = 20;
  std::int32_t token = 0;
  float logprob = 0;
  std::int32_t alternatives = 0;
  std::int32_t ids[most_alternatives] = {};
  float logprobs[most_alternatives] = {};
  std::int32_t complete = 0;  // not 0: nothing can follow, by the request's schema
};

// Takes tokens out, after everything else that changes logits.
struct LogitMask {
  virtual ~LogitMask() = default;
  virtual void apply(std::span<float> logits) = 0;
};

// ConfigError for values out of range.
void check(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options, std::uint64_t request = 0, std::vector<TokenBias> bias = {});

  // The token after history (prompt and what was generated so far). Changes logits in place. In Hugging Face's order:
  // repetition penalty, temperature, top-k, top-p, min-p; OpenAI's bias and penalties come before. Of equal logits the smaller id
  // wins. `prompt`: how much of the history is the prompt, which presence and frequency do not count.
  std::int32_t choose(std::span<float> logits, std::span<const std::int32_t> history, std::size_t prompt = 0, LogitMask* mask = nullptr);
  Choice choose_with_logprobs(std::span<float> logits, std::span<const std::int32_t> history, std::size_t prompt,
                              LogitMask* mask = nullptr);

 private:
  void penalize(std::span<float> logits, std::span<const std::int32_t> generated);
  SamplingOptions options_;
  std::vector<TokenBias> bias_;
  std::uint64_t request_;
  std::vector<std::int32_t> candidates_;
  std::vector<float> probabilities_;
};

// Watches streamed text for stop strings, and holds back what may become one.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that may be shown now. After a stop string was found nothing more comes; the stop string is not shown.
  std::string push(std::string_view text);
  std::string finish();  // what was held back, at the end of the text
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace ppengine::runs
