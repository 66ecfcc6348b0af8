// The gradient of max pooling on CPUs.
#pragma once

#include <cstdint>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

// diff_src[planes, places]: at each place the sum of what `where` [planes, outputs] sends there of diff_dst [planes, outputs]; a place
// below zero is none. In the calling thread, for devices that are CPUs.
void scatter_planes(Stream& stream, const float* diff_dst, const std::int32_t* where, float* diff_src, std::int64_t planes,
                    std::int64_t outputs, std::int64_t places);

}  // namespace ppengine::ops
