// In which type a device computes where nobody has said so.
#pragma once

#include <string_view>

#include <ppengine/ops/device/device.hpp>
#include <ppengine/ops/device/type.hpp>

namespace ppengine::ops {

// Training and evaluation: bf16 with weights, sums and the optimizer's state in f32 on GPUs with matrix units for it, f32 on all other
// devices. There is no f16: GPUs without bf16 (NVIDIA's before sm_80) compute in f32.
Type default_type(const DeviceInfo& device);

// Matrix units that take bf16, by the architecture's digits: 80 for sm_80 ("cuda"), 0x90a for gfx90a ("hip"); 0 is one that is not known.
bool has_bf16_units(std::string_view backend, int architecture);

}  // namespace ppengine::ops
