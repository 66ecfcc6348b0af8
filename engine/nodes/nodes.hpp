// The built-in ops as nodes of a graph; Graph's methods make them.
#pragma once

#include <optional>

#include <ppengine/engine/node.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::engine {

std::shared_ptr<const NodeOp> make_linear_node(int64_t in, const LinearOptions& options);
std::shared_ptr<const NodeOp> make_embedding_node(const EmbeddingOptions& options);
std::shared_ptr<const NodeOp> make_norm_node(int64_t width, const NormOptions& options);
std::shared_ptr<const NodeOp> make_activation_node(ops::ActivationKind kind, int64_t width);
std::shared_ptr<const NodeOp> make_gated_silu_node(int64_t width);
std::shared_ptr<const NodeOp> make_softmax_node(int64_t width);
std::shared_ptr<const NodeOp> make_add_node(int64_t width);
std::shared_ptr<const NodeOp> make_multiply_node(int64_t width);
std::shared_ptr<const NodeOp> make_dropout_node(int64_t width, float p, uint64_t site);
std::shared_ptr<const NodeOp> make_attention_node(const AttentionOptions& options, bool packed);
std::shared_ptr<const NodeOp> make_rotary_node(const RotaryOptions& options);
std::shared_ptr<const NodeOp> make_cross_entropy_node(int64_t classes);
// Identity; the gradient is summed over tensor-parallel ranks.
std::shared_ptr<const NodeOp> make_tensor_copy_node(int64_t width);
// Sums over tensor-parallel ranks; the gradient is passed on.
std::shared_ptr<const NodeOp> make_tensor_sum_node(int64_t width);

// A linear of inference, with what it takes over from its neighbours. Parameters: weight[, bias][, gamma[, beta]]; inputs: src[, gate].
struct WeightLinearOptions {
  ops::PackedWeight weight;
  bool bias = false;
  std::optional<NormOptions> norm = {};
  std::optional<ops::ActivationKind> activation = {};
  bool gated = false;
};
std::shared_ptr<const NodeOp> make_weight_linear_node(const WeightLinearOptions& options);
std::shared_ptr<const NodeOp> make_packed_embedding_node(const ops::PackedWeight& table);

}  // namespace ppengine::engine
