// What the pieces of a model cost on a device, measured: each piece between two places where the model can be cut is compiled and run
// alone. Pieces that look the same (the blocks of a transformer) are measured once.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/graph/split.hpp>
#include <ppengine/ops/device/device.hpp>

namespace ppengine::engine {

// Seconds of forward and backward for one microbatch, for split_evenly: by node, with a piece's time at its first node. Rank 0 measures,
// and tells the others piece by piece, so that none waits long.
IdVector<NodeId, double> measured_costs_by_node(const Graph& graph, const std::shared_ptr<ops::Device>& device, ops::Type type,
                                                std::int64_t batch, std::int64_t length, comm::Communicator& world);

}  // namespace ppengine::engine
