// Handles to what a graph is made of: its values, nodes and parameters are numbered in the order in which they were added.
#pragma once

#include <ppengine/base/ids.hpp>
#include <ppengine/schedules/action.hpp>

namespace ppengine::engine {

using Value = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using ParameterId = Id<struct ParameterTag>;
using schedules::StageId;

}  // namespace ppengine::engine
