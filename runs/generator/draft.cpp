// A small model that guesses what a larger one goes on with.
#include <ppengine/runs/generator/draft.hpp>

#include <algorithm>

namespace ppengine::runs {

Draft::Draft(engine::ModelRank& model, std::int64_t capacity, std::int64_t places)
    : decoder_(model, {.capacity = capacity, .sequences = places, .chunk = std::min(chunk, capacity)}),
      vocabulary_(model.graph().values()[model.graph().output_value()].width),
      cached_(static_cast<std::size_t>(places)) {
  decoder_.prepare_step(1);
}

std::span<float> Draft::feed(std::size_t place, std::span<const std::int32_t> text) {
  std::vector<std::int32_t>& there = cached_[place].tokens;
  const auto size = static_cast<std::int64_t>(text.size()), sequence = static_cast<std::int64_t>(place);
  // The last token must give logits, so it goes in again.
  std::int64_t at = std::min<std::int64_t>(std::ranges::mismatch(there, text).in2 - text.begin(), size - 1);
  there.assign(text.begin(), text.end());
  if (at == size - 1) {
    const auto position = static_cast<std::int32_t>(at);
    return decoder_.step(0, sequence, {&position, 1}, text.last(1));
  }
  std::span<float> logits;
  for (; at < size; at += decoder_.options().chunk) {
    const std::int64_t count = std::min(decoder_.options().chunk, size - at);
    logits = decoder_.prefill(0, sequence, at, count, at + count == size,
                              text.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)), size);
  }
  return logits;
}

std::vector<std::int32_t> Draft::guess(std::size_t place, std::uint64_t number, const GenerationRequest& request,
                                       std::span<const std::int32_t> generated, std::int64_t most) {
  Cached& cached = cached_[place];
  if (cached.number != number) cached = {number, {}};
  std::vector<std::int32_t> text = request.prompt, found;
  text.insert(text.end(), generated.begin(), generated.end());
  const auto knows = [&](std::int32_t id) { return id < vocabulary_; };
  most = std::min(most, decoder_.options().capacity - static_cast<std::int64_t>(text.size()));
  if (most < 1 || !std::ranges::all_of(text, knows)) return {};
  SamplingOptions sampling = request.sampling;
  sampling.logprobs = -1;
  Sampler sampler(sampling, request.random_stream.value_or(number), request.bias);
  while (static_cast<std::int64_t>(found.size()) < most) {
    found.push_back(sampler.choose(feed(place, text), text, request.prompt.size()));
    text.push_back(found.back());
    if (std::ranges::find(request.end_ids, found.back()) != request.end_ids.end()) break;
  }
  return found;
}

}  // namespace ppengine::runs
