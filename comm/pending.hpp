// Pending: an operation under way between ranks. Copies of it refer to the same operation.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::comm {

using Clock = std::chrono::steady_clock;

// What must be finished before an operation touches its memory: what a stream has been given so far, an event, or nothing.
class After {
 public:
  After() = default;
  After(ops::Stream& stream) : event_(stream.record()) {}  // NOLINT: implicit on purpose
  After(ops::Event event) : event_(std::move(event)) {}    // NOLINT
  const ops::Event& event() const { return event_; }

 private:
  ops::Event event_;
};

class Pending {
 public:
  Pending() = default;  // nothing under way
  // All of them as one. An error of any is thrown.
  static Pending all(std::vector<Pending> parts);

  // Finished or failed; never blocks, never throws.
  bool done() const;
  // Blocks until the memory may be used again. CommError (peer, operation, tag) after the communicator's timeout, when the
  // peer's size differs, or when any rank has failed.
  void wait() const;
  void wait(std::chrono::milliseconds timeout) const;
  // Work submitted to the stream from now on starts when the operation is finished. Blocks the caller only until the peer has
  // posted its side (local) or the data is there (CPU processes); throws as wait() does.
  void wait_on(ops::Stream& stream) const;
  // Bytes that were received; known after wait() or wait_on().
  std::size_t bytes() const;

  // What communicators implement.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;
    virtual void wait(Clock::time_point deadline) = 0;
    virtual void wait_on(ops::Stream& stream, Clock::time_point deadline);
    virtual std::size_t bytes() { return 0; }
    virtual std::chrono::milliseconds timeout() = 0;
  };
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ppengine::comm
