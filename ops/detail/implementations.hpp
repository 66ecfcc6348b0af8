// The implementations of each op, by name: what the list in the op's own file orders. Each is defined in the file of its backend.
#pragma once

#include <ppengine/ops/activation.hpp>
#include <ppengine/ops/attention.hpp>
#include <ppengine/ops/channel_norm.hpp>
#include <ppengine/ops/convolution.hpp>
#include <ppengine/ops/cross_entropy.hpp>
#include <ppengine/ops/embedding.hpp>
#include <ppengine/ops/linear.hpp>
#include <ppengine/ops/matmul.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/rotary.hpp>
#include <ppengine/ops/softmax.hpp>
#include <ppengine/ops/weight_linear.hpp>

namespace ppengine::ops {

extern const Implementation<Activation, ActivationSpec> cpu_activation, onednn_activation, sycl_activation;
extern const Implementation<Attention, AttentionSpec> cpu_attention, lanes_attention, onednn_attention, sycl_attention, products_attention;
extern const Implementation<CachedAttention, CachedAttentionSpec> byte_cache_attention, decode_attention, sycl_cached_attention;
extern const Implementation<ChannelNorm, ChannelNormSpec> cpu_channel_norm;
extern const Implementation<Convolution, ConvolutionSpec> cpu_convolution, onednn_convolution;
extern const Implementation<CrossEntropy, CrossEntropySpec> sycl_cross_entropy;
extern const Implementation<Embedding, EmbeddingSpec> sycl_embedding;
extern const Implementation<GatedSilu, GatedSiluSpec> sycl_gated_silu;
extern const Implementation<Linear, LinearSpec> cpu_linear, onednn_linear, sycl_linear;
extern const Implementation<Matmul, MatmulSpec> onednn_matmul, sycl_matmul;
extern const Implementation<Norm, NormSpec> cpu_norm, onednn_norm, sycl_norm;
extern const Implementation<Rotary, RotarySpec> cpu_rotary, sycl_rotary;
extern const Implementation<Softmax, SoftmaxSpec> onednn_softmax, sycl_softmax;
extern const Implementation<SplitCrossEntropy, SplitCrossEntropySpec> sycl_split_cross_entropy;
extern const Implementation<WeightLinear, WeightLinearSpec> bytes_weight_linear, cpu_weight_linear, sycl_weight_linear,
    products_weight_linear;

// What backward_weight of no rows does.
void clear_gradients(Stream& stream, const LinearSpec& spec, float* diff_weight, float* diff_bias, bool accumulate);

}  // namespace ppengine::ops
