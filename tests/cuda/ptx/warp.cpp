// Shuffles and barriers of a warp.
#include "warp.hpp"

#include <algorithm>
#include <vector>

#include "tensor_cores.hpp"

namespace ppengine::ptx {

std::uint32_t source_lane(Shuffle kind, std::uint32_t lane, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t mask = (c >> 8) & 31, clamp = c & 31, by = b & 31;
  const std::uint32_t limit = (lane & mask) | (clamp & ~mask);
  switch (kind) {
    case Shuffle::up: {
      const auto from = static_cast<std::int32_t>(lane) - static_cast<std::int32_t>(by);
      return from >= static_cast<std::int32_t>(limit) ? static_cast<std::uint32_t>(from) : lane;
    }
    case Shuffle::down:
      return lane + by <= limit ? lane + by : lane;
    case Shuffle::idx: {
      const std::uint32_t from = (lane & mask) | (by & ~mask);
      return from <= limit ? from : lane;
    }
    case Shuffle::bfly:
      return (lane ^ by) <= limit ? lane ^ by : lane;
  }
  return lane;
}

namespace {

void exchange(std::span<Thread> warp) {
  constexpr std::uint64_t nobody = 0x7fc0dead;  // what a lane that is not there brings
  std::vector<std::uint64_t> values(32, nobody);
  for (const Thread& thread : warp)
    if (thread.state() == Thread::State::at_shuffle) values[thread.lane()] = thread.value(thread.waiting().from[0]);
  for (Thread& thread : warp) {
    if (thread.state() != Thread::State::at_shuffle) continue;
    const Instruction& shuffle = thread.waiting();
    const auto number = [&](int which) { return static_cast<std::uint32_t>(thread.value(shuffle.from[which])); };
    thread.finish_shuffle(values[source_lane(shuffle.shuffle, thread.lane(), number(1), number(2))]);
  }
}

}  // namespace

bool settle_warp(std::span<Thread> warp) {
  const auto all = [&](Thread::State state) {
    bool any = false;
    for (const Thread& thread : warp) {
      if (thread.state() == Thread::State::done) continue;
      if (thread.state() != state) return false;
      any = true;
    }
    return any;
  };
  if (all(Thread::State::at_warp_barrier)) {
    for (Thread& thread : warp)
      if (thread.state() != Thread::State::done) thread.pass_warp_barrier();
    return true;
  }
  if (!all(Thread::State::at_shuffle)) return false;
  const Instruction* one = nullptr;
  for (const Thread& thread : warp) {
    if (thread.state() == Thread::State::done) continue;
    if (one && one != &thread.waiting()) throw Fault("threads of a warp wait in different instructions");
    one = &thread.waiting();
  }
  if (one->action == Action::shuffle) {
    exchange(warp);
    return true;
  }
  // Behind an end of some lanes nothing is defined for the others.
  if (warp.size() != 32 || std::ranges::any_of(warp, [](const Thread& thread) { return thread.state() == Thread::State::done; }))
    throw Fault("an instruction of tensor cores without all lanes of the warp");
  one->action == Action::multiply ? multiply_matrices(warp) : load_matrices(warp);
  return true;
}

}  // namespace ppengine::ptx
