// Jobs from rank to rank, tokens from the last to the first.
#include <ppengine/runs/job_chain.hpp>

#include <algorithm>
#include <cstring>

#include <ppengine/engine/decoder.hpp>

namespace ppengine::runs {
namespace {

enum Tag : int { job_tag = engine::Decoder::first_free_tag, beginning_tag, tokens_tag };

constexpr std::size_t fixed_words = 6;  // of a job, before the positions

struct Fixed {  // of a beginning, before the bias and the prompt
  SamplingOptions sampling;
  std::uint64_t number;
};

std::size_t beginning_bytes(std::size_t prompt, std::size_t bias) {
  return sizeof(Fixed) + bias * sizeof(TokenBias) + prompt * sizeof(std::int32_t);
}

}  // namespace

JobChain::JobChain(comm::Communicator& ranks, std::int64_t sequences, comm::Communicator* tensor)
    : ranks_(ranks), tensor_(tensor), incoming_(fixed_words + static_cast<std::size_t>(sequences)), shared_(incoming_.size() + 1) {
  for (Outgoing& one : outgoing_) one.job.resize(incoming_.size());
}

void JobChain::write(const Job& job, std::vector<std::int32_t>& words) const {
  const std::array<std::int32_t, fixed_words> fixed{job.kind, job.group, job.sequence, job.position, job.length, job.whole};
  std::ranges::copy(fixed, words.begin());
  std::ranges::copy(job.positions, words.begin() + fixed_words);
}

void JobChain::read(const std::vector<std::int32_t>& words, Job& job) const {
  job.kind = static_cast<Job::Kind>(words[0]);
  job.group = words[1];
  job.sequence = words[2];
  job.position = words[3];
  job.length = words[4];
  job.whole = words[5];
  job.positions.assign(words.begin() + fixed_words, words.begin() + static_cast<std::ptrdiff_t>(incoming_.size()));
}

void JobChain::share(Job& job, std::vector<std::int32_t>& tokens) {
  if (!tensor_) return;
  if (leads()) {
    write(job, shared_);
    shared_.back() = static_cast<std::int32_t>(tokens.size());
  }
  tensor_->broadcast(shared_.data(), shared_.size() * sizeof(std::int32_t), 0).wait();
  if (!leads()) read(shared_, job);
  tokens.resize(static_cast<std::size_t>(shared_.back()));
  if (!tokens.empty()) tensor_->broadcast(tokens.data(), tokens.size() * sizeof(std::int32_t), 0).wait();
}

void JobChain::pass_on(const Job& job, const Beginning& beginning) {
  if (is_last()) return;
  Outgoing& out = outgoing_[next_];
  next_ = (next_ + 1) % outgoing_.size();
  out.sent.wait();
  write(job, out.job);
  std::vector<comm::Pending> sent{ranks_.send(out.job.data(), out.job.size() * sizeof(std::int32_t), ranks_.rank() + 1, job_tag)};
  if (job.kind == Job::begin) {
    const Fixed first{beginning.sampling, beginning.number};
    out.beginning.resize(beginning_bytes(beginning.prompt.size(), beginning.bias.size()));
    std::byte* at = out.beginning.data();
    std::memcpy(at, &first, sizeof(first));
    at += sizeof(first);
    if (!beginning.bias.empty()) std::memcpy(at, beginning.bias.data(), beginning.bias.size() * sizeof(TokenBias));
    at += beginning.bias.size() * sizeof(TokenBias);
    std::memcpy(at, beginning.prompt.data(), beginning.prompt.size() * sizeof(std::int32_t));
    sent.push_back(ranks_.send(out.beginning.data(), out.beginning.size(), ranks_.rank() + 1, beginning_tag));
  }
  out.sent = comm::Pending::all(std::move(sent));
}

void JobChain::flush() {
  for (Outgoing& one : outgoing_) one.sent.wait();
}

void JobChain::receive(Job& job, Beginning& beginning) {
  ranks_.recv(incoming_.data(), incoming_.size() * sizeof(std::int32_t), ranks_.rank() - 1, job_tag).wait();
  read(incoming_, job);
  if (job.kind != Job::begin) return;
  const auto biases = static_cast<std::size_t>(job.position);  // of Job::begin: how many there are
  incoming_beginning_.resize(beginning_bytes(static_cast<std::size_t>(job.length), biases));
  ranks_.recv(incoming_beginning_.data(), incoming_beginning_.size(), ranks_.rank() - 1, beginning_tag).wait();
  Fixed first;
  const std::byte* at = incoming_beginning_.data();
  std::memcpy(&first, at, sizeof(first));
  at += sizeof(first);
  beginning.sampling = first.sampling;
  beginning.number = first.number;
  beginning.bias.resize(biases);
  if (biases > 0) std::memcpy(beginning.bias.data(), at, biases * sizeof(TokenBias));
  at += biases * sizeof(TokenBias);
  beginning.prompt.resize(static_cast<std::size_t>(job.length));
  std::memcpy(beginning.prompt.data(), at, beginning.prompt.size() * sizeof(std::int32_t));
}

comm::Pending JobChain::send_choices(std::span<const Choice> choices) {
  return ranks_.send(choices.data(), choices.size_bytes(), 0, tokens_tag);
}

comm::Pending JobChain::receive_choices(std::span<Choice> choices) {
  return ranks_.recv(choices.data(), choices.size_bytes(), ranks_.size() - 1, tokens_tag);
}

}  // namespace ppengine::runs
