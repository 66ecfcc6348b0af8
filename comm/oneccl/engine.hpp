// The progress engine of the oneCCL CPU communicator: oneCCL moves data only while somebody asks it to, so whoever waits does, and
// a thread does in between.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ppengine/comm/net/rendezvous.hpp>

namespace ppengine::comm::oneccl {

class Engine;

// One operation under way. Steps are made with the engine's lock held.
class Operation : public Pending::State {
 public:
  Operation(Engine& engine, const char* name, int rank, int peer, int tag, std::size_t bytes, ops::Event after,
            std::chrono::milliseconds timeout);

  bool done() override;
  void wait(Clock::time_point deadline) override;
  std::size_t bytes() override { return bytes_; }
  std::chrono::milliseconds timeout() override { return timeout_; }

  const std::string& name() const { return name_; }
  int peer() const { return peer_; }
  int tag() const { return tag_; }
  bool ready() const { return after_.done(); }
  bool finished() const { return state_ != State::under_way; }
  // Tries to get on. Nothing for messages, whose channel does it.
  virtual void step() {}
  void finish(std::size_t bytes);
  void fail(std::string error);
  // Who is being waited for, to be told at a deadline; also called without the lock.
  virtual std::string awaited() = 0;
  // A chance to say that this rank has been waiting for a while.
  virtual void linger() {}

 private:
  enum class State { under_way, finished, failed };
  [[noreturn]] void throw_late(Clock::time_point begin);

  Engine& engine_;
  const std::string name_;
  const int rank_, peer_, tag_;
  std::atomic<std::size_t> bytes_;
  const ops::Event after_;
  const std::chrono::milliseconds timeout_;
  std::atomic<State> state_{State::under_way};
  std::string error_;
};

using OperationPtr = std::shared_ptr<Operation>;

// Something with steps of its own: a group's channels and collectives.
class Stepper {
 public:
  virtual ~Stepper() = default;
  // Nothing left to do: the thread may sleep.
  virtual bool idle() const = 0;
  // Both sides are there and data are on their way: each step brings them on.
  virtual bool moving() const = 0;
  virtual void step() = 0;
};

class Engine {
 public:
  // with_thread: a thread makes progress while nobody waits. crowded: ranks share cores.
  Engine(std::shared_ptr<Rendezvous> rendezvous, bool with_thread, bool crowded);
  ~Engine();
  bool has_thread() const { return thread_.joinable(); }

  void add(Stepper* stepper);
  void remove(Stepper* stepper);
  // Carries out an action under the lock, after which there is something to do.
  template <class Action>
  void with_lock(Action&& action) {
    {
      const std::lock_guard lock(mutex_);
      action();
      idle_ = false;
    }
    if (parked_) changed_.notify_one();
  }
  // awaited: brings on what moves for a while, until it is finished.
  void progress(const Operation* awaited = nullptr);
  // No more steps, of any thread. Waits for the one that is under way: two seconds at most, since a library may hang in it.
  void stop();
  bool stopped() const { return stopped_ || rendezvous_->failed(); }
  // A step, unless somebody has done it a moment ago.
  void progress_now_and_then();
  Rendezvous& rendezvous() const { return *rendezvous_; }

 private:
  void step_all();
  bool try_step(const Operation* awaited = nullptr);  // unless another thread is at it
  void run();
  Clock::duration since_last_step() const { return Clock::now().time_since_epoch() - Clock::duration(last_step_); }

  std::shared_ptr<Rendezvous> rendezvous_;
  const bool crowded_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stepper*> steppers_;
  std::atomic<bool> idle_{true}, moving_{false}, closing_{false}, parked_{false}, stopped_{false};
  std::atomic<Clock::rep> last_step_{0};  // that a thread of the caller's has made
  std::atomic<int> waiting_{0};           // threads in Operation::wait: they make progress themselves
  friend class Operation;
  std::thread thread_;
};

}  // namespace ppengine::comm::oneccl
