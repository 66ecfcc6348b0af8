// Speculative decoding: a sequence that runs alone in its group guesses what follows, from its own text or by a draft model, and lets
// several tokens go through the stages together. They are chosen as without guesses, so the tokens are the same.
#include <ppengine/base/error.hpp>
#include <ppengine/runs/generator/impl.hpp>

namespace ppengine::runs {

bool Generator::Impl::guesses() const { return (options.lookup || draft) && decoder.rotary_switch() == 0; }

// The text itself first, which costs nothing.
std::vector<std::int32_t> Generator::Impl::guess(int index, std::size_t sequence, bool& drafted) {
  Running& one = *groups[static_cast<std::size_t>(index)].places[sequence].running;
  const std::int64_t room = std::min(options.capacity - one.position, one.limit - static_cast<std::int64_t>(one.result.ids.size())) - 1;
  std::vector<std::int32_t> found;
  if (const std::int64_t most = options.lookup ? std::min(room, one.lookup_pace.length()) : 0; most > 0)
    found = look_up(one.request.prompt, one.result.ids, most);
  drafted = found.empty() && draft && one.request.schema.empty();
  if (!drafted) return found;
  const std::int64_t most = std::min(room, one.draft_pace.length());
  const auto place = static_cast<std::size_t>(index) * static_cast<std::size_t>(options.sequences) + sequence;
  return most > 0 ? draft->guess(place, one.number, one.request, one.result.ids, most) : found;
}

bool Generator::Impl::launch_guess(int index, std::size_t sequence) {
  Group& group = groups[static_cast<std::size_t>(index)];
  Place& place = group.places[sequence];
  Running& one = *place.running;
  if (!guesses() || one.begins) return false;
  bool drafted = false;
  std::vector<std::int32_t> tokens = guess(index, sequence, drafted);
  if (tokens.empty()) return false;
  const std::size_t guessed = tokens.size();
  if (!make_room(place, one.position + static_cast<std::int64_t>(guessed) + 1)) return true;
  tokens.insert(tokens.begin(), one.token);
  if (!chain.is_last()) group.message = chain.receive_choices(group.verified);
  issue({.kind = Job::verify,
         .group = index,
         .sequence = static_cast<std::int32_t>(sequence),
         .position = one.position,
         .length = static_cast<std::int32_t>(tokens.size()),
         .positions = {},
         .tokens = tokens},
        {}, tokens);
  group.guess = {sequence, guessed, drafted};
  in_flight.push_back(index);
  return true;
}

void Generator::Impl::collect_guess(Group& group) {
  const auto [sequence, guessed, drafted] = *std::exchange(group.guess, {});
  Place& place = group.places[sequence];
  Running& one = *place.running;
  const auto chosen = std::span(group.verified.begin(), std::ranges::find(group.verified, -1, &Choice::token));
  const std::size_t right = chosen.size() - 1;
  (drafted ? one.draft_pace : one.lookup_pace).judge(guessed, right);
  {
    const std::lock_guard lock(mutex);
    ++stats.steps;
    ++stats.stepped_sequences;
    (drafted ? stats.drafted_tokens : stats.guessed_tokens) += guessed;
    (drafted ? stats.right_drafts : stats.right_guesses) += right;
  }
  if (is_cancelled(one.number)) return release(place, Finish::cancelled);
  const auto now = Clock::now();
  for (const Choice& choice : chosen)
    if (!take(place, choice, now)) return;
}

}  // namespace ppengine::runs
