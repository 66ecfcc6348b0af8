// The KV cache of a generator, on its first rank: prompts go in chunk by chunk, sequences get pages as they grow and share those of equal
// beginnings, and where there are none left the youngest sequence makes room and comes back later.
#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/runs/generator/impl.hpp>

namespace ppengine::runs {

std::int64_t Generator::Impl::pages_for(std::int64_t tokens) const { return (tokens + pool.page_tokens() - 1) / pool.page_tokens(); }

void Generator::Impl::tell_page(const Place& place, std::size_t index) {
  issue({.kind = Job::page,
         .group = place.group,
         .sequence = place.sequence,
         .position = static_cast<std::int32_t>(index),
         .length = place.running->pages[index],
         .positions = {}},
        {}, {});
}

void Generator::Impl::add_page(Place& place, std::int32_t page) {
  place.running->pages.push_back(page);
  tell_page(place, place.running->pages.size() - 1);
}

void Generator::Impl::give_back_pages(Place& place, Running& running) {
  // The first ones last: they are the ones that others may begin with.
  for (std::size_t i = running.pages.size(); i-- > 0;) pool.release(running.pages[i]);
  running.pages.clear();
  issue({.kind = Job::clear, .group = place.group, .sequence = place.sequence, .positions = {}}, {}, {});
}

// The results of a prompt must not depend on what was there: chunks are computed whole, or taken over whole.
std::int64_t Generator::Impl::whole_chunks(std::int64_t tokens) const { return tokens / share_unit * share_unit; }

void Generator::Impl::share_pages(Place& place) {
  Running& one = *place.running;
  if (!options.reuse) return;
  const std::vector<std::int32_t> kept = pool.find(one.request.adapter, one.request.prompt);
  // Never the last token, which must give logits.
  const std::int64_t tokens =
      whole_chunks(std::min(static_cast<std::int64_t>(kept.size()) * pool.page_tokens(), one.result.prompt_tokens - 1));
  if (tokens <= one.filled) return;
  for (std::size_t i = one.pages.size(); static_cast<std::int64_t>(i) < pages_for(tokens); ++i) {
    pool.hold(kept[i]);
    add_page(place, kept[i]);
  }
  const std::int64_t more = tokens - one.filled;
  one.filled = tokens;
  if (one.result.ids.empty()) one.result.reused_tokens += more;
  const std::lock_guard lock(mutex);
  stats.reused_tokens += static_cast<std::uint64_t>(more);
}

void Generator::Impl::keep_pages(Place& place) {
  if (!options.reuse) return;
  Running& one = *place.running;
  // The slot of the last token that fits is written again by steps that this sequence takes no part in.
  const std::int64_t tokens = whole_chunks(std::min({one.filled, one.result.prompt_tokens, options.capacity - 1}));
  const std::vector<std::int32_t> computed = one.pages;
  pool.keep(one.request.adapter, std::span(one.request.prompt).first(static_cast<std::size_t>(tokens)),
            std::span(one.pages).first(static_cast<std::size_t>(pages_for(tokens))));
  for (std::size_t i = 0; i < computed.size(); ++i)
    if (one.pages[i] != computed[i]) tell_page(place, i);
}

bool Generator::Impl::make_room(Place& place, std::int64_t tokens) {
  while (static_cast<std::int64_t>(place.running->pages.size()) < pages_for(tokens)) {
    if (const std::int32_t page = pool.take(); page >= 0) {
      add_page(place, page);
      continue;
    }
    preempt(youngest());
    if (!place.running) return false;
  }
  return true;
}

// Not of a group that is on its way: its tokens have yet to come back.
Place& Generator::Impl::youngest() {
  Place* found = nullptr;
  for (int g = 0; g < options.groups; ++g) {
    if (std::ranges::find(in_flight, g) != in_flight.end()) continue;
    for (Place& place : groups[static_cast<std::size_t>(g)].places)
      if (place.running && (!found || place.running->number > found->running->number)) found = &place;
  }
  PPENGINE_ASSERT(found);
  return *found;
}

void Generator::Impl::preempt(Place& place) {
  Running running = std::move(*place.running);
  place.running.reset();
  give_back_pages(place, running);
  const std::lock_guard lock(mutex);
  --stats.running;
  ++stats.preempted;
  const std::uint64_t number = running.number;
  GenerationRequest request = std::move(running.request);
  waiting.push_front({number, std::move(request), std::move(running)});
}

bool Generator::Impl::fits_now(const Waiting& next) {
  std::int64_t tokens = static_cast<std::int64_t>(next.request.prompt.size()) + 1, shared = 0;
  if (next.progress) tokens += static_cast<std::int64_t>(next.progress->result.ids.size());
  if (options.reuse) shared = static_cast<std::int64_t>(pool.find(next.request.adapter, next.request.prompt).size());
  const bool any = std::ranges::any_of(groups, [](const Group& group) {
    return std::ranges::any_of(group.places, [](const Place& place) { return place.running.has_value(); });
  });
  return !any || pages_for(std::min(tokens, options.capacity)) - shared <= pool.available();
}

void Generator::Impl::prefill(Place& place) {
  Running& one = *place.running;
  const std::int64_t length = one.result.prompt_tokens, at = one.filled, generated = static_cast<std::int64_t>(one.result.ids.size());
  // What was generated before goes in as it did then, in rows of steps, so that a resumed sequence goes on with the same numbers.
  const bool again = at >= length;
  const std::int64_t count = again ? std::min(engine::Decoder::most_verified, one.to_fill - at) : std::min(options.chunk, length - at);
  if (!make_room(place, at + count)) return;
  Job job{again                                  ? Job::replay
          : at + count < length || generated > 0 ? Job::prefill
                                                 : Job::last_prefill,
          place.group,
          place.sequence,
          static_cast<std::int32_t>(at),
          static_cast<std::int32_t>(count),
          {}};
  job.whole = static_cast<std::int32_t>(length + generated);
  const std::vector<std::int32_t>& from = again ? one.result.ids : one.request.prompt;
  issue(job, {}, std::span(from).subspan(static_cast<std::size_t>(again ? at - length : at), static_cast<std::size_t>(count)));
  one.filled += count;
  if (!again) keep_pages(place);
  const std::lock_guard lock(mutex);
  stats.prefilled_tokens += static_cast<std::uint64_t>(count);
}

void Generator::Impl::begin_again(Place& place) {
  Running& one = *place.running;
  std::vector<std::int32_t> tokens = one.request.prompt;
  tokens.insert(tokens.end(), one.result.ids.begin(), one.result.ids.end());
  const auto length = static_cast<std::int64_t>(tokens.size());
  Job job{Job::prefill, place.group, place.sequence, 0, 0, {}};
  job.whole = static_cast<std::int32_t>(length);
  for (std::int64_t at = 0; at < length; at += options.chunk) {
    job.kind = at + options.chunk < length ? Job::prefill : Job::last_prefill;
    job.position = static_cast<std::int32_t>(at);
    job.length = static_cast<std::int32_t>(std::min(options.chunk, length - at));
    issue(job, {}, std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(job.length)));
  }
  one.begins = true;
}

bool Generator::Impl::prefill_some(int index) {
  Group& group = groups[static_cast<std::size_t>(index)];
  bool any = false;
  for (std::int64_t done = 0;;) {
    Place* oldest = nullptr;
    for (Place& place : group.places) {
      if (place.running && !place.running->is_filled() && is_cancelled(place.running->number)) release(place, Finish::cancelled);
      if (place.running && !place.running->is_filled() && (!oldest || place.running->number < oldest->running->number)) oldest = &place;
    }
    if (!oldest || (options.interleaved && done >= options.chunk / 2)) return any;
    share_pages(*oldest);
    const std::int64_t before = oldest->running->filled;
    prefill(*oldest);
    if (oldest->running) done += oldest->running->filled - before;
    any = true;
  }
}

}  // namespace ppengine::runs
