// Counters and histograms of a server.
#include <ppengine/runs/serving/metrics.hpp>

#include <fmt/core.h>

namespace ppengine::runs::serving {
namespace {

template <class T>
std::string single(const char* name, const char* type, const char* help, T value) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
}

}  // namespace

void Histogram::add(double seconds) {
  std::size_t i = 0;
  while (i < bounds.size() && seconds > bounds[i]) ++i;
  ++counts_[i];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string out = fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds[i], below);
  }
  below += counts_.back();
  return out + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, below, sum_);
}

void Metrics::answered(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{route, status}];
}

void Metrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void Metrics::finished(double queue_seconds, const Generated& result) {
  const std::lock_guard lock(mutex_);
  queue_.add(queue_seconds);
  generation_.add(result.prefill_seconds + result.decode_seconds);
  prompt_tokens_ += static_cast<std::uint64_t>(result.prompt_tokens);
  generated_tokens_ += result.ids.size();
  ++finishes_[finish_name(result.finish)];
  if (result.ids.size() > 1) per_token_.add(result.decode_seconds / static_cast<double>(result.ids.size() - 1));
}

std::string Metrics::text(const GeneratorStats& now, std::size_t connections, std::size_t cache_bytes) const {
  const std::lock_guard lock(mutex_);
  std::string out = "# HELP ppengine_requests_total Requests answered, by route and status\n# TYPE ppengine_requests_total counter\n";
  for (const auto& [key, count] : answers_)
    out += fmt::format("ppengine_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  out += "# HELP ppengine_finished_total Sequences finished, by reason\n# TYPE ppengine_finished_total counter\n";
  for (const auto& [key, count] : finishes_) out += fmt::format("ppengine_finished_total{{reason=\"{}\"}} {}\n", key, count);
  out += single("ppengine_prompt_tokens_total", "counter", "Tokens of prompts", prompt_tokens_);
  out += single("ppengine_generated_tokens_total", "counter", "Tokens generated", generated_tokens_);
  out += single("ppengine_prefilled_tokens_total", "counter", "Tokens of prompts that were computed", now.prefilled_tokens);
  out += single("ppengine_reused_tokens_total", "counter", "Tokens of prompts whose keys and values were in the cache", now.reused_tokens);
  out += single("ppengine_guessed_tokens_total", "counter", "Tokens that --lookup has guessed", now.guessed_tokens);
  out += single("ppengine_right_guesses_total", "counter", "Guesses that were right", now.right_guesses);
  out += single("ppengine_drafted_tokens_total", "counter", "Tokens that the draft model (--draft) has guessed", now.drafted_tokens);
  out += single("ppengine_accepted_drafts_total", "counter", "Tokens of the draft model that were right", now.right_drafts);
  out += single("ppengine_steps_total", "counter", "Decoding steps", now.steps);
  out += single("ppengine_stepped_sequences_total", "counter", "Sequences of all decoding steps: over steps the mean batch",
                now.stepped_sequences);
  out += single("ppengine_running_sequences", "gauge", "Sequences that are generated now", now.running);
  out += single("ppengine_waiting_sequences", "gauge", "Sequences in the queue", now.waiting);
  out += single("ppengine_places", "gauge", "Sequences that fit into the cache", now.places);
  out +=
      single("ppengine_preempted_total", "counter", "Times that a sequence had to leave the cache, and was resumed later", now.preempted);
  out += single("ppengine_cache_pages", "gauge", "Pages of 64 tokens in the cache", now.pages);
  out += single("ppengine_cache_pages_used", "gauge", "Pages that running sequences have", now.used_pages);
  out += single("ppengine_cache_pages_kept", "gauge", "Pages that prompts may begin with", now.kept_pages);
  out += single("ppengine_cache_bytes", "gauge", "Bytes of keys and values on rank 0", cache_bytes);
  out += single("ppengine_connections", "gauge", "Connections of clients", connections);
  out += first_token_.text("ppengine_time_to_first_token_seconds", "From a request's arrival to its first token");
  out += per_token_.text("ppengine_time_per_token_seconds", "Mean time between two tokens of a sequence");
  out += generation_.text("ppengine_generation_seconds", "From a sequence's place in the cache to its last token");
  return out + queue_.text("ppengine_queue_seconds", "From a request's arrival to its place in the cache");
}

}  // namespace ppengine::runs::serving
