// The architecture of a GPU, by SYCL's numbers.
#pragma once

#include <sycl/sycl.hpp>

namespace ppengine::ops {

// 80 for sm_80; of AMD's the hexadecimal digits, 0x90a for gfx90a; 0 for devices of others, and where SYCL does not know it.
int architecture_of(const sycl::device& device);

}  // namespace ppengine::ops
