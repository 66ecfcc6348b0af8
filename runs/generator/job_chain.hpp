// What the first rank of a pipeline tells the others to do: jobs go from rank to rank, tokens come back from the last
// to the first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/runs/sampler.hpp>

namespace ppengine::runs {

struct Job {
  enum Kind : std::int32_t {
    end,
    begin,
    prefill,
    last_prefill,
    step,
    verify,
    replay,
    page,
    clear,
    idle
  };  // the last of a prompt's chooses a token; verify: several tokens of one sequence; replay: the same, and nothing is chosen; page: a
      // sequence has one more page of the cache; clear: it has none any more; idle: nothing to do
  Kind kind = end;
  std::int32_t group = 0, sequence = 0;
  std::int32_t position = 0;  // prefill, verify, replay: of the first token; page: which of the sequence
  std::int32_t length = 0;    // prefill, verify, replay: tokens; step: sequences of the group, from the first on; begin: bytes that follow;
                              // page: its number
  std::vector<std::int32_t> positions;  // step: of every sequence of the group; ~p: takes no part, and position p is free
  std::vector<std::int32_t> tokens{};   // verify: those that go in, which the rank that chooses compares with
  std::int32_t whole = 0;               // prefill, replay: tokens of the sequence; begin: the adapter
};

// What the rank that chooses tokens must know of a request (Job::begin).
struct Beginning {
  SamplingOptions sampling;
  std::uint64_t number = 0;  // of the request: its random numbers depend on it
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> generated{};  // before it was preempted
  std::vector<TokenBias> bias{};
  std::string schema{};  // what is generated must be JSON that satisfies it; empty: anything
  std::vector<std::int32_t> end_ids{};
  std::int64_t most_tokens = 0;  // that are generated
};

class JobChain {
 public:
  // tensor: the ranks that divide this one's work; the first of them is in the chain, and tells the others. Null: none.
  JobChain(comm::Communicator& ranks, std::int64_t sequences, comm::Communicator* tensor);

  bool is_first() const { return ranks_.rank() == 0; }
  bool is_last() const { return ranks_.rank() + 1 == ranks_.size(); }
  // Whether this rank is in the chain, not told by one that is.
  bool leads() const { return !tensor_ || tensor_->rank() == 0; }
  // On all ranks that divide a stage's work: the job, and the tokens that go in, of the one that leads become those of all.
  void share(Job& job, std::vector<std::int32_t>& tokens);
  // To the next rank, if there is one. `beginning` goes with Job::begin.
  void pass_on(Job job, const Beginning& beginning = {});
  // Waits until the next rank has everything: a send reads this object's memory for as long as it lasts.
  void flush();
  // From the rank before.
  void receive(Job& job, Beginning& beginning);

  // What was chosen for a group. The memory must stay untouched until the Pending is waited for.
  comm::Pending send_choices(std::span<const Choice> choices);
  comm::Pending receive_choices(std::span<Choice> choices);

 private:
  struct Outgoing {
    std::vector<std::int32_t> job;
    std::vector<std::byte> beginning;
    comm::Pending sent;
  };
  void write(const Job& job, std::vector<std::int32_t>& words) const;
  void read(const std::vector<std::int32_t>& words, Job& job) const;

  comm::Communicator& ranks_;
  comm::Communicator* tensor_;
  std::array<Outgoing, 4> outgoing_;  // used in turn: the sender runs ahead of the receiver by so many jobs at most
  std::size_t next_ = 0;
  std::vector<std::int32_t> incoming_, shared_;
  std::vector<std::byte> incoming_beginning_;
};

}  // namespace ppengine::runs
