// What the run-time compiler (libsycl-jit 2026.2) has to be told for NVIDIA devices.
#pragma once

#include <string>
#include <vector>

#include <ppengine/ops/device/device.hpp>

namespace ppengine::ops {

// 80 for sm_80; 0 for devices of others, and where SYCL does not know it.
int nvidia_architecture(const Device& device);

// That our kernels have for it: kernels/*_tensor_*.cpp.
bool has_tensor_cores(const Device& device);

// Readies the compiler for this device, once in a process; does nothing for devices of others. It targets sm_75 unless it is told the
// device's own architecture, and the first compile of a process leaves built-in functions as calls, so that one is made and dropped.
void prepare_for_nvidia(const Device& device);

// Options of every compile for NVIDIA (nvidia_toolchain.hpp). DeviceError where there is no CUDA toolkit.
std::vector<std::string> nvidia_options();

// "+ptx70" for 80: the first PTX that has the architecture, which any driver for such a device takes. Told an architecture alone, the
// compiler ends the process ("PTX version 6.3 does not support target 'sm_80'").
std::string ptx_feature(int architecture);

}  // namespace ppengine::ops
