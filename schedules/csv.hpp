// Plan files: CSV, one row per rank, byte for byte what PyTorch's torch.distributed.pipelining writes and reads.
#pragma once

#include <string>
#include <string_view>

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// The plan as a file of its format (rows end in \r\n as Python's csv module writes them).
std::string to_csv(const Plan& plan);

// Reads either format: compute_comms if there is any action besides F, B, I, W and overlaps. Ranks are the rows, stages
// what the actions name, the placement follows. microbatches = 0: the largest number that occurs, plus one. Accepts
// exactly the grammar (PlanError with row, column and text otherwise); does not validate the order: validate() does.
Plan parse_csv(std::string_view text, int microbatches = 0);

// The same from a file: parsed and validated. Messages start with the path.
Plan load_plan(const std::string& path, int microbatches = 0);

}  // namespace ppengine::schedules
