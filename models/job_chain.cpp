// Jobs from rank to rank, tokens from the last to the first.
#include <ppengine/models/detail/job_chain.hpp>

#include <algorithm>
#include <cstring>

#include <ppengine/engine/decoder.hpp>

namespace ppengine::models {
namespace {

enum Tag : int { job_tag = engine::Decoder::first_free_tag, beginning_tag, tokens_tag };

constexpr std::size_t fixed_words = 5;  // of a job, before the positions

struct Fixed {  // of a beginning, before the prompt
  SamplingOptions sampling;
  std::uint64_t number;
};

std::size_t beginning_bytes(std::size_t prompt) { return sizeof(Fixed) + prompt * sizeof(std::int32_t); }

}  // namespace

JobChain::JobChain(comm::Communicator& ranks, std::int64_t sequences)
    : ranks_(ranks), incoming_(fixed_words + static_cast<std::size_t>(sequences)) {
  for (Outgoing& one : outgoing_) one.job.resize(incoming_.size());
}

void JobChain::pass_on(const Job& job, const Beginning& beginning) {
  if (is_last()) return;
  Outgoing& out = outgoing_[next_];
  next_ = (next_ + 1) % outgoing_.size();
  out.sent.wait();
  const std::array<std::int32_t, fixed_words> fixed{job.kind, job.group, job.sequence, job.position, job.length};
  std::ranges::copy(fixed, out.job.begin());
  std::ranges::copy(job.positions, out.job.begin() + fixed_words);
  std::vector<comm::Pending> sent{ranks_.send(out.job.data(), out.job.size() * sizeof(std::int32_t), ranks_.rank() + 1, job_tag)};
  if (job.kind == Job::begin) {
    const Fixed first{beginning.sampling, beginning.number};
    out.beginning.resize(beginning_bytes(beginning.prompt.size()));
    std::memcpy(out.beginning.data(), &first, sizeof(first));
    std::memcpy(out.beginning.data() + sizeof(first), beginning.prompt.data(), beginning.prompt.size() * sizeof(std::int32_t));
    sent.push_back(ranks_.send(out.beginning.data(), out.beginning.size(), ranks_.rank() + 1, beginning_tag));
  }
  out.sent = comm::Pending::all(std::move(sent));
}

void JobChain::flush() {
  for (Outgoing& one : outgoing_) one.sent.wait();
}

void JobChain::receive(Job& job, Beginning& beginning) {
  ranks_.recv(incoming_.data(), incoming_.size() * sizeof(std::int32_t), ranks_.rank() - 1, job_tag).wait();
  job.kind = static_cast<Job::Kind>(incoming_[0]);
  job.group = incoming_[1];
  job.sequence = incoming_[2];
  job.position = incoming_[3];
  job.length = incoming_[4];
  job.positions.assign(incoming_.begin() + fixed_words, incoming_.end());
  if (job.kind != Job::begin) return;
  incoming_beginning_.resize(beginning_bytes(static_cast<std::size_t>(job.length)));
  ranks_.recv(incoming_beginning_.data(), incoming_beginning_.size(), ranks_.rank() - 1, beginning_tag).wait();
  Fixed first;
  std::memcpy(&first, incoming_beginning_.data(), sizeof(first));
  beginning.sampling = first.sampling;
  beginning.number = first.number;
  beginning.prompt.resize(static_cast<std::size_t>(job.length));
  std::memcpy(beginning.prompt.data(), incoming_beginning_.data() + sizeof(first), beginning.prompt.size() * sizeof(std::int32_t));
}

comm::Pending JobChain::send_tokens(std::span<const std::int32_t> tokens) {
  return ranks_.send(tokens.data(), tokens.size_bytes(), 0, tokens_tag);
}

comm::Pending JobChain::receive_tokens(std::span<std::int32_t> tokens) {
  return ranks_.recv(tokens.data(), tokens.size_bytes(), ranks_.size() - 1, tokens_tag);
}

}  // namespace ppengine::models
