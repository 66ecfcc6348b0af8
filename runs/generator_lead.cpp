// The first rank of a generator: which requests have a place, and what runs next.
#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/runs/detail/generator_impl.hpp>

namespace ppengine::runs {
namespace {

double seconds_between(Clock::time_point begin, Clock::time_point end) { return std::chrono::duration<double>(end - begin).count(); }

}  // namespace

void Generator::Impl::issue(const Job& job, const Beginning& beginning, std::span<const std::int32_t> tokens) {
  chain.pass_on(job, beginning);
  carry_out(job, beginning, tokens);
}

bool Generator::Impl::is_cancelled(std::uint64_t number) {
  const std::lock_guard lock(mutex);
  return cancelled.contains(number);
}

void Generator::Impl::finish(std::uint64_t number, const GenerationRequest& request, const Generated& result) {
  {
    const std::lock_guard lock(mutex);
    cancelled.erase(number);
    unfinished.erase(number);
  }
  if (request.on_finished) request.on_finished(result);
}

std::int64_t Generator::Impl::reusable(const Place& place, const GenerationRequest& request) const {
  const bool runs = place.running.has_value();
  if (!options.reuse || request.adapter != (runs ? place.running->request.adapter : place.kept_adapter)) return 0;
  const std::vector<std::int32_t>&cached = runs ? place.running->request.prompt : place.kept, &prompt = request.prompt;
  const auto same = std::ranges::mismatch(cached, prompt).in2 - prompt.begin();
  return std::min<std::int64_t>(same, static_cast<std::int64_t>(prompt.size()) - 1) / options.chunk * options.chunk;
}

Place* Generator::Impl::find_place(const GenerationRequest& request, int& group_of, std::size_t& sequence_of) {
  Place* best = nullptr;
  std::array<std::int64_t, 4> best_score{};
  for (int g = 0; g < options.groups; ++g) {
    auto& places = groups[static_cast<std::size_t>(g)].places;
    std::int64_t low = -1, high = -1, load = 0;
    for (std::size_t i = 0; i < places.size(); ++i)
      if (places[i].running) {
        if (low < 0) low = static_cast<std::int64_t>(i);
        high = static_cast<std::int64_t>(i);
        ++load;
      }
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].running) continue;
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t span = low < 0 ? 1 : std::max(high, at) - std::min(low, at) + 1;
      const std::array<std::int64_t, 4> score{-reusable(places[i], request), load, span, static_cast<std::int64_t>(places[i].used)};
      if (best && score >= best_score) continue;
      best = &places[i], best_score = score, group_of = g, sequence_of = i;
    }
  }
  return best;
}

std::deque<Waiting>::iterator Generator::Impl::next_in_turn() {
  std::map<std::uint64_t, std::int64_t> running;
  for (const Group& group : groups)
    for (const Place& place : group.places)
      if (place.running && place.running->request.owner) ++running[*place.running->request.owner];
  const auto has = [&](const Waiting& each) {
    const auto found = each.request.owner ? running.find(*each.request.owner) : running.end();
    return found == running.end() ? 0 : found->second;
  };
  return std::ranges::min_element(waiting, {}, has);  // of equal ones the first
}

void Generator::Impl::admit() {
  for (;;) {
    std::optional<Waiting> next;
    int group = 0;
    std::size_t sequence = 0;
    Place* place = nullptr;
    bool was_cancelled = false;
    {
      const std::lock_guard lock(mutex);
      auto from = std::ranges::find_if(waiting, [&](const Waiting& each) { return cancelled.contains(each.number); });
      was_cancelled = from != waiting.end();
      if (!was_cancelled && !waiting.empty()) {
        const auto fair = next_in_turn();
        place = find_place(fair->request, group, sequence);
        if (place) from = fair;
      }
      if (from == waiting.end()) return;
      next = std::move(*from);
      waiting.erase(from);
    }
    if (was_cancelled)
      finish(next->number, next->request, {.ids = {}, .finish = Finish::cancelled});
    else
      begin(*place, group, sequence, std::move(*next));
  }
}

void Generator::Impl::begin(Place& place, int group, std::size_t sequence, Waiting from) {
  Running running;
  running.number = from.number;
  running.request = std::move(from.request);
  running.begun = Clock::now();
  const std::vector<std::int32_t>& prompt = running.request.prompt;
  const auto length = static_cast<std::int64_t>(prompt.size());
  running.result.prompt_tokens = length;
  running.filled = running.result.reused_tokens = reusable(place, running.request);
  // The last token that is chosen needs no place in the cache.
  running.limit = std::min(running.request.max_new_tokens, options.capacity - length + 1);
  running.position = static_cast<std::int32_t>(length - 1);
  Beginning beginning{.sampling = running.request.sampling,
                      .number = running.request.random_stream.value_or(running.number),
                      .prompt = prompt,
                      .bias = running.request.bias,
                      .schema = running.request.schema,
                      .end_ids = running.request.end_ids,
                      .most_tokens = running.limit};
  issue({.kind = Job::begin,
         .group = group,
         .sequence = static_cast<std::int32_t>(sequence),
         .positions = {},
         .whole = running.request.adapter},
        beginning, {});
  place.kept.clear();
  {
    const std::lock_guard lock(mutex);
    stats.reused_tokens += static_cast<std::uint64_t>(running.filled);
    ++stats.running;
  }
  place.running = std::move(running);
}

void Generator::Impl::copy_shared(int group, std::size_t sequence, Running& running) {
  if (!options.reuse) return;
  std::int64_t most = running.filled;
  Job job{.kind = Job::copy, .group = group, .sequence = static_cast<std::int32_t>(sequence), .positions = {}};
  for (int g = 0; g < options.groups; ++g) {
    const auto& places = groups[static_cast<std::size_t>(g)].places;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::optional<Running>& other = places[i].running;
      if (other && other->number == running.number) continue;
      const std::int64_t there = other ? other->filled / options.chunk * options.chunk : options.capacity;
      const std::int64_t shared = std::min(there, reusable(places[i], running.request));
      if (shared <= most) continue;
      most = shared;
      job.position = static_cast<std::int32_t>(i);
      job.whole = g;
    }
  }
  if (most == running.filled) return;
  issue(job, {}, {});
  const std::lock_guard lock(mutex);
  stats.reused_tokens += static_cast<std::uint64_t>(most - running.filled);
  running.result.reused_tokens += most - running.filled;
  running.filled = most;
}

void Generator::Impl::prefill(int group, std::size_t sequence, Running& running) {
  const std::vector<std::int32_t>& prompt = running.request.prompt;
  const std::int64_t length = running.result.prompt_tokens, at = running.filled, count = std::min(options.chunk, length - at);
  Job job{at + count < length ? Job::prefill : Job::last_prefill,
          group,
          static_cast<std::int32_t>(sequence),
          static_cast<std::int32_t>(at),
          static_cast<std::int32_t>(count),
          {}};
  job.whole = static_cast<std::int32_t>(length);
  issue(job, {}, std::span(prompt).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
  running.filled += count;
  const std::lock_guard lock(mutex);
  stats.prefilled_tokens += static_cast<std::uint64_t>(count);
}

void Generator::Impl::begin_again(int group, std::size_t sequence, Running& running) {
  std::vector<std::int32_t> tokens = running.request.prompt;
  tokens.insert(tokens.end(), running.result.ids.begin(), running.result.ids.end());
  const auto length = static_cast<std::int64_t>(tokens.size());
  Job job{Job::prefill, group, static_cast<std::int32_t>(sequence), 0, 0, {}};
  job.whole = static_cast<std::int32_t>(length);
  for (std::int64_t at = 0; at < length; at += options.chunk) {
    job.kind = at + options.chunk < length ? Job::prefill : Job::last_prefill;
    job.position = static_cast<std::int32_t>(at);
    job.length = static_cast<std::int32_t>(std::min(options.chunk, length - at));
    issue(job, {}, std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(job.length)));
  }
  running.begins = true;
}

bool Generator::Impl::prefill_some(int index) {
  Group& group = groups[static_cast<std::size_t>(index)];
  bool any = false;
  for (;;) {
    std::size_t oldest = group.places.size();
    for (std::size_t i = 0; i < group.places.size(); ++i) {
      auto& running = group.places[i].running;
      if (running && !running->is_filled() && is_cancelled(running->number)) release(group.places[i], Finish::cancelled);
      if (running && !running->is_filled() && (oldest == group.places.size() || running->number < group.places[oldest].running->number))
        oldest = i;
    }
    if (oldest == group.places.size()) return any;
    copy_shared(index, oldest, *group.places[oldest].running);
    prefill(index, oldest, *group.places[oldest].running);
    any = true;
    if (options.interleaved) return any;
  }
}

bool Generator::Impl::launch(int index) {
  Group& group = groups[static_cast<std::size_t>(index)];
  const bool prefilled = prefill_some(index);
  std::size_t low = group.places.size(), high = 0;
  for (std::size_t i = 0; i < group.places.size(); ++i)
    if (group.places[i].running && group.places[i].running->is_filled()) low = std::min(low, i), high = i;
  if (low == group.places.size()) return prefilled;
  for (std::size_t i = 0; i < group.places.size(); ++i)
    if (auto& one = group.places[i].running;
        one && one->is_filled() && !one->begins && decoder.rotary_switch() > 0 && one->position == decoder.rotary_switch())
      begin_again(index, i, *one);
  if (low == high && launch_lookup(index, low)) return true;
  const std::size_t count = step_size(high - low + 1, group.places.size()), first = std::min(low, group.places.size() - count);
  Job job{Job::step,
          index,
          static_cast<std::int32_t>(first),
          0,
          static_cast<std::int32_t>(count),
          std::vector<std::int32_t>(group.places.size(), ~0)};
  std::size_t stepped = 0;
  for (std::size_t i = 0; i < group.places.size(); ++i) {
    Place& place = group.places[i];
    // Behind its tokens; one that fills the cache ends with the token that it has, and needs no place any more.
    const auto behind = [&](std::size_t tokens) {
      return ~std::min(static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(options.capacity) - 1);
    };
    if (!place.running) {
      job.positions[i] = behind(place.kept.size());
    } else if (!place.running->is_filled()) {
      job.positions[i] = behind(static_cast<std::size_t>(place.running->filled));
    } else {
      place.running->awaits = true;
      job.positions[i] = place.running->begins ? behind(static_cast<std::size_t>(place.running->position) + 1) : place.running->position;
      stepped += !place.running->begins;
    }
    if (i >= first && i < first + count) ids[i - first] = place.running ? place.running->token : 0;
  }
  if (!chain.is_last()) group.message = chain.receive_choices(group.choices);
  issue(job, {}, std::span(ids).first(count));
  in_flight.push_back(index);
  const std::lock_guard lock(mutex);
  stats.steps += stepped > 0;
  stats.stepped_sequences += stepped;
  return true;
}

void Generator::Impl::release(Place& place, Finish how) {
  const Running done = std::move(*place.running);
  place.running.reset();
  Generated result = done.result;
  result.finish = how;
  if (!result.ids.empty()) {
    result.prefill_seconds = seconds_between(done.begun, done.first);
    result.decode_seconds = seconds_between(done.first, done.last);
  }
  if (options.reuse) {
    // Not what was generated: a prefill would compute it in other pieces, and give other roundings.
    place.kept.assign(done.request.prompt.begin(), done.request.prompt.begin() + static_cast<std::ptrdiff_t>(done.filled));
    place.kept.resize(std::min(place.kept.size(), static_cast<std::size_t>(options.capacity) - 1));
    place.kept_adapter = done.request.adapter;
    place.used = ++uses;
  }
  {
    const std::lock_guard lock(mutex);
    --stats.running;
  }
  finish(done.number, done.request, result);
}

bool Generator::Impl::take(Place& place, const Choice& choice, Clock::time_point now) {
  Running& one = *place.running;
  one.token = choice.token;
  one.begins = false;
  ++one.position;
  if (one.result.ids.empty()) one.first = now;
  one.last = now;
  one.result.ids.push_back(one.token);
  const bool go_on = one.request.on_choice ? one.request.on_choice(choice) : !one.request.on_token || one.request.on_token(one.token);
  if (choice.complete || std::ranges::find(one.request.end_ids, one.token) != one.request.end_ids.end())
    release(place, Finish::end_token);
  else if (!go_on)
    release(place, Finish::cancelled);
  else if (static_cast<std::int64_t>(one.result.ids.size()) >= one.limit)
    release(place, Finish::length);
  else
    return true;
  return false;
}

bool Generator::Impl::launch_lookup(int index, std::size_t sequence) {
  Place& place = groups[static_cast<std::size_t>(index)].places[sequence];
  Running& one = *place.running;
  if (!options.lookup || !chain.is_first() || !chain.is_last() || one.begins || decoder.rotary_switch() > 0) return false;
  const std::int64_t room = std::min(options.capacity - one.position, one.limit - static_cast<std::int64_t>(one.result.ids.size())) - 1;
  std::vector<std::int32_t> tokens = one.lookup.guess(one.request.prompt, one.result.ids, room);
  if (tokens.empty()) return false;
  const std::size_t guessed = tokens.size();
  tokens.insert(tokens.begin(), one.token);
  issue({.kind = Job::verify,
         .group = index,
         .sequence = static_cast<std::int32_t>(sequence),
         .position = one.position,
         .length = static_cast<std::int32_t>(tokens.size()),
         .positions = {}},
        {}, tokens);
  one.lookup.judge(guessed, verified.size() - 1);
  {
    const std::lock_guard lock(mutex);
    ++stats.steps;
    ++stats.stepped_sequences;
    stats.guessed_tokens += guessed;
    stats.right_guesses += verified.size() - 1;
  }
  if (is_cancelled(one.number)) return release(place, Finish::cancelled), true;
  const auto now = Clock::now();
  for (const Choice& choice : std::vector<Choice>(verified))
    if (!take(place, choice, now)) break;
  return true;
}

void Generator::Impl::collect(int index) {
  Group& group = groups[static_cast<std::size_t>(index)];
  group.message.wait();
  const auto now = Clock::now();
  for (std::size_t i = 0; i < group.places.size(); ++i) {
    Place& place = group.places[i];
    if (!place.running || !std::exchange(place.running->awaits, false)) continue;
    Running& one = *place.running;
    if (is_cancelled(one.number)) {
      release(place, Finish::cancelled);
      continue;
    }
    take(place, group.choices[i], now);
  }
}

bool Generator::Impl::wait_for_more() {
  {
    std::unique_lock lock(mutex);
    news.wait_for(lock, std::chrono::seconds(1), [&] { return stopping || !waiting.empty(); });
    if (!waiting.empty()) return true;
    if (stopping) return false;
  }
  Job job;
  job.kind = Job::idle;
  issue(job, {}, {});
  return true;
}

void Generator::Impl::lead(bool serving) {
  for (;;) {
    admit();
    bool any = false;
    for (int i = 0; i < options.groups; ++i)
      if (std::ranges::find(in_flight, i) == in_flight.end()) any |= launch(i);
    if (!in_flight.empty()) {
      const int next = in_flight.front();
      in_flight.pop_front();
      collect(next);
    } else if (!any && (!serving || !wait_for_more())) {
      const std::lock_guard lock(mutex);
      if (waiting.empty()) break;
    }
  }
  chain.pass_on({});
  tell({}, {});
}

}  // namespace ppengine::runs
