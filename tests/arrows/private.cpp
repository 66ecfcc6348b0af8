// Compiled as a source of the engine, this must fail: the header is private to ops.
#include <ppengine/ops/onednn/primitive.hpp>
