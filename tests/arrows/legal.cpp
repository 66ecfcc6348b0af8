// Compiled as a source of the engine: its own private header, and what the folders below it are open with.
#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/linear.hpp>
