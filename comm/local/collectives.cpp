// Collectives between ranks that are threads: when all have come, each rank's worker does its share of the elements.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/local/group.hpp>
#include <ppengine/comm/reduce.hpp>

namespace ppengine::comm::local {
namespace {

constexpr std::size_t done_at_once = 64 << 10;  // bytes over all ranks: below this, handing it to workers costs more

const std::byte* at(const void* base, std::size_t offset) { return static_cast<const std::byte*>(base) + offset; }
std::byte* at(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

void copy_elsewhere(void* dst, const void* src, std::size_t bytes) {
  if (dst != src && bytes != 0) std::memcpy(dst, src, bytes);
}

using Kind = CollectiveCall::Kind;

// Rank `rank`'s share of the work, on memory that the host can touch.
void do_share(const CollectiveCall& call, const std::vector<Part>& parts, std::size_t rank) {
  const std::size_t ranks = parts.size(), width = call.type.size();
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  switch (call.kind) {
    case Kind::allreduce: {
      const auto bound = [&](std::size_t r) { return r == ranks ? call.count : call.count * r / ranks / 16 * 16; };
      const std::size_t begin = bound(rank), end = bound(rank + 1);
      for (const Part& part : parts) {
        inputs.push_back(at(part.in, begin * width));
        outputs.push_back(at(part.out, begin * width));
      }
      return reduce_elements(inputs, outputs, end - begin, call.type, call.reduce);
    }
    case Kind::reduce_scatter:
      for (const Part& part : parts) inputs.push_back(at(part.in, rank * call.count * width));
      outputs.push_back(parts[rank].out);
      return reduce_elements(inputs, outputs, call.count, call.type, call.reduce);
    case Kind::all_gather:
      for (const Part& part : parts) copy_elsewhere(at(part.out, rank * call.count * width), parts[rank].in, call.count * width);
      return;
    case Kind::broadcast:
      return copy_elsewhere(parts[rank].out, parts[static_cast<std::size_t>(call.root)].in, call.count * width);
  }
}

}  // namespace

void Group::post_collective(int rank, const CollectiveCall& call, Part part) {
  std::shared_ptr<Collective> job;
  {
    const std::lock_guard lock(world_->signal->mutex);
    const std::uint64_t sequence = next_collective_[static_cast<std::size_t>(rank)]++;
    job = collectives_[sequence];
    if (!job) job = collectives_[sequence] = std::make_shared<Collective>(call, rank, std::vector<Part>(static_cast<std::size_t>(size())));
    part.operation->set_missing([this, waiting = std::weak_ptr(job)] {
      const auto parts = waiting.lock();
      if (!parts) return -1;
      const auto missing = std::ranges::find_if(parts->parts, [](const Part& one) { return !one.operation; });
      return missing == parts->parts.end() ? -1 : world_rank(static_cast<int>(missing - parts->parts.begin()));
    });
    job->parts[static_cast<std::size_t>(rank)] = std::move(part);
    if (!(job->call == call)) {  // this and every later rank, and those that came before, learn of it
      const std::string error =
          fmt::format("rank {} called {}, rank {} called {}", world_rank(job->first), job->call.text(), world_rank(rank), call.text());
      for (const Part& one : job->parts)
        if (one.operation) one.operation->settle({}, 0, error);
      if (!world_->signal->failure) world_->signal->failure = Failure{world_rank(rank), error};
      world_->signal->changed.notify_all();
      return;
    }
    if (++job->arrived < size()) return;
    collectives_.erase(sequence);
    for (int r = 0; r < size(); ++r) world_->track(world_rank(r), job->parts[static_cast<std::size_t>(r)].operation);
  }
  start(job);
}

void Group::start(const std::shared_ptr<Collective>& job) {
  bool host = true, ready = true;
  for (int r = 0; r < size(); ++r) {
    host = host && mover(r).host_accessible();
    ready = ready && job->parts[static_cast<std::size_t>(r)].after.done();
  }
  const std::size_t bytes = job->call.bytes() * static_cast<std::size_t>(size());
  if (host && ready && !world_->link.on() && bytes <= done_at_once) {
    for (std::size_t r = 0; r < job->parts.size(); ++r) do_share(job->call, job->parts, r);
    return finish(*job);
  }
  if (!host) {
    mover(0).worker.add([this, job] { run_staged(*job); });
    return;
  }
  job->unfinished = size();
  for (int r = 0; r < size(); ++r) mover(r).worker.add([this, job, r] { run_share(*job, r); });
}

void Group::run_share(Collective& job, int rank) {
  for (const Part& part : job.parts) part.after.wait();
  do_share(job.call, job.parts, static_cast<std::size_t>(rank));
  mover(rank).pass_link(world_->link, job.call.link_bytes(size()), job.call.link_messages(size()));
  if (--job.unfinished == 0) finish(job);
}

// Some rank's memory is out of the host's reach: everything goes through host memory.
void Group::run_staged(Collective& job) {
  const std::size_t unit = job.call.bytes(), all = unit * job.parts.size();
  const std::size_t in_bytes = job.call.kind == Kind::reduce_scatter ? all : unit;
  const std::size_t out_bytes = job.call.kind == Kind::all_gather ? all : unit;
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(2 * job.parts.size());  // what it holds stays where it is
  std::vector<Part> staged;
  for (int r = 0; r < size(); ++r) {
    const Part& part = job.parts[static_cast<std::size_t>(r)];
    part.after.wait();
    auto& in = memory.emplace_back(in_bytes);
    auto& out = memory.emplace_back(out_bytes);
    mover(r).fetch(in.data(), part.in, in_bytes);
    staged.push_back({{}, in.data(), out.data(), {}});
  }
  for (std::size_t r = 0; r < staged.size(); ++r) do_share(job.call, staged, r);
  for (int r = 0; r < size(); ++r)
    mover(r).store(job.parts[static_cast<std::size_t>(r)].out, staged[static_cast<std::size_t>(r)].out, out_bytes);
  finish(job);
}

void Group::finish(Collective& job) {
  const auto signal = world_->signal;  // once settled, the group may be gone
  {
    const std::lock_guard lock(signal->mutex);
    for (const Part& part : job.parts) part.operation->settle({}, job.call.bytes());
  }
  signal->changed.notify_all();
}

}  // namespace ppengine::comm::local
