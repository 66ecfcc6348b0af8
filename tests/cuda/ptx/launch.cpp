// Runs a kernel over work-groups in a random order, its threads interleaved at random.
#include "launch.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "warp.hpp"

namespace ppengine::ptx {
namespace {

class GroupRun {
 public:
  GroupRun(const Module& module, const Function& kernel, GlobalMemory& memory, const Launch& launch, Size3 index, std::mt19937_64& random)
      : module_(module),
        kernel_(kernel),
        group_{launch.groups, launch.size, index, memory, SharedMemory(module.shared_bytes)},
        random_(random) {
    threads_.reserve(launch.size.count());
    for (std::uint32_t i = 0; i < launch.size.count(); ++i) threads_.emplace_back(group_, kernel, i, launch.arguments);
  }

  std::uint64_t run(std::uint64_t most) {
    std::uint64_t count = 0;
    std::vector<std::uint32_t> order(threads_.size());
    std::iota(order.begin(), order.end(), 0u);
    do {
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::uint32_t i : order) {
        if (threads_[i].state() != Thread::State::running) continue;
        count += advance(threads_[i]);
        if (count > most) throw Fault(kernel_.name + fmt::format(": does not end within {} instructions", most));
      }
    } while (settle());
    return count;
  }

 private:
  std::uint64_t advance(Thread& thread) {
    try {
      return thread.run(std::uniform_int_distribution<std::uint64_t>(16, 512)(random_));
    } catch (const Fault& fault) {
      const Size3 at = thread.position(), in = group_.index;
      const std::uint32_t line = thread.line();
      throw Fault(fmt::format("{}, thread ({},{},{}) of work-group ({},{},{}), line {} '{}': {}", kernel_.name, at.x, at.y, at.z, in.x,
                              in.y, in.z, line, line <= module_.lines.size() ? module_.lines[line - 1] : "", fault.what()));
    }
  }

  // Lets waiting threads go on; false: all are done.
  bool settle() {
    const auto is = [&](Thread::State state) { return static_cast<std::size_t>(std::ranges::count(threads_, state, &Thread::state)); };
    const std::size_t done = is(Thread::State::done);
    if (done == threads_.size()) return false;
    if (is(Thread::State::running) > 0) return true;
    if (is(Thread::State::at_barrier) + done == threads_.size()) {
      for (Thread& thread : threads_)
        if (thread.state() == Thread::State::at_barrier) thread.pass_barrier();
      return true;
    }
    bool any = false;
    for (std::size_t first = 0; first < threads_.size(); first += 32)
      any |= settle_warp(std::span(threads_).subspan(first, std::min<std::size_t>(32, threads_.size() - first)));
    if (!any) {
      const Thread& one = *std::ranges::find_if(threads_, [](const Thread& thread) { return thread.state() != Thread::State::done; });
      throw Fault(
          fmt::format("{}: deadlock in work-group ({},{},{}): threads wait for others that wait elsewhere; one stands at line {} '{}'",
                      kernel_.name, group_.index.x, group_.index.y, group_.index.z, one.line(), module_.lines[one.line() - 1]));
    }
    return true;
  }

  const Module& module_;
  const Function& kernel_;
  Group group_;
  std::mt19937_64& random_;
  std::vector<Thread> threads_;
};

}  // namespace

std::uint64_t run(const Module& module, const Function& kernel, GlobalMemory& memory, const Launch& launch) {
  if (launch.arguments.size() != kernel.parameters.size())
    throw Fault(fmt::format("{}: {} arguments for {} parameters", kernel.name, launch.arguments.size(), kernel.parameters.size()));
  if (launch.size.count() > 1024) throw Fault(kernel.name + ": work-groups have 1024 threads at most");
  for (const Slot& parameter : kernel.parameters)
    if (parameter.bytes > 8) throw Fault(kernel.name + ": structs as parameters are not known");
  std::vector<std::uint32_t> order(launch.groups.count());
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937_64 random(launch.seed);
  std::shuffle(order.begin(), order.end(), random);
  std::uint64_t count = 0;
  for (const std::uint32_t i : order) {
    const Size3 index{i % launch.groups.x, i / launch.groups.x % launch.groups.y, i / launch.groups.x / launch.groups.y};
    count +=
        GroupRun(module, kernel, memory, launch, index, random).run(launch.most_instructions - std::min(count, launch.most_instructions));
  }
  return count;
}

}  // namespace ppengine::ptx
