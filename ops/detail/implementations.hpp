// The implementations of norms, activations and softmax, by name: what the lists in norm.cpp, activation.cpp and softmax.cpp order.
#pragma once

#include <ppengine/ops/activation.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/softmax.hpp>

namespace ppengine::ops {

extern const Implementation<Norm, NormSpec> cpu_norm, onednn_norm, sycl_norm;
extern const Implementation<Activation, ActivationSpec> cpu_activation, onednn_activation, sycl_activation;
extern const Implementation<Softmax, SoftmaxSpec> onednn_softmax, sycl_softmax;

}  // namespace ppengine::ops
