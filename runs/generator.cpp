// Generation over a pipeline: the first rank decides what runs next, the last one chooses tokens.
#include <ppengine/runs/generator.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/engine/decoder.hpp>
#include <ppengine/runs/job_chain.hpp>

namespace ppengine::runs {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point begin, Clock::time_point end) { return std::chrono::duration<double>(end - begin).count(); }

struct Waiting {
  std::uint64_t number = 0;
  GenerationRequest request;
};

// A request that has its place in a group.
struct Running {
  std::uint64_t number = 0;
  GenerationRequest request;
  Generated result;
  std::int64_t limit = 0;     // of new tokens
  std::int32_t position = 0;  // of the token that the next step takes
  std::int32_t token = 0;     // that token
  bool begins = true;         // prefill chooses its first token: it takes no part in this step
  Clock::time_point begun, first, last;
};

// What the last rank keeps of a request.
struct Chooser {
  std::optional<Sampler> sampler;
  std::vector<std::int32_t> history;
};

struct Group {
  std::vector<std::optional<Running>> running;  // first rank
  std::vector<Chooser> choosers;                // last rank
  std::vector<std::int32_t> tokens;             // chosen in the last step
  comm::Pending message;                        // that carries them
};

}  // namespace

const char* finish_name(Finish finish) {
  return finish == Finish::length ? "length" : finish == Finish::end_token ? "end_token" : "cancelled";
}

struct Generator::Impl {
  GeneratorOptions options;
  engine::Decoder decoder;
  JobChain chain;
  std::int64_t vocabulary;
  std::vector<Group> groups;
  std::deque<int> in_flight;
  std::vector<std::int32_t> ids, positions, shared_tokens;
  Job shared_job;

  std::mutex mutex;  // of what follows
  std::deque<Waiting> waiting;
  std::set<std::uint64_t> cancelled, unfinished;
  std::uint64_t submitted = 0;

  Impl(engine::ModelRank& model, const GeneratorOptions& how, comm::Communicator& pipeline)
      : options(how),
        decoder(model, {.capacity = how.capacity,
                        .groups = how.groups,
                        .sequences = how.sequences,
                        .chunk = how.chunk,
                        .peers = &pipeline,
                        .tensor = how.tensor}),
        chain(pipeline, how.sequences, how.tensor),
        vocabulary(model.graph().values()[static_cast<std::size_t>(model.graph().output_value())].width),
        groups(static_cast<std::size_t>(how.groups)) {
    const auto sequences = static_cast<std::size_t>(how.sequences);
    for (Group& group : groups) {
      group.running.resize(sequences);
      group.choosers.resize(sequences);
      group.tokens.resize(sequences);
    }
    ids.resize(sequences);
    positions.resize(sequences);
  }

  // What every rank of the chain does with a job; the first rank gives the tokens that go in.
  void carry_out(const Job& job, const Beginning& beginning, std::span<const std::int32_t> tokens) {
    Group& group = groups[static_cast<std::size_t>(job.group)];
    if (job.kind != Job::begin) tell(job, tokens);
    if (job.kind == Job::begin && chain.is_last()) {
      Chooser& chooser = group.choosers[static_cast<std::size_t>(job.sequence)];
      chooser.sampler.emplace(beginning.sampling, beginning.number);
      chooser.history = beginning.prompt;
    } else if (job.kind == Job::prefill || job.kind == Job::last_prefill) {
      const bool last = job.kind == Job::last_prefill;
      const std::span<float> logits = decoder.prefill(job.group, job.sequence, job.position, job.length, last, tokens, job.whole);
      if (last && chooses()) choose(group, static_cast<std::size_t>(job.sequence), logits);
    } else if (job.kind == Job::step) {
      step(job, group, tokens);
    }
  }

  // Ranks that divide this one's work do it at the same time.
  void tell(const Job& job, std::span<const std::int32_t> tokens) {
    if (!options.tensor || !chain.leads()) return;
    shared_job = job;
    shared_tokens.assign(tokens.begin(), tokens.end());
    chain.share(shared_job, shared_tokens);
  }

  void take_part() {
    for (;;) {
      chain.share(shared_job, shared_tokens);
      if (shared_job.kind == Job::end) return;
      carry_out(shared_job, {}, shared_tokens);
    }
  }

  bool chooses() const { return chain.is_last() && chain.leads(); }

  void choose(Group& group, std::size_t sequence, std::span<float> logits) {
    group.message.wait();
    Chooser& chooser = group.choosers[sequence];
    group.tokens[sequence] = chooser.sampler.value().choose(logits, chooser.history);
    chooser.history.push_back(group.tokens[sequence]);
  }

  // One more token for the sequences that take part; then all tokens of the group go back, with those that prefills chose.
  void step(const Job& job, Group& group, std::span<const std::int32_t> tokens) {
    const auto takes_part = [](std::int32_t position) { return position >= 0; };
    if (std::ranges::any_of(job.positions, takes_part)) {
      std::ranges::transform(job.positions, positions.begin(), [](std::int32_t position) { return position < 0 ? ~position : position; });
      const std::span<float> logits = decoder.step(job.group, positions, tokens);
      const auto width = static_cast<std::size_t>(vocabulary);
      for (std::size_t i = 0; chooses() && i < group.choosers.size(); ++i)
        if (takes_part(job.positions[i])) choose(group, i, logits.subspan(i * width, width));
    }
    if (chooses() && !chain.is_first()) {
      group.message.wait();
      group.message = chain.send_tokens(group.tokens);
    }
  }

  // The first rank.

  void issue(const Job& job, const Beginning& beginning, std::span<const std::int32_t> tokens) {
    chain.pass_on(job, beginning);
    carry_out(job, beginning, tokens);
  }

  std::optional<Waiting> take_waiting() {
    const std::lock_guard lock(mutex);
    if (waiting.empty()) return {};
    Waiting next = std::move(waiting.front());
    waiting.pop_front();
    return next;
  }

  bool is_cancelled(std::uint64_t number) {
    const std::lock_guard lock(mutex);
    return cancelled.contains(number);
  }

  void finish(std::uint64_t number, const GenerationRequest& request, const Generated& result) {
    {
      const std::lock_guard lock(mutex);
      cancelled.erase(number);
      unfinished.erase(number);
    }
    if (request.on_finished) request.on_finished(result);
  }

  // A request takes a free place: its prompt goes into the cache, and gives the first token.
  void begin(int group, std::size_t sequence, Waiting from) {
    Running running;
    running.number = from.number;
    running.request = std::move(from.request);
    running.begun = Clock::now();
    const std::vector<std::int32_t>& prompt = running.request.prompt;
    const auto length = static_cast<std::int64_t>(prompt.size());
    running.result.prompt_tokens = length;
    // The last token that is chosen needs no place in the cache.
    running.limit = std::min(running.request.max_new_tokens, options.capacity - length + 1);
    running.position = static_cast<std::int32_t>(length - 1);
    const Job job{Job::begin, group, static_cast<std::int32_t>(sequence), 0, static_cast<std::int32_t>(length), {}};
    issue(job, {running.request.sampling, running.number, prompt}, {});
    prefill(job, prompt);
    groups[static_cast<std::size_t>(group)].running[sequence] = std::move(running);
  }

  // Tokens go into the cache from its beginning on, and give the next one.
  void prefill(Job job, const std::vector<std::int32_t>& prompt) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    job.whole = static_cast<std::int32_t>(length);
    for (std::int64_t at = 0; at < length; at += options.chunk) {
      job.kind = at + options.chunk < length ? Job::prefill : Job::last_prefill;
      job.position = static_cast<std::int32_t>(at);
      job.length = static_cast<std::int32_t>(std::min(options.chunk, length - at));
      issue(job, {}, std::span(prompt).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(job.length)));
    }
  }

  // Where rotary frequencies change with the length (longrope), what is in the cache has to be made again.
  void begin_again(int group, std::size_t sequence, Running& running) {
    std::vector<std::int32_t> tokens = running.request.prompt;
    tokens.insert(tokens.end(), running.result.ids.begin(), running.result.ids.end());
    prefill({Job::prefill, group, static_cast<std::int32_t>(sequence), 0, 0, {}}, tokens);
    running.begins = true;
  }

  // Fills the group's free places and, where there is anything to do, sends it through the stages once.
  void launch(int index) {
    Group& group = groups[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < group.running.size(); ++i)
      while (!group.running[i]) {
        auto next = take_waiting();
        if (!next) break;
        if (is_cancelled(next->number))
          finish(next->number, next->request, {.ids = {}, .finish = Finish::cancelled});
        else
          begin(index, i, std::move(*next));
      }
    if (std::ranges::none_of(group.running, [](const auto& one) { return one.has_value(); })) return;
    for (std::size_t i = 0; i < group.running.size(); ++i)
      if (auto& one = group.running[i]; one && !one->begins && decoder.rotary_switch() > 0 && one->position == decoder.rotary_switch())
        begin_again(index, i, *one);
    Job job{Job::step, index, 0, 0, 0, std::vector<std::int32_t>(group.running.size(), ~0)};
    for (std::size_t i = 0; i < group.running.size(); ++i) {
      const std::optional<Running>& one = group.running[i];
      ids[i] = one ? one->token : 0;
      if (!one) continue;
      // Behind its prompt; one that fills the cache ends with the token that it has, and needs no place any more.
      const auto free = std::min(one->position + 1, static_cast<std::int32_t>(options.capacity) - 1);
      job.positions[i] = one->begins ? ~free : one->position;
    }
    if (!chain.is_last()) group.message = chain.receive_tokens(group.tokens);
    issue(job, {}, ids);
    in_flight.push_back(index);
  }

  // The tokens of the group that was launched first are there.
  void collect(int index) {
    Group& group = groups[static_cast<std::size_t>(index)];
    group.message.wait();
    const auto now = Clock::now();
    for (std::size_t i = 0; i < group.running.size(); ++i) {
      std::optional<Running>& place = group.running[i];
      if (!place) continue;
      Running& one = *place;
      Generated& result = one.result;
      std::optional<Finish> finished;
      if (is_cancelled(one.number)) {
        finished = Finish::cancelled;
      } else {
        one.token = group.tokens[i];
        one.begins = false;
        ++one.position;
        if (result.ids.empty()) one.first = now;
        one.last = now;
        result.ids.push_back(one.token);
        const bool go_on = !one.request.on_token || one.request.on_token(one.token);
        if (std::ranges::find(one.request.end_ids, one.token) != one.request.end_ids.end())
          finished = Finish::end_token;
        else if (!go_on)
          finished = Finish::cancelled;
        else if (static_cast<std::int64_t>(result.ids.size()) >= one.limit)
          finished = Finish::length;
      }
      if (!finished) continue;
      result.finish = *finished;
      if (!result.ids.empty()) {
        result.prefill_seconds = seconds_between(one.begun, one.first);
        result.decode_seconds = seconds_between(one.first, one.last);
      }
      const Running done = std::move(one);
      place.reset();
      finish(done.number, done.request, done.result);
    }
  }

  void lead() {
    for (;;) {
      for (int i = 0; i < options.groups; ++i)
        if (std::ranges::find(in_flight, i) == in_flight.end()) launch(i);
      if (in_flight.empty()) break;
      const int next = in_flight.front();
      in_flight.pop_front();
      collect(next);
    }
    chain.pass_on({});
    tell({}, {});
  }

  void follow() {
    Job job;
    Beginning beginning;
    for (;;) {
      chain.receive(job, beginning);
      chain.pass_on(job, beginning);
      if (job.kind == Job::end) break;
      carry_out(job, beginning, {});
    }
    tell({}, {});
    for (Group& group : groups) group.message.wait();
  }
};

Generator::Generator(engine::ModelRank& model, const GeneratorOptions& options, comm::Communicator& pipeline)
    : impl_(std::make_unique<Impl>(model, options, pipeline)) {}
Generator::~Generator() = default;

void Generator::prepare(std::int64_t prompt_length) {
  const std::int64_t chunk = impl_->options.chunk;
  for (std::int64_t at = 0; at < prompt_length; at += chunk)
    impl_->decoder.prepare(at, std::min(chunk, prompt_length - at), at + chunk >= prompt_length);
}

std::uint64_t Generator::submit(GenerationRequest request) {
  check(request.sampling);
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) throw ConfigError("the prompt is empty: there must be a token to go on from");
  if (length > impl_->options.capacity)
    throw ConfigError(
        fmt::format("the prompt has {} tokens, and the context holds {}; shorten the prompt", length, impl_->options.capacity));
  if (request.max_new_tokens < 1) throw ConfigError(fmt::format("{} new tokens: must be at least 1", request.max_new_tokens));
  for (std::int32_t id : request.prompt)
    if (id < 0 || id >= impl_->vocabulary)
      throw ConfigError(fmt::format("token {} of the prompt is not in the model's vocabulary of {} (0 to {})", id, impl_->vocabulary,
                                    impl_->vocabulary - 1));
  const std::lock_guard lock(impl_->mutex);
  const std::uint64_t number = impl_->submitted++;
  impl_->unfinished.insert(number);
  impl_->waiting.push_back({number, std::move(request)});
  return number;
}

void Generator::cancel(std::uint64_t number) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->unfinished.contains(number)) impl_->cancelled.insert(number);
}

void Generator::run() {
  comm::abort_on_error(impl_->decoder.options().peers, [&] {
    if (!impl_->chain.leads()) return impl_->take_part();
    impl_->chain.is_first() ? impl_->lead() : impl_->follow();
    impl_->chain.flush();
  });
}

std::size_t Generator::cache_bytes() const { return impl_->decoder.cache_bytes(); }
void Generator::set_profile(engine::Profile* profile) { impl_->decoder.set_profile(profile); }

}  // namespace ppengine::runs
