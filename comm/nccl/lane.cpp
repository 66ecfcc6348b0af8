// A lane: one NCCL communicator with a stream and a thread of its own.
#include <ppengine/comm/nccl/lane.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::nccl {
namespace {
// A receive may be posted long before its message: deadlines count from when somebody waits.
constexpr std::chrono::hours forever{24 * 365};
constexpr std::chrono::seconds longest_stop{2};
}  // namespace

bool Call::done() {
  const std::lock_guard lock(mutex_);
  if (rendezvous_->failed() || stage_ == Stage::failed) return true;
  return stage_ == Stage::submitted && reached_();
}

bool Call::reached() {
  const std::lock_guard lock(mutex_);
  return !reached_ || reached_();
}

void Call::give_up() {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::submitted && !reached_()) stage_ = Stage::given_up;
}

void Call::wait_until(Clock::time_point deadline, bool finished) {
  const auto begin = Clock::now();
  for (int polls = 0;; ++polls) {
    {
      const std::lock_guard lock(mutex_);
      if (stage_ == Stage::submitted && (!finished || reached_())) return;
      if (stage_ == Stage::failed && !rendezvous_->failed()) throw CommError(text.peer, text.name, text.tag, error_);
    }
    if (const auto failed = rendezvous_->failed() ? rendezvous_->failure() : std::nullopt)
      throw CommError(text.peer < 0 ? failed->rank : text.peer, text.name, text.tag, failed->text());
    if (Clock::now() >= deadline)
      throw CommError(text.peer, text.name, text.tag,
                      fmt::format("rank {} waited {:.1f} s: {} (--timeout sets how long to wait)", text.rank,
                                  std::chrono::duration<double>(Clock::now() - begin).count(), awaited()));
    if (polls > 100) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

std::string Call::awaited() {
  std::string key;
  std::vector<int> members;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Stage::submitted) return "NCCL does not move the data";
    if (key_.empty()) return "calls before it have not been carried out";
    key = key_;
    members = members_;
  }
  return fmt::format("not there: rank {}", fmt::join(rendezvous_->missing(key, members), ", "));
}

void Call::gathers_at(std::string key, std::span<const int> members) {
  const std::lock_guard lock(mutex_);
  key_ = std::move(key);
  members_.assign(members.begin(), members.end());
}

void Call::wait(Clock::time_point deadline) { wait_until(deadline, true); }

void Call::wait_on(ops::Stream& stream, Clock::time_point deadline) {
  wait_until(deadline, false);
  ops::Event end;
  {
    const std::lock_guard lock(mutex_);
    end = end_;
  }
  if (!end.impl()) return wait_until(deadline, true);  // oneCCL's and the stand-in's streams give no events of ours
  stream.wait_for(end);
}

void Call::submitted(std::function<bool()> reached, ops::Event end) {
  const std::lock_guard lock(mutex_);
  reached_ = std::move(reached);
  end_ = std::move(end);
  stage_ = Stage::submitted;
}

void Call::fail(const std::string& error) {
  const std::lock_guard lock(mutex_);
  error_ = error;
  stage_ = Stage::failed;
}

void Lanes::add(Lane* lane) {
  const std::lock_guard lock(mutex_);
  lanes_.push_back(lane);
}

void Lanes::remove(Lane* lane) {
  const std::lock_guard lock(mutex_);
  std::erase(lanes_, lane);
}

void Lanes::wait_until_stopped() {
  const auto deadline = Clock::now() + longest_stop;
  const std::lock_guard lock(mutex_);
  for (Lane* lane : lanes_) lane->wait_until_stopped(deadline);
}

Lane::Lane(const Api& api, std::shared_ptr<ops::Device> device, std::shared_ptr<Rendezvous> rendezvous, std::shared_ptr<Lanes> all,
           std::string key, std::vector<int> members, int index)
    : api_(api),
      device_(std::move(device)),
      rendezvous_(std::move(rendezvous)),
      all_(std::move(all)),
      key_(std::move(key)),
      members_(std::move(members)),
      index_(index) {
  all_->add(this);
  thread_ = std::thread([this] { run(); });
}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  all_->remove(this);
}

void Lane::add(std::vector<CallPtr> calls) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(calls));
  }
  changed_.notify_all();
}

void Lane::wait_until_stopped(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.notify_all();
  changed_.wait_until(lock, deadline, [&] { return stopped_; });
}

void Lane::run() {
  {
    std::unique_lock lock(mutex_);
    while (!rendezvous_->failed() && !(closing_ && queue_.empty() && under_way_.empty())) work(lock);
    queue_.clear();
  }
  if (target_) target_->enter();
  if (rendezvous_->failed())
    abort();
  else if (comm_)
    api_.CommDestroy(comm_);
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Lane::work(std::unique_lock<std::mutex>& lock) {
  changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return closing_ || !queue_.empty() || rendezvous_->failed(); });
  std::vector<CallPtr> calls;
  if (!queue_.empty()) {
    calls = std::move(queue_.front());
    queue_.pop_front();
  }
  lock.unlock();
  try {
    if (!calls.empty()) submit(calls);
    watch();
  } catch (const std::exception& error) {
    for (const CallPtr& call : calls) call->fail(error.what());
    if (!closing_ && !rendezvous_->wait_for_failure(std::chrono::milliseconds(1000))) rendezvous_->abort(error.what());
  }
  lock.lock();
}

// Ends the kernels under way, then waits until the stream has got past them: only then nothing uses their memory. Where the library has no
// abort (oneCCL on GPUs) this waits for the data, which may never come.
void Lane::abort() {
  for (const CallPtr& call : under_way_) call->give_up();
  if (comm_) api_.CommAbort(std::exchange(comm_, nullptr));
  const auto deadline = Clock::now() + longest_stop;
  while (Clock::now() < deadline && !std::ranges::all_of(under_way_, &Call::reached, [](const CallPtr& call) -> Call& { return *call; }))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void Lane::check_alive() const {
  if (rendezvous_->failed()) throw Error("another rank has failed");
}

void Lane::connect() {
  UniqueId id{};
  if (index_ == 0) api_.check(api_.GetUniqueId(&id), "making an id");
  const auto ids =
      rendezvous_->gather(key_, members_, index_, index_ == 0 ? std::string_view(id.internal, sizeof(id.internal)) : std::string_view(),
                          forever, "start of NCCL", &closing_);
  std::memcpy(id.internal, ids[0].data(), std::min(ids[0].size(), sizeof(id.internal)));
  target_ = make_target(api_, device_);
  target_->enter();
  api_.check(api_.CommInitRank(&comm_, static_cast<int>(members_.size()), id, index_), "starting a communicator");
}

void Lane::agree(Call& call) {
  const std::string key = fmt::format("{} call {}", key_, calls_++);
  call.gathers_at(key, members_);
  const auto claims = rendezvous_->gather(key, members_, index_, call.claim, forever, call.text.name, &closing_);
  std::size_t bytes = call.bytes();
  if (const std::string wrong = call.agree(claims, bytes); !wrong.empty())
    throw CommError(call.text.peer, call.text.name, call.text.tag, wrong);
  call.set_bytes(bytes);
}

void Lane::submit(const std::vector<CallPtr>& calls) {
  std::vector<ops::Event> after;
  for (const CallPtr& call : calls) {
    agree(*call);
    after.push_back(call->after);
  }
  if (!comm_) connect();
  ops::Event end;
  const auto reached = target_->run(
      after,
      [this, calls](NativeStream stream) {
        check_alive();
        api_.check(api_.GroupStart(), "group");
        for (const CallPtr& call : calls) call->submit(comm_, stream, call->bytes());
        api_.check(api_.GroupEnd(), calls.front()->text.name.c_str());
      },
      end);
  for (const CallPtr& call : calls) {
    call->submitted(reached, end);
    under_way_.push_back(call);
  }
}

// Errors of kernels under way show up here only.
void Lane::watch() {
  std::erase_if(under_way_, [](const CallPtr& call) { return call->reached(); });
  if (!comm_ || under_way_.empty()) return;
  Result error = success;
  api_.check(api_.CommGetAsyncError(comm_, &error), "asking for errors");
  api_.check(error, under_way_.front()->text.name.c_str());
}

}  // namespace ppengine::comm::nccl
