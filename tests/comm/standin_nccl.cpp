// A stand-in for libnccl.so.2: the same functions, moving host memory between threads of one process. Its streams are threads that
// carry out what was enqueued in order, and a call waits inside its stream until its peers have come, as NCCL's kernels do.
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <ppengine/comm/nccl/api.hpp>
#include <ppengine/comm/reduce.hpp>

using namespace ppengine::comm;
using nccl::Result;

namespace {

std::mutex mutex;
std::condition_variable changed;

struct Piece {  // of memory, offered to a peer
  const void* data;
  std::size_t bytes;
  bool taken = false;
};

struct Meeting {  // of all ranks in one collective
  std::vector<const void*> in;
  std::vector<void*> out;
  int arrived = 0, left = 0;
  bool done = false;
};

struct Shared {  // what the ranks of a communicator share
  int ranks = 0, here = 0;
  bool aborted = false;
  std::map<std::pair<int, int>, std::deque<Piece*>> offers;  // by (from, to)
  std::map<std::uint64_t, Meeting> meetings;
};

std::map<std::uint64_t, std::shared_ptr<Shared>> communicators;
std::uint64_t next_id = 1;

std::size_t width_of(int type) {
  constexpr std::size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return widths[type];
}

Type type_of(int type) {
  switch (type) {
    case nccl::float32:
      return Type::f32;
    case nccl::float64:
      return Type::f64;
    case nccl::float16:
      return Type::f16;
    case nccl::bfloat16:
      return Type::bf16;
    case nccl::int32:
      return Type::i32;
    case nccl::int64:
      return Type::i64;
    default:
      return Type::u8;
  }
}

// STANDIN_FAILS: every communicator reports that a remote process is gone, and no kernel ends until its communicator is aborted.
bool fails() { return std::getenv("STANDIN_FAILS") != nullptr; }

Reduce reduce_of(int op) { return op == nccl::sum ? Reduce::sum : op == nccl::max ? Reduce::max : Reduce::min; }

class Stream {
 public:
  Stream() {
    std::thread([this] { run(); }).detach();
  }  // lives as long as the process
  void add(std::function<void()> work) {
    const std::lock_guard lock(own_);
    work_.push_back(std::move(work));
    ++added_;
    woken_.notify_all();
  }
  long mark() {
    const std::lock_guard lock(own_);
    return added_;
  }
  bool reached(long mark) {
    const std::lock_guard lock(own_);
    return finished_ >= mark;
  }

 private:
  void run() {
    std::unique_lock lock(own_);
    for (;;) {
      woken_.wait(lock, [&] { return !work_.empty(); });
      auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++finished_;
    }
  }
  std::mutex own_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> work_;
  long added_ = 0, finished_ = 0;
};

}  // namespace

struct ppengine::comm::nccl::Opaque {
  std::shared_ptr<Shared> shared;
  int rank;
  std::uint64_t collectives = 0;
  bool aborted = false;
};

namespace {

struct Step {
  bool sends;
  void* data;
  std::size_t bytes;
  int peer;
  nccl::Comm comm;
};

thread_local int depth = 0;
thread_local std::vector<Step> steps;
thread_local std::vector<std::pair<Stream*, std::function<void()>>> others;
thread_local Stream* step_stream = nullptr;

// Once one rank has aborted, nothing touches memory any more: whoever owned it may be gone. But the kernels of the others end only when
// they abort too, as with the real library.
void end_with(nccl::Comm comm, std::unique_lock<std::mutex>& lock) {
  changed.wait(lock, [&] { return comm->aborted; });
}

// All sends and receives of a group are under way at once.
void carry_out(const std::vector<Step>& group) {
  std::vector<std::unique_ptr<Piece>> offered;
  std::unique_lock lock(mutex);
  const nccl::Comm comm = group.front().comm;
  const bool& aborted = comm->shared->aborted;
  if (fails()) changed.wait(lock, [&] { return aborted; });
  if (aborted) return end_with(comm, lock);
  for (const Step& step : group)
    if (step.sends) {
      offered.push_back(std::make_unique<Piece>(step.data, step.bytes));
      step.comm->shared->offers[{step.comm->rank, step.peer}].push_back(offered.back().get());
    }
  changed.notify_all();
  for (const Step& step : group) {
    if (step.sends) continue;
    auto& waiting = step.comm->shared->offers[{step.peer, step.comm->rank}];
    changed.wait(lock, [&] { return !waiting.empty() || aborted; });
    if (aborted) return end_with(comm, lock);
    std::memcpy(step.data, waiting.front()->data, std::min(step.bytes, waiting.front()->bytes));
    waiting.front()->taken = true;
    waiting.pop_front();
    changed.notify_all();
  }
  for (const auto& piece : offered) {
    changed.wait(lock, [&] { return piece->taken || aborted; });
    if (!piece->taken) return end_with(comm, lock);
  }
}

void flush() {
  if (depth > 0) return;
  if (!steps.empty()) step_stream->add([group = std::exchange(steps, {})] { carry_out(group); });
  for (auto& [stream, work] : std::exchange(others, {})) stream->add(std::move(work));
}

Result meet(nccl::Comm comm, const void* in, void* out, nccl::NativeStream stream, std::function<void(Meeting&)> work) {
  const std::uint64_t sequence = comm->collectives++;
  others.emplace_back(static_cast<Stream*>(stream), [=] {
    std::unique_lock lock(mutex);
    Shared& shared = *comm->shared;
    if (fails()) changed.wait(lock, [&] { return shared.aborted; });
    if (shared.aborted) return end_with(comm, lock);
    Meeting& meeting = shared.meetings[sequence];
    meeting.in.resize(static_cast<std::size_t>(shared.ranks));
    meeting.out.resize(static_cast<std::size_t>(shared.ranks));
    meeting.in[static_cast<std::size_t>(comm->rank)] = in;
    meeting.out[static_cast<std::size_t>(comm->rank)] = out;
    if (++meeting.arrived == shared.ranks) {
      work(meeting);
      meeting.done = true;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return meeting.done || shared.aborted; });
    if (!meeting.done) return end_with(comm, lock);
    if (++meeting.left == shared.ranks) shared.meetings.erase(sequence);
  });
  flush();
  return nccl::success;
}

Result message(bool sends, void* data, std::size_t count, int type, int peer, nccl::Comm comm, nccl::NativeStream stream) {
  steps.push_back({sends, data, count * width_of(type), peer, comm});
  step_stream = static_cast<Stream*>(stream);
  flush();
  return nccl::success;
}

}  // namespace

extern "C" {
void* standin_stream_create() { return new Stream; }
long standin_stream_mark(void* stream) { return static_cast<Stream*>(stream)->mark(); }
int standin_stream_reached(void* stream, long mark) { return static_cast<Stream*>(stream)->reached(mark) ? 1 : 0; }

// NOLINTBEGIN(readability-identifier-naming): the names of NCCL
Result ncclGetVersion(int* version) {
  *version = STANDIN_VERSION;
  return nccl::success;
}
const char* ncclGetErrorString(Result result) {
  return result == 6 ? "remote process exited or there was a network error" : "unhandled error";
}

#ifndef STANDIN_LACKS_ABORT
Result ncclCommAbort(nccl::Comm comm) {
  const std::lock_guard lock(mutex);
  static auto& kept = *new std::vector<nccl::Comm>;  // its streams may still refer to it
  kept.push_back(comm);
  comm->aborted = comm->shared->aborted = true;
  changed.notify_all();
  return nccl::success;
}
#endif

Result ncclGetUniqueId(nccl::UniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id, &next_id, sizeof(next_id));
  ++next_id;
  return nccl::success;
}
Result ncclCommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) {
  std::uint64_t number = 0;
  std::memcpy(&number, &id, sizeof(number));
  std::unique_lock lock(mutex);
  auto& shared = communicators[number];
  if (!shared) shared = std::make_shared<Shared>();
  const auto mine = shared;
  mine->ranks = ranks;
  ++mine->here;
  changed.notify_all();
  if (!changed.wait_for(lock, std::chrono::seconds(20), [&] { return mine->here == ranks; })) return 6;
  *comm = new nccl::Opaque{mine, rank};
  return nccl::success;
}
Result ncclCommDestroy(nccl::Comm comm) {
  delete comm;
  return nccl::success;
}
Result ncclCommGetAsyncError(nccl::Comm, Result* error) {
  *error = fails() ? 6 : nccl::success;
  return nccl::success;
}
Result ncclGroupStart() {
  ++depth;
  return nccl::success;
}
Result ncclGroupEnd() {
  --depth;
  flush();
  return nccl::success;
}
Result ncclSend(const void* data, std::size_t count, int type, int peer, nccl::Comm comm, nccl::NativeStream stream) {
  return message(true, const_cast<void*>(data), count, type, peer, comm, stream);
}
Result ncclRecv(void* data, std::size_t count, int type, int peer, nccl::Comm comm, nccl::NativeStream stream) {
  return message(false, data, count, type, peer, comm, stream);
}
Result ncclAllReduce(const void* in, void* out, std::size_t count, int type, int op, nccl::Comm comm, nccl::NativeStream stream) {
  return meet(comm, in, out, stream, [=](Meeting& all) { reduce_elements(all.in, all.out, count, type_of(type), reduce_of(op)); });
}
Result ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int op, nccl::Comm comm, nccl::NativeStream stream) {
  return meet(comm, in, out, stream, [=](Meeting& all) {
    for (std::size_t r = 0; r < all.in.size(); ++r) {
      std::vector<const void*> parts;
      for (const void* one : all.in) parts.push_back(static_cast<const char*>(one) + r * count * width_of(type));
      reduce_elements(parts, std::span(&all.out[r], 1), count, type_of(type), reduce_of(op));
    }
  });
}
Result ncclAllGather(const void* in, void* out, std::size_t count, int type, nccl::Comm comm, nccl::NativeStream stream) {
  return meet(comm, in, out, stream, [=](Meeting& all) {
    const std::size_t bytes = count * width_of(type);
    for (std::size_t r = 0; r < all.in.size(); ++r)
      for (void* target : all.out) std::memmove(static_cast<char*>(target) + r * bytes, all.in[r], bytes);
  });
}
Result ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, nccl::Comm comm, nccl::NativeStream stream) {
  return meet(comm, in, out, stream, [=](Meeting& all) {
    for (void* target : all.out) std::memmove(target, all.in[static_cast<std::size_t>(root)], count * width_of(type));
  });
}
// NOLINTEND(readability-identifier-naming)
}
