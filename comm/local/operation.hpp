// One operation of one rank under way between threads, and the signal that all ranks of a run share.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>

namespace ppengine::comm::local {

// One lock and one condition for the whole run: operations are few and long, and an abort must reach every wait.
struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Failure> failure;

  void fail(int rank, const std::string& reason);
};

class Operation : public Pending::State {
 public:
  Operation(std::shared_ptr<Signal> signal, std::string name, int rank, int peer, int tag, std::size_t bytes,
            std::chrono::milliseconds timeout);

  bool done() override;
  void wait(Clock::time_point deadline) override;
  void wait_on(ops::Stream& stream, Clock::time_point deadline) override;
  std::size_t bytes() override;
  std::chrono::milliseconds timeout() override { return timeout_; }

  // The peer is there: the memory is free when the event is reached. An error instead when the text is not empty.
  // Called with the signal's lock held.
  void settle(ops::Event event, std::size_t bytes, std::string error = {});

  // Which rank (of the whole run) is awaited, for operations of many; called with the lock held.
  void set_missing(std::function<int()> missing) { missing_ = std::move(missing); }
  // Settled, and the event reached. Called with the lock held.
  bool finished() const { return settled_ && event_.done(); }
  // Until nothing touches the memory any more, whatever the outcome; also after a failure of the run. For matched operations only.
  void wait_finished(Clock::time_point deadline);

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int tag() const { return tag_; }

 private:
  // Until the peer is there. Throws on errors.
  ops::Event wait_settled(Clock::time_point deadline);
  [[noreturn]] void throw_late(int peer, Clock::time_point begin, const char* what) const;

  const std::shared_ptr<Signal> signal_;
  const std::string name_;
  const int rank_, peer_, tag_;
  const std::chrono::milliseconds timeout_;
  std::function<int()> missing_;
  // Guarded by the signal's lock.
  bool settled_ = false;
  std::string error_;
  ops::Event event_;
  std::size_t bytes_;
};

using OperationPtr = std::shared_ptr<Operation>;

}  // namespace ppengine::comm::local
