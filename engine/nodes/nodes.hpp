// The built-in ops as nodes of a graph; Graph's methods make them.
#pragma once

#include <optional>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/weights/parameters.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::engine {

// counted_out: what its cost is estimated from, where tensor-parallel ranks have uneven parts and must all cut stages alike.
std::shared_ptr<const NodeOp> make_linear_node(std::int64_t in, const LinearOptions& options, std::int64_t counted_out = 0);
// Of a table that tensor-parallel ranks divide (options.vocabulary is the whole one's): tokens of other ranks give zeros.
std::shared_ptr<const NodeOp> make_embedding_node(const EmbeddingOptions& options, int rank = 0, int ranks = 1);
std::shared_ptr<const NodeOp> make_norm_node(std::int64_t width, const NormOptions& options);
std::shared_ptr<const NodeOp> make_activation_node(ops::ActivationKind kind, std::int64_t width);
std::shared_ptr<const NodeOp> make_gated_silu_node(std::int64_t width);
std::shared_ptr<const NodeOp> make_packed_gated_silu_node(std::int64_t width);
// factor · src, or cap · tanh(src / cap). counted: the width that its cost is estimated from, 0: its own.
struct ScaleOptions {
  std::int64_t width = 0;
  float factor = 1.0f;
  bool caps = false;
  std::int64_t counted = 0;
};
std::shared_ptr<const NodeOp> make_scale_node(const ScaleOptions& options);
std::shared_ptr<const NodeOp> make_softmax_node(std::int64_t width);
std::shared_ptr<const NodeOp> make_add_node(std::int64_t width);
std::shared_ptr<const NodeOp> make_multiply_node(std::int64_t width);
std::shared_ptr<const NodeOp> make_dropout_node(std::int64_t width, float p, std::uint64_t site);
std::shared_ptr<const NodeOp> make_attention_node(const AttentionOptions& options, bool packed);
std::shared_ptr<const NodeOp> make_rotary_node(const RotaryOptions& options);
std::shared_ptr<const NodeOp> make_cross_entropy_node(std::int64_t classes);

// Where tensor-parallel ranks meet. width: of the whole value.
enum class TensorMeeting {
  copy,          // into divided work: identity; the gradient is summed over ranks
  sum,           // out of it: the sum over ranks; the gradient is passed on
  gather_width,  // stretches of the width, put together; each rank takes its own stretch of the gradient
  take_width,    // out of work that every rank does: its stretch of the width; the gradient is put together
  // Where ranks have parts of the tokens (rows) elsewhere:
  copy_rows,    // into divided work: all tokens; the gradient is summed, and each rank keeps its tokens
  sum_rows,     // out of it: each rank has the sum for its tokens; the gradient is that of all tokens
  gather_rows,  // into work that every rank does: all tokens; each rank takes its tokens of the gradient
  take_rows,    // out of it
};
std::shared_ptr<const NodeOp> make_tensor_node(TensorMeeting what, std::int64_t width, int ranks);

// The tokens (rows) of a microbatch that a rank has. Parts lie at even distances, so that collectives move parts of one size: the last
// ranks may have fewer tokens than that, and what lies behind them in memory has no meaning.
struct RowPart {
  std::int64_t first, count;
  std::int64_t room;  // rows of a part in memory
};
RowPart row_part(const CompileOptions& options, int rank, int ranks);

// A linear of inference, with what it takes over from its neighbours. Parameters: weight[, bias][, gamma[, beta]]; inputs: src[, gate].
struct WeightLinearOptions {
  ops::PackedWeight weight;
  bool bias = false;
  std::optional<NormOptions> norm = {};
  std::optional<ops::ActivationKind> activation = {};
  bool gated = false;
};
std::shared_ptr<const NodeOp> make_weight_linear_node(const WeightLinearOptions& options);
// first_token: of the table's first row.
std::shared_ptr<const NodeOp> make_packed_embedding_node(const ops::PackedWeight& table, std::int64_t first_token);

}  // namespace ppengine::engine
