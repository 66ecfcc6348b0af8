// Whether all ranks have the same model and the same settings: asked at the start, so that a mistake is named and does not become a hang.
#pragma once

#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::engine {

// What a rank was told, by name.
struct Setting {
  std::string name, value;
};

// Compares settings, and count, names, shapes and types of the parameters, with rank 0's. ConfigError on every rank that names the first
// difference and both ranks. All ranks call it.
void verify_same_model(comm::Communicator& world, const Graph& graph, const std::vector<Setting>& settings);

}  // namespace ppengine::engine
