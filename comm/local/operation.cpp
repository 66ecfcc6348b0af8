// One operation of one rank under way between threads.
#include <ppengine/comm/local/operation.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::local {

void Signal::fail(int rank, const std::string& reason) {
  {
    const std::lock_guard lock(mutex);
    if (!failure) failure = Failure{rank, reason};
  }
  changed.notify_all();
}

Operation::Operation(std::shared_ptr<Signal> signal, std::string name, int rank, int peer, int tag, std::size_t bytes,
                     std::chrono::milliseconds timeout)
    : signal_(std::move(signal)), name_(std::move(name)), rank_(rank), peer_(peer), tag_(tag), timeout_(timeout), bytes_(bytes) {}

bool Operation::done() {
  ops::Event event;
  {
    const std::lock_guard lock(signal_->mutex);
    if (!settled_) return signal_->failure.has_value();
    event = event_;
  }
  return event.done();
}

ops::Event Operation::wait_settled(Clock::time_point deadline) {
  const auto begin = Clock::now();
  std::unique_lock lock(signal_->mutex);
  signal_->changed.wait_until(lock, deadline, [&] { return settled_ || signal_->failure; });
  if (settled_) {
    if (!error_.empty()) throw CommError(peer_, name_, tag_, error_);
    return event_;
  }
  if (signal_->failure) throw CommError(peer_, name_, tag_, signal_->failure->text());
  throw_late(missing_ ? missing_() : peer_, begin, "has not posted its side");
}

void Operation::wait(Clock::time_point deadline) {
  const auto begin = Clock::now();
  const ops::Event event = wait_settled(deadline);
  if (!event.wait_until(deadline)) throw_late(peer_, begin, "has posted its side, but the work before it has not finished");
}

void Operation::wait_on(ops::Stream& stream, Clock::time_point deadline) { stream.wait_for(wait_settled(deadline)); }

void Operation::wait_finished(Clock::time_point deadline) {
  std::unique_lock lock(signal_->mutex);
  signal_->changed.wait_until(lock, deadline, [&] { return settled_; });
  const ops::Event event = event_;
  lock.unlock();
  event.wait_until(deadline);
}

std::size_t Operation::bytes() {
  const std::lock_guard lock(signal_->mutex);
  return bytes_;
}

void Operation::settle(ops::Event event, std::size_t bytes, std::string error) {
  settled_ = true;
  event_ = std::move(event);
  bytes_ = bytes;
  error_ = std::move(error);
}

void Operation::throw_late(int peer, Clock::time_point begin, const char* what) const {
  const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string who = peer < 0 ? "another rank" : fmt::format("rank {}", peer);
  throw CommError(peer, name_, tag_,
                  fmt::format("rank {} waited {:.1f} s, {} {} (--timeout sets how long to wait)", rank_, waited, who, what));
}

}  // namespace ppengine::comm::local
