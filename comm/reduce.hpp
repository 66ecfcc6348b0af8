// Element-wise reductions on host-accessible memory, in the order of the inputs.
#pragma once

#include <span>

#include <ppengine/comm/type.hpp>

namespace ppengine::comm {

// out[i] = in[0][i] + in[1][i] + ... for i in [0, count), written to every output. An output may be one of the inputs, at the same
// position. bf16 and f16 are summed in f32 and rounded once.
void reduce_elements(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t count, Type type, Reduce reduce);

}  // namespace ppengine::comm
