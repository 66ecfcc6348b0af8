// What a Generator keeps: requests and their places on the first rank, the choice of tokens on the last one.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/engine/decoder.hpp>
#include <ppengine/runs/constraint/token_constraint.hpp>
#include <ppengine/runs/generator.hpp>
#include <ppengine/runs/generator/draft.hpp>
#include <ppengine/runs/generator/guess_pace.hpp>
#include <ppengine/runs/generator/job_chain.hpp>
#include <ppengine/runs/generator/lookup.hpp>
#include <ppengine/runs/generator/page_pool.hpp>

namespace ppengine::runs {

using Clock = std::chrono::steady_clock;

// A request that has its place in a group.
struct Running {
  std::uint64_t number = 0;
  GenerationRequest request;
  Generated result;
  std::int64_t limit = 0;                // of new tokens
  std::int64_t filled = 0;               // tokens that are in the cache, of
  std::int64_t to_fill = 0;              // these: the prompt's, and of a sequence that is resumed those that were generated before
  std::vector<std::int32_t> pages = {};  // of the cache
  std::int32_t position = 0;             // of the token that the next step takes
  std::int32_t token = 0;                // that token
  bool begins = true;                    // prefill chooses its first token: it takes no part in this step
  bool awaits = false;                   // a token, from the step that is under way
  GuessPace lookup_pace, draft_pace;
  Clock::time_point begun, first, last;
  bool is_filled() const { return filled == to_fill; }
};

struct Waiting {
  std::uint64_t number = 0;
  GenerationRequest request;
  std::optional<Running> progress = {};  // of one that had to give up its place; without the request
};

struct Place {
  std::int32_t group = 0, sequence = 0;
  std::optional<Running> running = {};
};

// What the last rank keeps of a request.
struct Chooser {
  std::optional<Sampler> sampler;
  std::optional<constraint::TokenConstraint> constraint;
  std::vector<std::int32_t> history;
  std::size_t prompt = 0;
};

// Tokens of one sequence that were guessed and are on their way through the stages.
struct Guess {
  std::size_t sequence = 0, tokens = 0;
  bool drafted = false;
};

struct Group {
  std::vector<Place> places;      // first rank
  std::optional<Guess> guess;     // first rank: that is on its way in place of a step
  std::vector<Chooser> choosers;  // last rank
  std::vector<Choice> choices;    // of the last step
  std::vector<Choice> verified;   // of the last Job::verify, ended by one without a token
  comm::Pending message;          // that carries them
};

// Steps are compiled for these numbers of sequences.
inline std::size_t step_size(std::size_t wanted, std::size_t most) {
  std::size_t size = 1;
  while (size < wanted) size *= 2;
  return std::min(size, most);
}

struct Generator::Impl {
  GeneratorOptions options;
  engine::Decoder decoder;
  JobChain chain;
  std::unique_ptr<Draft> draft;
  PagePool pool;            // on the first rank
  std::int64_t share_unit;  // tokens: whole chunks and whole pages
  std::int64_t vocabulary;
  std::vector<Group> groups;
  std::deque<int> in_flight;
  std::vector<std::int32_t> ids, positions, shared_tokens;
  Job shared_job;

  mutable std::mutex mutex;  // of what follows
  std::condition_variable news;
  bool stopping = false;
  GeneratorStats stats;
  std::deque<Waiting> waiting;
  std::set<std::uint64_t> cancelled, unfinished;
  std::uint64_t submitted = 0;

  Impl(engine::ModelRank& model, const GeneratorOptions& how, comm::Communicator& pipeline)
      : options(how),
        decoder(model, {.capacity = how.capacity,
                        .groups = how.groups,
                        .sequences = how.sequences,
                        .pages = page_count(how),
                        .chunk = how.chunk,
                        .peers = &pipeline,
                        .tensor = how.tensor,
                        .adapters = how.adapters,
                        .cache_in_bytes = how.cache_in_bytes}),
        chain(pipeline, how.sequences, how.tensor),
        pool(page_count(how), engine::CompileOptions::cache_page),
        share_unit(std::lcm(how.chunk, engine::CompileOptions::cache_page)),
        vocabulary(model.graph().values()[model.graph().output_value()].width),
        groups(static_cast<std::size_t>(how.groups)) {
    if (how.draft) draft = std::make_unique<Draft>(*how.draft, how.draft_capacity, how.groups * how.sequences);
    if (decoder.rotary_switch() > 0) options.reuse = false;  // keys depend on how long the whole sequence is
    const auto sequences = static_cast<std::size_t>(how.sequences);
    for (Group& group : groups) {
      for (std::int64_t i = 0; i < how.sequences; ++i)
        group.places.push_back({static_cast<std::int32_t>(&group - groups.data()), static_cast<std::int32_t>(i)});
      group.choosers.resize(sequences);
      group.choices.resize(sequences);
      group.verified.resize(engine::Decoder::most_verified);
    }
    ids.resize(sequences);
    positions.resize(sequences);
  }

  // With the one that belongs to nobody.
  static std::int64_t page_count(const GeneratorOptions& how) {
    const std::int64_t each = (how.capacity + engine::CompileOptions::cache_page - 1) / engine::CompileOptions::cache_page;
    PPENGINE_ASSERT(how.pages == 0 || how.pages >= each);
    return 1 + (how.pages > 0 ? how.pages : each * how.groups * how.sequences);
  }

  // What every rank of the chain does with a job; the first rank gives the tokens that go in.
  void carry_out(const Job& job, const Beginning& beginning, std::span<const std::int32_t> tokens) {
    Group& group = groups[static_cast<std::size_t>(job.group)];
    tell(job, tokens);
    if (job.kind == Job::begin) decoder.set_adapter(job.group, job.sequence, job.whole);
    if (job.kind == Job::begin && chooses()) {
      Chooser& chooser = group.choosers[static_cast<std::size_t>(job.sequence)];
      chooser.sampler.emplace(beginning.sampling, beginning.number, beginning.bias);
      chooser.history = beginning.prompt;
      chooser.history.insert(chooser.history.end(), beginning.generated.begin(), beginning.generated.end());
      chooser.prompt = beginning.prompt.size();
      chooser.constraint.reset();
      if (!beginning.schema.empty())
        chooser.constraint.emplace(*options.tokens, constraint::schema_grammar(nlohmann::ordered_json::parse(beginning.schema)),
                                   beginning.end_ids, beginning.most_tokens);
      for (const std::int32_t id : beginning.generated)
        if (chooser.constraint) static_cast<void>(chooser.constraint->accept(id));
    } else if (job.kind == Job::prefill || job.kind == Job::last_prefill) {
      const bool last = job.kind == Job::last_prefill;
      const std::span<float> logits = decoder.prefill(job.group, job.sequence, job.position, job.length, last, tokens, job.whole);
      if (last && chooses()) choose(group, static_cast<std::size_t>(job.sequence), logits);
    } else if (job.kind == Job::verify) {
      verify(job, group, tokens);
    } else if (job.kind == Job::replay) {
      static_cast<void>(decoder.verify(job.group, job.sequence, job.position, job.length, tokens, job.whole));
    } else if (job.kind == Job::page) {
      decoder.set_page(job.group, job.sequence, job.position, job.length);
    } else if (job.kind == Job::clear) {
      decoder.clear_pages(job.group, job.sequence);
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
    Choice& choice = group.choices[sequence];
    choice = chooser.sampler.value().choose_with_logprobs(logits, chooser.history, chooser.prompt,
                                                          chooser.constraint ? &*chooser.constraint : nullptr);
    chooser.history.push_back(choice.token);
    if (chooser.constraint) choice.complete = chooser.constraint->accept(choice.token);
  }

  // Tokens that were guessed go through the stages behind the last one; they are chosen one by one until a guess is wrong.
  void verify(const Job& job, Group& group, std::span<const std::int32_t> tokens) {
    const std::span<float> logits = decoder.verify(job.group, job.sequence, job.position, job.length, tokens);
    if (!chooses()) return;
    group.message.wait();
    for (Choice& choice : group.verified) choice.token = -1;
    const auto width = static_cast<std::size_t>(vocabulary), sequence = static_cast<std::size_t>(job.sequence),
               count = static_cast<std::size_t>(job.length);
    for (std::size_t i = 0; i < count; ++i) {
      choose(group, sequence, logits.subspan(i * width, width));
      group.verified[i] = group.choices[sequence];
      if (group.verified[i].complete || i + 1 == count || group.verified[i].token != job.tokens[i + 1]) break;
    }
    if (!chain.is_first()) group.message = chain.send_choices(group.verified);
  }

  // One more token for the sequences that take part; then all choices of the group go back, with those of prefills.
  void step(const Job& job, Group& group, std::span<const std::int32_t> tokens) {
    const auto takes_part = [](std::int32_t position) { return position >= 0; };
    if (std::ranges::any_of(job.positions, takes_part)) {
      const auto first = static_cast<std::size_t>(job.sequence), count = static_cast<std::size_t>(job.length);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t position = job.positions[first + i];
        positions[i] = position < 0 ? ~position : position;
      }
      const std::span<float> logits = decoder.step(job.group, job.sequence, std::span(positions).first(count), tokens);
      const auto width = static_cast<std::size_t>(vocabulary);
      for (std::size_t i = 0; chooses() && i < count; ++i)
        if (takes_part(job.positions[first + i])) choose(group, first + i, logits.subspan(i * width, width));
    }
    if (chooses() && !chain.is_first()) {
      group.message.wait();
      group.message = chain.send_choices(group.choices);
    }
  }

  // The first rank (generator_lead.cpp).
  void issue(const Job& job, const Beginning& beginning, std::span<const std::int32_t> tokens);
  bool is_cancelled(std::uint64_t number);
  void finish(std::uint64_t number, const GenerationRequest& request, const Generated& result);
  // The free place that a request takes: in the group with the least to do, beside others, so that a step goes over few places. Null: none
  // is free.
  Place* find_place();
  // Of the waiting requests the first of those whose client, then whose owner, has the fewest running: many requests of one client, or a
  // large batch, do not hold up a single one.
  std::deque<Waiting>::iterator next_in_turn();
  // Waiting requests take free places.
  void admit();
  // A request takes a free place.
  void begin(Place& place, Waiting from);

  // The cache (generator_cache.cpp).
  std::int64_t pages_for(std::int64_t tokens) const;
  std::int64_t whole_chunks(std::int64_t tokens) const;
  void add_page(Place& place, std::int32_t page);
  void tell_page(const Place& place, std::size_t index);
  void give_back_pages(Place& place, Running& running);
  // Beginnings of the prompt that another request has computed, running or not, become this one's too.
  void share_pages(Place& place);
  // And what this one has computed is there for others.
  void keep_pages(Place& place);
  // Pages for so many tokens of a sequence; others may have to make room for it. False where it had to itself.
  bool make_room(Place& place, std::int64_t tokens);
  Place& youngest();
  // A sequence leaves its place and waits to be resumed.
  void preempt(Place& place);
  // Whether there are pages for all tokens that a request has by now; always where nothing else runs.
  bool fits_now(const Waiting& next);
  bool find_room(Group& group);
  // One chunk of a prompt goes into the cache; the last one gives the first token.
  void prefill(Place& place);
  // Where rotary frequencies change with the length (longrope), what is in the cache has to be made again.
  void begin_again(Place& place);
  // Prompts of the group that are not in the cache yet, the oldest first. True where there was something to do.
  bool prefill_some(int index);
  // Sends a group through the stages once where there is anything to do; true where something was done.
  bool launch(int index);
  // One sequence alone (guess.cpp): guesses what follows, and lets several tokens go through the stages together. True where that
  // was done.
  bool launch_guess(int index, std::size_t sequence);
  void collect_guess(Group& group);
  bool guesses() const;
  std::vector<std::int32_t> guess(int index, std::size_t sequence, bool& drafted);
  // A token was chosen; false where the request has left its place with it.
  bool take(Place& place, const Choice& choice, Clock::time_point now);
  // A request leaves its place.
  void release(Place& place, Finish how);
  static Generated finished(const Running& done, Finish how);
  // The tokens of the group that was launched first are there.
  void collect(int index);
  // Nothing to do: waits for requests. The other ranks hear of it now and then, so that they do not take this one for lost.
  bool wait_for_more();
  void lead(bool serving);

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

  void carry_on(bool serving) {
    comm::abort_on_error(decoder.options().peers, [&] {
      if (!chain.leads()) return take_part();
      chain.is_first() ? lead(serving) : follow();
      chain.flush();
    });
  }
};

}  // namespace ppengine::runs
