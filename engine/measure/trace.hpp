// A trace that Perfetto (ui.perfetto.dev) and chrome://tracing open: a process per rank, lanes for compute, send, receive and
// reduction, and an arrow from every send to the computation that uses what it brought.
#pragma once

#include <filesystem>
#include <vector>

#include <ppengine/engine/measure/timeline.hpp>

namespace ppengine::engine {

// rows: by rank of the world, `copies` of them (data- and tensor-parallel ones) for each rank of the plan; each has one or more runs of
// the plan, one after the other. reductions: by rank, in the lane for reduction.
// The file appears under its name when it is complete. FileError where it cannot be written.
void write_trace(const std::filesystem::path& file, const schedules::Plan& plan, int copies,
                 const std::vector<std::vector<TimedAction>>& rows, std::int64_t first_step,
                 const std::vector<std::vector<TimedReduction>>& reductions = {});

}  // namespace ppengine::engine
