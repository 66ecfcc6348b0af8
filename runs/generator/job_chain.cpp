// Jobs from rank to rank, tokens from the last to the first.
#include <ppengine/runs/generator/job_chain.hpp>

#include <algorithm>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/decoder.hpp>

namespace ppengine::runs {
namespace {

enum Tag : int { job_tag = engine::Decoder::first_free_tag, beginning_tag, tokens_tag };

constexpr std::size_t fixed_words = 8;  // of a job, before the positions and tokens

struct Fixed {  // of a beginning, before what has any length
  SamplingOptions sampling;
  std::uint64_t number;
  std::int64_t most_tokens;
  std::size_t prompt, generated, bias, end_ids, schema;  // how many there are of each
};

// One after the other: from a beginning to bytes, or back.
void write_beginning(const Beginning& from, std::vector<std::byte>& to) {
  const Fixed fixed{from.sampling,         from.number,      from.most_tokens,    from.prompt.size(),
                    from.generated.size(), from.bias.size(), from.end_ids.size(), from.schema.size()};
  to.clear();
  const auto put = [&](const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    to.insert(to.end(), begin, begin + bytes);
  };
  put(&fixed, sizeof(fixed));
  put(from.prompt.data(), from.prompt.size() * sizeof(std::int32_t));
  put(from.generated.data(), from.generated.size() * sizeof(std::int32_t));
  put(from.bias.data(), from.bias.size() * sizeof(TokenBias));
  put(from.end_ids.data(), from.end_ids.size() * sizeof(std::int32_t));
  put(from.schema.data(), from.schema.size());
}

void read_beginning(std::span<const std::byte> from, Beginning& to) {
  const auto take = [&](void* data, std::size_t bytes) {
    PPENGINE_ASSERT(bytes <= from.size());
    if (bytes > 0) std::memcpy(data, from.data(), bytes);
    from = from.subspan(bytes);
  };
  Fixed fixed;
  take(&fixed, sizeof(fixed));
  to.sampling = fixed.sampling;
  to.number = fixed.number;
  to.most_tokens = fixed.most_tokens;
  to.prompt.resize(fixed.prompt);
  to.generated.resize(fixed.generated);
  to.bias.resize(fixed.bias);
  to.end_ids.resize(fixed.end_ids);
  to.schema.resize(fixed.schema);
  take(to.prompt.data(), to.prompt.size() * sizeof(std::int32_t));
  take(to.generated.data(), to.generated.size() * sizeof(std::int32_t));
  take(to.bias.data(), to.bias.size() * sizeof(TokenBias));
  take(to.end_ids.data(), to.end_ids.size() * sizeof(std::int32_t));
  take(to.schema.data(), to.schema.size());
}

}  // namespace

JobChain::JobChain(comm::Communicator& ranks, std::int64_t sequences, comm::Communicator* tensor)
    : ranks_(ranks),
      tensor_(tensor),
      incoming_(fixed_words + static_cast<std::size_t>(sequences + engine::Decoder::most_verified)),
      shared_(incoming_.size() + 1) {
  for (Outgoing& one : outgoing_) one.job.resize(incoming_.size());
}

void JobChain::write(const Job& job, std::vector<std::int32_t>& words) const {
  const auto positions = static_cast<std::int32_t>(job.positions.size()), tokens = static_cast<std::int32_t>(job.tokens.size());
  const std::array<std::int32_t, fixed_words> fixed{job.kind,   job.group, job.sequence, job.position,
                                                    job.length, job.whole, positions,    tokens};
  std::ranges::copy(job.tokens, std::ranges::copy(job.positions, std::ranges::copy(fixed, words.begin()).out).out);
}

void JobChain::read(const std::vector<std::int32_t>& words, Job& job) const {
  job.kind = static_cast<Job::Kind>(words[0]);
  job.group = words[1];
  job.sequence = words[2];
  job.position = words[3];
  job.length = words[4];
  job.whole = words[5];
  const auto positions = words.begin() + fixed_words, tokens = positions + words[6];
  job.positions.assign(positions, tokens);
  job.tokens.assign(tokens, tokens + words[7]);
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

void JobChain::pass_on(Job job, const Beginning& beginning) {
  if (is_last()) return;
  Outgoing& out = outgoing_[next_];
  next_ = (next_ + 1) % outgoing_.size();
  out.sent.wait();
  if (job.kind == Job::begin) {
    write_beginning(beginning, out.beginning);
    job.length = static_cast<std::int32_t>(out.beginning.size());
  }
  write(job, out.job);
  std::vector<comm::Pending> sent{ranks_.send(out.job.data(), out.job.size() * sizeof(std::int32_t), ranks_.rank() + 1, job_tag)};
  if (job.kind == Job::begin) sent.push_back(ranks_.send(out.beginning.data(), out.beginning.size(), ranks_.rank() + 1, beginning_tag));
  out.sent = comm::Pending::all(std::move(sent));
}

void JobChain::flush() {
  for (Outgoing& one : outgoing_) one.sent.wait();
}

void JobChain::receive(Job& job, Beginning& beginning) {
  ranks_.recv(incoming_.data(), incoming_.size() * sizeof(std::int32_t), ranks_.rank() - 1, job_tag).wait();
  read(incoming_, job);
  if (job.kind != Job::begin) return;
  incoming_beginning_.resize(static_cast<std::size_t>(job.length));
  ranks_.recv(incoming_beginning_.data(), incoming_beginning_.size(), ranks_.rank() - 1, beginning_tag).wait();
  read_beginning(incoming_beginning_, beginning);
}

comm::Pending JobChain::send_choices(std::span<const Choice> choices) {
  return ranks_.send(choices.data(), choices.size_bytes(), 0, tokens_tag);
}

comm::Pending JobChain::receive_choices(std::span<Choice> choices) {
  return ranks_.recv(choices.data(), choices.size_bytes(), ranks_.size() - 1, tokens_tag);
}

}  // namespace ppengine::runs
