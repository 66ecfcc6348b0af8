// Compiled as a source of the engine, this must fail: runs lie above it.
#include <ppengine/runs/training.hpp>
