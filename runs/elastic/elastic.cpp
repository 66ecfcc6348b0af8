// One rank of an elastic run.
#include <ppengine/runs/elastic/elastic.hpp>

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/processes.hpp>

namespace ppengine::runs {
namespace {

using Clock = std::chrono::steady_clock;

// A communication library may end the process when a peer is gone (comm/oneccl/last_words.hpp): the state is kept on the way out, before
// anything is destroyed that other threads still use.
std::atomic<Elastic*> guarded{nullptr};
void on_exit() {
  Elastic* const elastic = guarded.load();
  if (!elastic) return;
  elastic->survive(std::chrono::seconds(30));
  comm::leave(static_cast<int>(ExitCode::peer_lost));
}

}  // namespace

Elastic::Elastic(std::filesystem::path folder, int start, int rank, int parts)
    : folder_(std::move(folder)), record_(folder_ / fmt::format("record-{}", start)), start_(start), rank_(rank), parts_(parts) {
  for (int before = start; before-- > 0 && !found_;) {  // the newest that is whole
    kept_ = folder_ / fmt::format("kept-{}", before);
    found_ = find_kept(kept_, parts);
  }
}

Elastic::~Elastic() { guarded = nullptr; }

void Elastic::commit(double loss, double grad_norm) {
  const std::lock_guard lock(mutex_);
  if (survived_ || !record_.commit(now_.step + 1, rank_, {loss, grad_norm}))
    throw CommError(-1, "update", -1, fmt::format("step {} was given up: a rank was lost", now_.step + 1));
  updating_ = true;
}

void Elastic::guard(engine::Trainer& trainer, const KeptStep& now) {
  trainer_ = &trainer;
  now_ = now;
  guarded = this;
  record_->trains = 1;
  std::atexit(on_exit);
}

void Elastic::begin(const models::DataPosition& behind) {
  const std::lock_guard lock(mutex_);
  next_ = now_;
  next_.step = now_.step + 1;
  next_.position = behind;
}

void Elastic::completed(const engine::StepResult& result) {
  {
    const std::lock_guard lock(mutex_);
    now_ = next_;
    now_.last = result;
    updating_ = false;
    if (record_->step < now_.step) record_->step = now_.step;
  }
  changed_.notify_all();
  if (std::exchange(stepped_, true)) return;
  std::error_code ignored;
  for (int before = 0; rank_ == 0 && before < start_; ++before)  // all ranks have loaded it
    std::filesystem::remove_all(folder_ / fmt::format("kept-{}", before), ignored);
  std::atexit(on_exit);  // again: what the first step has made is destroyed before what was registered earlier is called
}

void Elastic::survive(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  if (survived_ || !trainer_) return;
  survived_ = true;
  record_->survivors[rank_] = 1;
  const auto until = Clock::now() + deadline;
  // Another thread may be in the middle of an update that counts.
  if (!changed_.wait_until(lock, until, [this] { return !updating_; })) return;
  try {
    if (trainer_->ready_to_update())
      if (const auto outcome = record_.give_up(now_.step + 1)) {
        trainer_->finish_update(outcome->grad_norm);
        now_ = next_;
        now_.last.step = now_.step;
        now_.last.loss = outcome->loss;
        now_.last.grad_norm = outcome->grad_norm;
      }
    keep_part(until);
  } catch (const std::exception& error) {  // no room: the run goes on from a checkpoint, if at all
    log::warning(fmt::format("the state of step {} could not be kept in memory: {}", now_.step, error.what()));
  }
}

void Elastic::keep_part(Clock::time_point until) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  ElasticRecord::Claim& mine = record_->claims[part_of(trainer_->mesh())];
  const auto me = static_cast<std::int32_t>(getpid());
  std::int32_t owner = 0;
  while (!mine.done && Clock::now() < until) {
    // Of those who have it one writes; where that one is killed too, the next.
    if ((owner == 0 || (kill(owner, 0) != 0 && errno == ESRCH)) && mine.owner.compare_exchange_strong(owner, me)) {
      write_part(folder_ / fmt::format("kept-{}", start_), *trainer_, now_);
      mine.done = 1;
    } else {
      pause();
      owner = mine.owner;
    }
  }
  // The launcher ends stragglers some time after the first rank has ended. Not for a part that nobody has begun: the rank that has it may
  // be waiting, in its abort, for this one to end.
  for (int part = 0; part < parts_; ++part)
    while (record_->claims[part].owner != 0 && !record_->claims[part].done && Clock::now() < until) pause();
}

void Elastic::over() {
  release();
  record_->over = 1;
}

void Elastic::release() {
  const std::lock_guard lock(mutex_);
  guarded = nullptr;
  trainer_ = nullptr;
}

}  // namespace ppengine::runs
