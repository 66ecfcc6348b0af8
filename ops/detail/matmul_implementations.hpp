// The implementations of Matmul. Used by ops/matmul.cpp, ops/onednn/matmul.cpp and ops/sycl/matmul.cpp only.
#pragma once

#include <ppengine/ops/matmul.hpp>

namespace ppengine::ops {

Refusal onednn_matmul_refusal(const Device& device, const MatmulSpec& spec);
std::unique_ptr<Matmul> make_onednn_matmul(Device& device, const MatmulSpec& spec);
Refusal sycl_matmul_refusal(const Device& device, const MatmulSpec& spec);
std::unique_ptr<Matmul> make_sycl_matmul(Device& device, const MatmulSpec& spec);

}  // namespace ppengine::ops
