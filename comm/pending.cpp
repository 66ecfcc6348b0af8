// Pending: an operation under way between ranks.
#include <ppengine/comm/pending.hpp>

#include <algorithm>

namespace ppengine::comm {
namespace {

class Several : public Pending::State {
 public:
  explicit Several(std::vector<Pending> parts) : parts_(std::move(parts)) {}
  bool done() override { return std::ranges::all_of(parts_, &Pending::done); }
  void wait(Clock::time_point deadline) override {
    for (const Pending& part : parts_)
      if (part.state()) part.state()->wait(deadline);
  }
  void wait_on(ops::Stream& stream, Clock::time_point deadline) override {
    for (const Pending& part : parts_)
      if (part.state()) part.state()->wait_on(stream, deadline);
  }
  std::size_t bytes() override {
    std::size_t sum = 0;
    for (const Pending& part : parts_) sum += part.bytes();
    return sum;
  }
  std::chrono::milliseconds timeout() override {
    std::chrono::milliseconds longest{0};
    for (const Pending& part : parts_)
      if (part.state()) longest = std::max(longest, part.state()->timeout());
    return longest;
  }

 private:
  std::vector<Pending> parts_;
};

}  // namespace

void Pending::State::wait_on(ops::Stream&, Clock::time_point deadline) { wait(deadline); }

Pending Pending::all(std::vector<Pending> parts) { return Pending(std::make_shared<Several>(std::move(parts))); }

bool Pending::done() const { return !state_ || state_->done(); }

void Pending::wait() const {
  if (state_) state_->wait(Clock::now() + state_->timeout());
}

void Pending::wait(std::chrono::milliseconds timeout) const {
  if (state_) state_->wait(Clock::now() + timeout);
}

void Pending::wait_on(ops::Stream& stream) const {
  if (state_) state_->wait_on(stream, Clock::now() + state_->timeout());
}

std::size_t Pending::bytes() const { return state_ ? state_->bytes() : 0; }

}  // namespace ppengine::comm
