// The progress engine of the oneCCL CPU communicator.
#include <ppengine/comm/oneccl/engine.hpp>

#include <fmt/core.h>
#include <immintrin.h>
#include <sched.h>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::oneccl {
namespace {

// How a waiting thread spends its time: it polls without pause at first, since most messages are short, then lets others run, then
// sleeps between polls so that compute threads on the same core lose next to nothing.
constexpr int polls_without_pause = 200;
constexpr std::chrono::microseconds yielding{200}, nap{30};
constexpr std::chrono::microseconds thread_nap{50};

}  // namespace

Operation::Operation(Engine& engine, const char* name, int rank, int peer, int tag, size_t bytes, ops::Event after,
                     std::chrono::milliseconds timeout)
    : engine_(engine), name_(name), rank_(rank), peer_(peer), tag_(tag), bytes_(bytes), after_(std::move(after)), timeout_(timeout) {}

bool Operation::done() {
  if (!finished() && !engine_.rendezvous().failed()) engine_.progress();
  return finished() || engine_.rendezvous().failed();
}

void Operation::wait(Clock::time_point deadline) {
  const auto begin = Clock::now();
  ++engine_.waiting_;
  bool lingered = false;
  for (int polls = 0; !finished(); ++polls) {
    if (engine_.rendezvous().failed()) break;
    engine_.progress();
    if (finished()) break;
    if (polls < polls_without_pause) {
      _mm_pause();
      continue;
    }
    const auto now = Clock::now();
    if (now - begin < yielding)
      sched_yield();
    else
      std::this_thread::sleep_for(nap);
    if (!lingered && now - begin > std::chrono::milliseconds(100)) {
      lingered = true;
      linger();
    }
    if (now >= deadline) break;
  }
  --engine_.waiting_;
  if (state_ == State::finished) return;
  if (state_ == State::failed) {
    // A broken connection is seen by the transport before the rendezvous knows whose it was.
    engine_.rendezvous().wait_for_failure(std::chrono::milliseconds(500));
    if (!engine_.rendezvous().failed()) throw CommError(peer_, name_, tag_, error_);
  }
  if (const auto failed = engine_.rendezvous().failure())
    throw CommError(peer_ < 0 ? failed->rank : peer_, name_, tag_, fmt::format("rank {} failed: {}", failed->rank, failed->reason));
  throw_late(begin);
}

void Operation::finish(size_t bytes) {
  bytes_ = bytes;
  state_ = State::finished;
}

void Operation::fail(std::string error) {
  error_ = std::move(error);
  state_ = State::failed;
}

void Operation::throw_late(Clock::time_point begin) {
  const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
  throw CommError(peer_, name_, tag_,
                  fmt::format("rank {} waited {:.1f} s: {} (--timeout sets how long to wait)", rank_, waited, awaited()));
}

Engine::Engine(std::shared_ptr<Rendezvous> rendezvous, bool with_thread) : rendezvous_(std::move(rendezvous)) {
  if (with_thread) thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  closing_ = true;
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Engine::add(Stepper* stepper) {
  const std::lock_guard lock(mutex_);
  steppers_.push_back(stepper);
}

void Engine::remove(Stepper* stepper) {
  const std::lock_guard lock(mutex_);
  std::erase(steppers_, stepper);
}

void Engine::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) step_all();
}

void Engine::step_all() {
  bool idle = true;
  for (Stepper* stepper : steppers_) {
    stepper->step();
    idle = idle && stepper->idle();
  }
  idle_ = idle;
}

void Engine::run() {
  while (!closing_) {
    if (idle_) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return closing_ || !idle_; });
      continue;
    }
    if (waiting_ == 0 && !rendezvous_->failed()) progress();
    std::this_thread::sleep_for(thread_nap);
  }
}

}  // namespace ppengine::comm::oneccl
