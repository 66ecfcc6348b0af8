// Choosing the next token from logits, and watching streamed text for stop strings.
#include <ppengine/runs/sampler.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/models/data/counter_random.hpp>

namespace ppengine::runs {
namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();

std::int32_t argmax(std::span<const float> logits) {
  constexpr std::size_t lanes = 16;  // so that it is computed in vectors
  float most[lanes];
  std::ranges::fill(most, lowest);
  std::size_t i = 0;
  for (; i + lanes <= logits.size(); i += lanes)
    for (std::size_t k = 0; k < lanes; ++k) most[k] = logits[i + k] > most[k] ? logits[i + k] : most[k];
  for (; i < logits.size(); ++i) most[0] = logits[i] > most[0] ? logits[i] : most[0];
  const float largest = std::ranges::max(most);
  return static_cast<std::int32_t>(largest > lowest ? std::ranges::find(logits, largest) - logits.begin() : 0);
}

// A list of which only the beginning is sorted, as far as somebody looks: of a large vocabulary the first few tokens nearly always decide.
template <class Before>
class SortedFront {
 public:
  SortedFront(std::vector<std::int32_t>& list, Before before) : list_(list), before_(before) {}
  std::int32_t operator[](std::size_t i) {
    while (i >= sorted_) {
      const std::size_t end = std::min(list_.size(), std::max<std::size_t>(64, 4 * sorted_));
      const auto at = [&](std::size_t k) { return list_.begin() + static_cast<std::ptrdiff_t>(k); };
      if (end < list_.size()) std::nth_element(at(sorted_), at(end), list_.end(), before_);
      std::sort(at(sorted_), at(end), before_);
      sorted_ = end;
    }
    return list_[i];
  }

 private:
  std::vector<std::int32_t>& list_;
  Before before_;
  std::size_t sorted_ = 0;
};

}  // namespace

void check(const SamplingOptions& options) {
  const auto refuse = [](const char* flag, double value, const char* range) {
    throw ConfigError(fmt::format("{} {}: must be {}", flag, value, range));
  };
  if (!(options.temperature >= 0 && options.temperature <= 1e6)) refuse("--temperature", options.temperature, "0 (greedy) or more");
  if (options.top_k < 0) refuse("--top-k", static_cast<double>(options.top_k), "0 (all) or more");
  if (!(options.top_p > 0 && options.top_p <= 1)) refuse("--top-p", options.top_p, "above 0 and at most 1");
  if (!(options.min_p >= 0 && options.min_p <= 1)) refuse("--min-p", options.min_p, "between 0 and 1");
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 1e6))
    refuse("--repetition-penalty", options.repetition_penalty, "above 0");
  if (!(std::abs(options.presence_penalty) <= 100)) refuse("presence_penalty", options.presence_penalty, "between -100 and 100");
  if (!(std::abs(options.frequency_penalty) <= 100)) refuse("frequency_penalty", options.frequency_penalty, "between -100 and 100");
  if (options.logprobs > Choice::most_alternatives) refuse("top_logprobs", options.logprobs, "at most 20");
}

Sampler::Sampler(const SamplingOptions& options, std::uint64_t request, std::vector<TokenBias> bias)
    : options_(options), bias_(std::move(bias)), request_(request) {
  check(options);
}

void Sampler::penalize(std::span<float> logits, std::span<const std::int32_t> generated) {
  for (const TokenBias& each : bias_)
    if (each.id >= 0 && static_cast<std::size_t>(each.id) < logits.size()) logits[static_cast<std::size_t>(each.id)] += each.bias;
  if (options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
  candidates_.assign(generated.begin(), generated.end());
  std::sort(candidates_.begin(), candidates_.end());
  for (auto first = candidates_.begin(); first != candidates_.end();) {
    const auto next = std::upper_bound(first, candidates_.end(), *first);
    if (*first >= 0 && static_cast<std::size_t>(*first) < logits.size())
      logits[static_cast<std::size_t>(*first)] -=
          static_cast<float>(options_.presence_penalty + options_.frequency_penalty * static_cast<double>(next - first));
    first = next;
  }
}

Choice Sampler::choose_with_logprobs(std::span<float> logits, std::span<const std::int32_t> history, std::size_t prompt, LogitMask* mask) {
  Choice choice;
  if (options_.logprobs < 0) {
    choice.token = choose(logits, history, prompt, mask);
    return choice;
  }
  float largest = lowest;
  for (float logit : logits) largest = std::max(largest, logit);
  double total = 0;
  for (float logit : logits) total += std::exp(double(logit) - largest);
  const double shift = largest + std::log(total);
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto count = static_cast<std::ptrdiff_t>(std::min<std::size_t>(static_cast<std::size_t>(options_.logprobs), order.size()));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  choice.alternatives = static_cast<std::int32_t>(count);
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    choice.ids[i] = order[static_cast<std::size_t>(i)];
    choice.logprobs[i] = static_cast<float>(logits[static_cast<std::size_t>(choice.ids[i])] - shift);
  }
  const std::vector<float> own(logits.begin(), logits.end());
  choice.token = choose(logits, history, prompt, mask);
  choice.logprob = static_cast<float>(own[static_cast<std::size_t>(choice.token)] - shift);
  return choice;
}

std::int32_t Sampler::choose(std::span<float> logits, std::span<const std::int32_t> history, std::size_t prompt, LogitMask* mask) {
  PPENGINE_ASSERT(!logits.empty());
  penalize(logits, history.subspan(std::min(prompt, history.size())));
  if (options_.repetition_penalty != 1.0) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    candidates_.assign(history.begin(), history.end());
    std::sort(candidates_.begin(), candidates_.end());
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
    for (std::int32_t id : candidates_)
      if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) {
        float& logit = logits[static_cast<std::size_t>(id)];
        logit = logit < 0 ? logit * penalty : logit / penalty;
      }
  }
  if (mask) mask->apply(logits);
  const std::int32_t best = argmax(logits);
  if (std::isnan(logits[static_cast<std::size_t>(best)]))
    throw Error(
        "the model's output is not a number (NaN) for every token: its weights are damaged, or were saved after a run that diverged");
  if (options_.temperature == 0 || options_.top_k == 1) return best;
  const float largest = logits[static_cast<std::size_t>(best)];
  if (!(largest > lowest) || std::isinf(largest)) return best;

  // Probabilities up to a factor, for all tokens; then the sets are narrowed by top-k, top-p and min-p in this order.
  const double scale = 1.0 / options_.temperature;
  probabilities_.resize(logits.size());
  candidates_.clear();
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double probability = logits[i] > lowest ? std::exp((logits[i] - largest) * scale) : 0.0;  // NaN counts as none
    probabilities_[i] = static_cast<float>(probability);
    total += probabilities_[i];
  }
  // What cannot survive top-p needs no sorting: below this, even all of them together are less than 1 - top_p.
  const bool narrow_k = options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < logits.size();
  const double floor = narrow_k ? 0 : (1 - options_.top_p) * total / static_cast<double>(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (probabilities_[i] > 0 && probabilities_[i] >= floor) candidates_.push_back(static_cast<std::int32_t>(i));
  const auto probability = [&](std::int32_t id) { return probabilities_[static_cast<std::size_t>(id)]; };
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return probability(a) != probability(b) ? probability(a) > probability(b) : a < b;
  };
  if (narrow_k && candidates_.size() > static_cast<std::size_t>(options_.top_k)) {
    const auto k = static_cast<std::size_t>(options_.top_k);
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k - 1), candidates_.end(), before);
    const float last = probability(candidates_[k - 1]);
    std::erase_if(candidates_, [&](std::int32_t id) { return probability(id) < last; });  // ties stay, as in transformers
    total = 0;
    for (std::int32_t id : candidates_) total += probability(id);
  }
  SortedFront sorted(candidates_, before);
  std::size_t kept = candidates_.size();
  if (options_.top_p < 1) {
    double sum = 0;
    std::size_t count = 0;
    while (count < kept && sum < options_.top_p * total) sum += probability(sorted[count++]);
    kept = std::max<std::size_t>(count, 1);
    total = sum > 0 ? sum : probability(best);
  }
  if (options_.min_p > 0) {
    double sum = 0;
    std::size_t count = 0;
    while (count < kept && probability(sorted[count]) >= options_.min_p * probability(best)) sum += probability(sorted[count++]);
    kept = count;  // the likeliest one stays always
    total = sum;
  }
  double point = models::random_uniform(options_.seed, request_, history.size()) * total;
  for (std::size_t i = 0; i < kept; ++i) {
    point -= probability(sorted[i]);
    if (point < 0) return sorted[i];
  }
  return sorted[kept - 1];
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty()) throw ConfigError("a stop string must not be empty");
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return "";
  held_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  std::size_t keep = 0;  // the longest end of the text that begins a stop string
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() { return stopped_ ? "" : std::exchange(held_, ""); }

}  // namespace ppengine::runs
