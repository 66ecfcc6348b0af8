// Programs: running them, and placing their buffers by liveness.
#include <ppengine/engine/stage/program.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/communicator.hpp>
#include <ppengine/ops/device/memory.hpp>

namespace ppengine::engine {
namespace {

// In which programs a buffer occurs, as bits.
enum Use : unsigned { in_forward = 1, in_full = 2, in_input = 4, in_weight = 8 };

void mark(IdVector<BufferId, unsigned>& uses, const Program& program, unsigned bit) {
  for (const Instruction& instruction : program) {
    for (BufferId id : instruction.reads)
      if (id != no_buffer) uses[id] |= bit;
    for (BufferId id : instruction.writes)
      if (id != no_buffer) uses[id] |= bit;
  }
}

struct Interval {
  BufferId id;
  std::size_t begin, end;  // instructions, both included
};

std::vector<Interval> intervals(const Program& program, const Buffers& buffers) {
  std::map<BufferId, Interval> found;
  for (std::size_t i = 0; i < program.size(); ++i) {
    auto touch = [&](BufferId id) {
      if (id == no_buffer || buffers[id].placed) return;
      auto [at, fresh] = found.try_emplace(id, Interval{id, i, i});
      if (!fresh) at->second.end = i;
    };
    for (BufferId id : program[i].reads) touch(id);
    for (BufferId id : program[i].writes) touch(id);
  }
  std::vector<Interval> list;
  list.reserve(found.size());
  for (auto& [id, interval] : found) list.push_back(interval);
  return list;
}

// Largest first, each at the lowest offset that is free during its whole life.
std::size_t place_workspace(Buffers& buffers, const Program& program) {
  auto list = intervals(program, buffers);
  auto bytes = [&](const Interval& one) { return ops::align_up(buffers[one.id].bytes); };
  std::ranges::stable_sort(list, [&](const auto& a, const auto& b) { return bytes(a) > bytes(b); });
  std::vector<Interval> placed;
  std::size_t peak = 0;
  for (const Interval& one : list) {
    std::vector<std::pair<std::size_t, std::size_t>> taken;  // [begin, end) of those that live at the same time
    for (const Interval& other : placed)
      if (other.begin <= one.end && one.begin <= other.end) {
        const std::size_t offset = buffers[other.id].offset;
        taken.emplace_back(offset, offset + bytes(other));
      }
    std::ranges::sort(taken);
    std::size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes(one) <= begin) break;
      offset = std::max(offset, end);
    }
    BufferInfo& info = buffers[one.id];
    info.region = Region::workspace;
    info.offset = offset;
    info.placed = true;
    placed.push_back(one);
    peak = std::max(peak, offset + bytes(one));
  }
  return peak;
}

void measure(const Instruction& instruction, const Run& run) {
  run.stream.wait();
  const auto begin = comm::Clock::now();
  instruction.run(run);
  run.stream.wait();
  run.profile->add(instruction.kind, std::chrono::duration<double>(comm::Clock::now() - begin).count());
  if (run.profile->watch) run.profile->watch(instruction, run);
}

void execute_one(const Instruction& instruction, const Run& run) {
  try {
    run.profile ? measure(instruction, run) : instruction.run(run);
    if (run.peers) run.peers->progress();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(fmt::format("{} ({}): {}", instruction.module, instruction.kind, e.what()));
  }
}

}  // namespace

void execute(const Program& program, const Run& run, const AfterInstruction& after) {
  for (std::size_t i = 0; i < program.size(); ++i) {
    execute_one(program[i], run);
    if (after) after(i);
  }
}

void execute_together(const Program& first, const Run& first_run, const Program& second, const Run& second_run,
                      const AfterInstruction& after_second) {
  // Evenly mixed: after each instruction the program that is further behind goes on.
  for (std::size_t i = 0, j = 0; i < first.size() || j < second.size();) {
    const bool take_first = j == second.size() || (i < first.size() && i * second.size() <= j * first.size());
    if (take_first) {
      execute_one(first[i++], first_run);
      continue;
    }
    execute_one(second[j], second_run);
    if (after_second) after_second(j);
    ++j;
  }
}

Layout place_buffers(Buffers& buffers, const Program& forward, const Program& full, const Program& input, const Program& weight) {
  IdVector<BufferId, unsigned> uses(buffers.size());
  mark(uses, forward, in_forward);
  mark(uses, full, in_full);
  mark(uses, input, in_input);
  mark(uses, weight, in_weight);
  Layout layout;
  for (BufferId i : buffers.ids()) {
    if (buffers[i].placed) continue;
    const bool from_forward = uses[i] & in_forward;
    const bool later = uses[i] & (in_full | in_input | in_weight);
    std::size_t* size = nullptr;
    if (buffers[i].pinned || (from_forward && later))
      size = &layout.activations;
    else if ((uses[i] & in_input) && (uses[i] & in_weight))
      size = &layout.gradients;
    else
      continue;
    buffers[i].region = size == &layout.activations ? Region::activations : Region::gradients;
    buffers[i].offset = *size;
    buffers[i].placed = true;
    *size += ops::align_up(buffers[i].bytes);
  }
  for (const Program* program : {&forward, &full, &input, &weight})
    layout.workspace = std::max(layout.workspace, place_workspace(buffers, *program));
  return layout;
}

}  // namespace ppengine::engine
