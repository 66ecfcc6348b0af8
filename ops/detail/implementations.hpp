// The implementations of norms, activations and softmax, by name: what the lists in norm.cpp, activation.cpp and softmax.cpp order.
#pragma once

#include <ppengine/ops/activation.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/softmax.hpp>

namespace ppengine::ops {

extern const Implementation<Norm, NormSpec> sycl_norm;
extern const Implementation<Activation, ActivationSpec> sycl_activation;
extern const Implementation<Softmax, SoftmaxSpec> sycl_softmax;

}  // namespace ppengine::ops
