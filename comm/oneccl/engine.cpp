// The progress engine of the oneCCL CPU communicator.
#include <ppengine/comm/oneccl/engine.hpp>

#include <fmt/core.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/prctl.h>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/oneccl/last_words.hpp>

namespace ppengine::comm::oneccl {
namespace {

// How a waiting thread spends its time: it polls without pause at first, since most messages are short (ranks that share a core yield
// it), then sleeps between polls so that compute threads on the same core lose next to nothing. Yielding has no place where each rank
// has a core: the system may give it away for milliseconds, while one that slept gets it back at once.
// Large messages are moved piece by piece, one for each poll of either side: a rank that waits for one polls as long as it takes.
constexpr int polls_without_pause = 200;
constexpr std::chrono::microseconds spinning{200}, nap{20};
constexpr std::size_t bytes_per_microsecond = 1000;
constexpr int steps_at_once = 32;  // of what moves, before the clock and all else are looked at again
// A compute thread steps between its instructions. The progress thread would only take time from it on the same core: it looks now and
// then whether one instruction lasts long, and only then makes steps, fast ones while data move. Each look costs the compute thread's core
// some 20 us: with one in every millisecond, sums of 16 MiB took 4 % longer and steps of small models 5 %.
constexpr std::chrono::microseconds step_interval{100}, thread_nap{50};
constexpr std::chrono::milliseconds thread_rest{4}, until_parked{10};

// Sleeps end when asked and not up to 50 us later.
void wake_on_time() {
  thread_local const bool once = prctl(PR_SET_TIMERSLACK, 1000UL) == 0;
  static_cast<void>(once);
}

}  // namespace

Operation::Operation(Engine& engine, const char* name, int rank, int peer, int tag, std::size_t bytes, ops::Event after,
                     std::chrono::milliseconds timeout)
    : engine_(engine), name_(name), rank_(rank), peer_(peer), tag_(tag), bytes_(bytes), after_(std::move(after)), timeout_(timeout) {}

bool Operation::done() {
  if (!finished() && !engine_.rendezvous().failed()) engine_.progress();
  return finished() || engine_.rendezvous().failed();
}

void Operation::wait(Clock::time_point deadline) {
  const auto begin = Clock::now();
  ++engine_.waiting_;
  LastWords::awaited() = this;
  bool lingered = false;
  const auto spin_until = begin + spinning + std::chrono::microseconds(bytes_ / bytes_per_microsecond);
  for (int polls = 0; !finished(); ++polls) {
    if (engine_.rendezvous().failed()) break;
    engine_.progress(this);
    if (finished()) break;
    if (polls < polls_without_pause) {
      _mm_pause();
      continue;
    }
    const auto now = Clock::now();
    if (now >= spin_until) {
      wake_on_time();
      std::this_thread::sleep_for(nap);
    } else if (engine_.crowded_) {
      sched_yield();
    }
    if (!lingered && now - begin > std::chrono::milliseconds(100)) {
      lingered = true;
      linger();
    }
    if (now >= deadline) break;
  }
  LastWords::awaited() = nullptr;
  --engine_.waiting_;
  if (state_ == State::finished) return;
  if (state_ == State::failed) {
    // A broken connection is seen by the transport before the rendezvous knows whose it was.
    engine_.rendezvous().wait_for_failure(std::chrono::milliseconds(500));
    if (!engine_.rendezvous().failed()) throw CommError(peer_, name_, tag_, error_);
  }
  if (const auto failed = engine_.rendezvous().failure()) throw CommError(peer_ < 0 ? failed->rank : peer_, name_, tag_, failed->text());
  throw_late(begin);
}

void Operation::finish(std::size_t bytes) {
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

Engine::Engine(std::shared_ptr<Rendezvous> rendezvous, bool with_thread, bool crowded)
    : rendezvous_(std::move(rendezvous)), crowded_(crowded) {
  rendezvous_->on_failure([this] { stop(); });
  if (with_thread) thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  rendezvous_->on_failure({});
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

void Engine::progress(const Operation* awaited) {
  if (try_step(awaited)) last_step_ = Clock::now().time_since_epoch().count();
}

bool Engine::try_step(const Operation* awaited) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  step_all();
  for (int steps = 0; awaited && moving_ && !awaited->finished() && steps < steps_at_once; ++steps)
    for (Stepper* stepper : steppers_)
      if (stepper->moving()) stepper->step();
  return true;
}

void Engine::stop() {
  stopped_ = true;
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::seconds(2);) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void Engine::progress_now_and_then() {
  if (!idle_ && since_last_step() > step_interval) progress();
}

void Engine::step_all() {
  bool idle = true, moving = false;
  for (Stepper* stepper : steppers_) {
    stepper->step();
    idle = idle && stepper->idle();
    moving = moving || stepper->moving();
  }
  idle_ = idle;
  moving_ = moving;
}

void Engine::run() {
  wake_on_time();
  LastWords::aside() = true;
  auto active = Clock::now();
  while (!closing_) {
    const bool idle = idle_;
    if (!idle) active = Clock::now();
    if (idle && Clock::now() - active > until_parked) {
      std::unique_lock lock(mutex_);
      parked_ = true;
      changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return closing_ || !idle_; });
      parked_ = false;
      continue;
    }
    const bool mine = !idle && waiting_ == 0 && !rendezvous_->failed() && since_last_step() > thread_rest;
    if (mine) try_step();
    std::this_thread::sleep_for(mine && moving_ ? thread_nap : std::chrono::microseconds(thread_rest));
  }
}

}  // namespace ppengine::comm::oneccl
