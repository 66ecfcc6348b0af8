// The first rank of a generator: which requests have a place, and what runs next.
#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/runs/generator/impl.hpp>

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

Place* Generator::Impl::find_place() {
  Place* best = nullptr;
  std::array<std::int64_t, 2> best_score{};
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
      const std::array<std::int64_t, 2> score{load, span};
      if (best && score >= best_score) continue;
      best = &places[i], best_score = score;
    }
  }
  return best;
}

std::deque<Waiting>::iterator Generator::Impl::next_in_turn() {
  std::map<std::uint64_t, std::int64_t> of_owner, of_client;
  for (const Group& group : groups)
    for (const Place& place : group.places) {
      if (place.running && place.running->request.owner) ++of_owner[*place.running->request.owner];
      if (place.running && place.running->request.client) ++of_client[*place.running->request.client];
    }
  const auto running = [](const auto& counts, const std::optional<std::uint64_t>& who) -> std::int64_t {
    const auto found = who ? counts.find(*who) : counts.end();
    return found == counts.end() ? 0 : found->second;
  };
  const auto has = [&](const Waiting& each) -> std::pair<std::int64_t, std::int64_t> {
    if (each.progress) return {-1, -1};  // it was there before
    return {running(of_client, each.request.client), running(of_owner, each.request.owner)};
  };
  return std::ranges::min_element(waiting, {}, has);  // of equal ones the first
}

void Generator::Impl::admit() {
  for (;;) {
    std::optional<Waiting> next;
    Place* place = nullptr;
    bool was_cancelled = false;
    {
      const std::lock_guard lock(mutex);
      auto from = std::ranges::find_if(waiting, [&](const Waiting& each) { return cancelled.contains(each.number); });
      was_cancelled = from != waiting.end();
      if (!was_cancelled && !waiting.empty()) {
        const auto fair = next_in_turn();
        place = find_place();
        if (place && fits_now(*fair)) from = fair;
      }
      if (from == waiting.end()) return;
      next = std::move(*from);
      waiting.erase(from);
    }
    if (was_cancelled)
      finish(next->number, next->request,
             next->progress ? finished(*next->progress, Finish::cancelled) : Generated{.ids = {}, .finish = Finish::cancelled});
    else
      begin(*place, std::move(*next));
  }
}

void Generator::Impl::begin(Place& place, Waiting from) {
  Running running;
  if (from.progress)
    running = std::move(*from.progress);
  else
    running.number = from.number, running.begun = Clock::now();
  running.request = std::move(from.request);
  const std::vector<std::int32_t>& prompt = running.request.prompt;
  const auto length = static_cast<std::int64_t>(prompt.size()), generated = static_cast<std::int64_t>(running.result.ids.size());
  running.result.prompt_tokens = length;
  // The last token that is chosen needs no place in the cache.
  running.limit = std::min(running.request.max_new_tokens, options.capacity - length + 1);
  running.position = static_cast<std::int32_t>(length + generated - 1);
  running.filled = 0;
  running.to_fill = generated > 0 ? length + generated - 1 : length;
  running.begins = generated == 0;
  Beginning beginning{.sampling = running.request.sampling,
                      .number = running.request.random_stream.value_or(running.number),
                      .prompt = prompt,
                      .generated = running.result.ids,
                      .bias = running.request.bias,
                      .schema = running.request.schema,
                      .end_ids = running.request.end_ids,
                      .most_tokens = running.limit};
  issue({.kind = Job::begin, .group = place.group, .sequence = place.sequence, .positions = {}, .whole = running.request.adapter},
        beginning, {});
  {
    const std::lock_guard lock(mutex);
    ++stats.running;
  }
  place.running = std::move(running);
}

// Pages for the next token of every sequence, the oldest first; true where one has lost its place.
bool Generator::Impl::find_room(Group& group) {
  std::vector<std::pair<std::uint64_t, Place*>> order;
  for (Place& place : group.places)
    if (place.running && place.running->is_filled() && !place.running->begins) order.emplace_back(place.running->number, &place);
  std::ranges::sort(order);
  bool lost = false;
  for (const auto& [number, place] : order) lost |= !place->running || !make_room(*place, place->running->position + 1);
  return lost;
}

bool Generator::Impl::launch(int index) {
  Group& group = groups[static_cast<std::size_t>(index)];
  const bool prefilled = prefill_some(index);
  const bool prefilled_or_moved = find_room(group) || prefilled;
  std::size_t low = group.places.size(), high = 0;
  for (std::size_t i = 0; i < group.places.size(); ++i)
    if (group.places[i].running && group.places[i].running->is_filled()) low = std::min(low, i), high = i;
  if (low == group.places.size()) return prefilled_or_moved;
  for (std::size_t i = 0; i < group.places.size(); ++i)
    if (auto& one = group.places[i].running;
        one && one->is_filled() && !one->begins && decoder.rotary_switch() > 0 && one->position == decoder.rotary_switch())
      begin_again(group.places[i]);
  if (low == high && launch_guess(index, low)) return true;
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
      job.positions[i] = ~0;
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

Generated Generator::Impl::finished(const Running& done, Finish how) {
  Generated result = done.result;
  result.finish = how;
  if (!result.ids.empty()) {
    result.prefill_seconds = seconds_between(done.begun, done.first);
    result.decode_seconds = seconds_between(done.first, done.last);
  }
  return result;
}

void Generator::Impl::release(Place& place, Finish how) {
  Running done = std::move(*place.running);
  place.running.reset();
  give_back_pages(place, done);
  {
    const std::lock_guard lock(mutex);
    --stats.running;
    stats.used_pages = pool.used();
  }
  finish(done.number, done.request, finished(done, how));
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

void Generator::Impl::collect(int index) {
  Group& group = groups[static_cast<std::size_t>(index)];
  group.message.wait();
  if (group.guess) return collect_guess(group);
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
    {
      const std::lock_guard lock(mutex);
      stats.used_pages = pool.used();
      stats.kept_pages = pool.kept();
    }
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
