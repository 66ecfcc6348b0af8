// Attention composed of oneDNN's batched matrix products, which read q, k and v where they lie, and our softmax between them. Works through
// blocks of queries, so that only the keys which a block sees are multiplied; keeps one log-sum per row and recomputes the probabilities.
#include <algorithm>

#include <ppengine/ops/detail/attention_parts.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>
#include <ppengine/ops/onednn/primitive.hpp>
#include <ppengine/ops/sycl/constant.hpp>

namespace ppengine::ops {
namespace {

using onednn::Desc;
using onednn::Primitive;

constexpr std::int64_t query_block = 128;
constexpr std::int64_t cached_bytes = 4 << 20;  // a block's scores should stay in the cache
constexpr std::size_t row_group = 64, rows_per_group = 4;

// [sequences, kv_heads, group, rows, columns]; group is left out where it is 1.
Desc grouped(std::int64_t sequences, std::int64_t kv_heads, std::int64_t group, std::int64_t rows, std::int64_t columns,
             const onednn::Dims& strides) {
  const auto f32 = dnnl::memory::data_type::f32;
  if (group == 1) return {{sequences, kv_heads, rows, columns}, f32, {strides[0], strides[1], strides[3], strides[4]}};
  return {{sequences, kv_heads, group, rows, columns}, f32, strides};
}

// The products of one block of queries.
struct Block {
  Block(Device& device, const AttentionSpec& s, std::int64_t sequences, std::int64_t begin)
      : first(begin), rows(std::min(query_block, s.length - begin)), keys(first + rows) {
    const std::int64_t group = s.heads / s.kv_heads, d = s.head_dim, width = s.heads * d;
    const std::int64_t n = sequences, kv = s.kv_heads, head = rows * keys;
    const Desc q = grouped(n, kv, group, rows, d, {s.length * s.q_stride, group * d, d, s.q_stride, 1});
    const Desc out = grouped(n, kv, group, rows, d, {s.length * width, group * d, d, width, 1});
    const Desc square = grouped(n, kv, group, rows, keys, {s.heads * head, group * head, head, keys, 1});
    // Keys and values have one head per group, which oneDNN repeats.
    const auto shared = [&](std::int64_t stride, bool transposed) {
      const auto f32 = dnnl::memory::data_type::f32;
      const std::int64_t r = transposed ? d : keys, c = transposed ? keys : d, sr = transposed ? 1 : stride, sc = transposed ? stride : 1;
      if (group == 1) return Desc({n, kv, r, c}, f32, {s.length * stride, d, sr, sc});
      return Desc({n, kv, 1, r, c}, f32, {s.length * stride, d, d, sr, sc});
    };
    scores = onednn::make_product(device, {q, shared(s.k_stride, true), square, {}, {}});
    result = onednn::make_product(device, {square, shared(s.v_stride, false), out, {}, {}});
    diff_probabilities = onednn::make_product(device, {out, shared(s.v_stride, true), square, {}, {}});
    diff_q = onednn::make_product(device, {square, shared(s.k_stride, false), q, {}, {}});
    // Summed over the group's heads, one product each.
    const Desc turned = grouped(n, kv, 1, keys, rows, {s.heads * head, group * head, 0, 1, keys});
    const Desc one_q = grouped(n, kv, 1, rows, d, {s.length * s.q_stride, group * d, 0, s.q_stride, 1});
    const Desc one_out = grouped(n, kv, 1, rows, d, {s.length * width, group * d, 0, width, 1});
    const Desc k = grouped(n, kv, 1, keys, d, {s.length * s.k_stride, d, 0, s.k_stride, 1});
    const Desc v = grouped(n, kv, 1, keys, d, {s.length * s.v_stride, d, 0, s.v_stride, 1});
    for (bool add : {false, true}) {
      diff_k[add] = onednn::make_product(device, {turned, one_q, k, {}, {}, 1.0f, add});
      diff_v[add] = onednn::make_product(device, {turned, one_out, v, {}, {}, 1.0f, add});
    }
  }
  std::int64_t first, rows, keys;
  Primitive scores, result, diff_probabilities, diff_q, diff_k[2], diff_v[2];
};

class OnednnAttention : public Attention {
 public:
  OnednnAttention(Device& device, const AttentionSpec& spec)
      : spec_(spec),
        sequences_(sequences_at_once(spec)),
        shape_(device, training_shape(spec)),
        softmax_(device.kernels().get("attention", "causal_softmax")),
        softmax_backward_(device.kernels().get("attention", "causal_softmax_backward")) {
    if (spec.batch == 0) return;
    for (std::int64_t first = 0; first < spec.length; first += query_block) blocks_.emplace_back(device, spec, sequences_, first);
  }

  std::size_t saved_bytes() const override { return static_cast<std::size_t>(spec_.batch * spec_.heads * spec_.length) * sizeof(float); }
  std::size_t workspace_bytes() const override { return 2 * square_bytes() + align_up(saved_bytes()); }

  void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void* workspace) override {
    float* const squares = static_cast<float*>(workspace);
    float* const log_sums = saved ? static_cast<float*>(saved) : at(squares, 2 * square_bytes() / sizeof(float));
    for (std::int64_t sequence = 0; sequence < spec_.batch; sequence += sequences_)
      for (Block& block : blocks_) {
        const Place p = place(sequence, block);
        block.scores.run(stream, {at(q, p.q), at(k, p.k), squares});
        softmax_.launch(stream, groups(block), row_group, squares, at(log_sums, p.row), rows(block), block.rows, block.keys, block.first,
                        spec_.length, shape_.data());
        block.result.run(stream, {squares, at(v, p.v), at(dst, p.dst)});
      }
  }

  void backward(Stream& stream, const void* q, const void* k, const void* v, const void*, const void* diff_dst, const void* saved,
                void* diff_q, void* diff_k, void* diff_v, void* workspace) override {
    float* const probabilities = static_cast<float*>(workspace);
    float* const diffs = at(probabilities, square_bytes() / sizeof(float));
    for (std::int64_t sequence = 0; sequence < spec_.batch; sequence += sequences_)
      // The last block sees all keys: it writes their gradients, the others add to the beginning of them.
      for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
        const Place p = place(sequence, *block);
        block->scores.run(stream, {at(q, p.q), at(k, p.k), probabilities});
        block->diff_probabilities.run(stream, {at(diff_dst, p.dst), at(v, p.v), diffs});
        softmax_backward_.launch(stream, groups(*block), row_group, probabilities, diffs, at(static_cast<const float*>(saved), p.row),
                                 rows(*block), block->rows, block->keys, block->first, spec_.length, shape_.data());
        block->diff_q.run(stream, {diffs, at(k, p.k), at(diff_q, p.q)});
        for (std::int64_t head = 0; head < spec_.heads / spec_.kv_heads; ++head) {
          const bool add = head > 0 || block != blocks_.rbegin();
          const std::int64_t square = head * block->rows * block->keys, column = head * spec_.head_dim;
          block->diff_v[add].run(stream, {at(probabilities, square), at(diff_dst, p.dst + column), at(diff_v, p.v)});
          block->diff_k[add].run(stream, {at(diffs, square), at(q, p.q + column), at(diff_k, p.k)});
        }
      }
  }

 private:
  // Where a sequence's part begins, in elements.
  struct Place {
    std::int64_t q, k, v, dst, row;
  };
  Place place(std::int64_t sequence, const Block& block) const {
    const std::int64_t token = sequence * spec_.length, query = token + block.first;
    return {query * spec_.q_stride, token * spec_.k_stride, token * spec_.v_stride, query * spec_.heads * spec_.head_dim,
            token * spec_.heads};
  }
  template <class T>
  static T* at(T* data, std::int64_t elements) {
    if constexpr (std::is_same_v<std::remove_const_t<T>, void>)
      return static_cast<std::conditional_t<std::is_const_v<T>, const float, float>*>(data) + elements;
    else
      return data + elements;
  }
  static float* at(float* data, std::size_t elements) { return data + elements; }

  static std::int64_t sequences_at_once(const AttentionSpec& spec) {
    const std::int64_t each = spec.heads * std::min(query_block, spec.length) * spec.length * static_cast<std::int64_t>(sizeof(float));
    std::int64_t most = std::max<std::int64_t>(1, each ? std::min(spec.batch, cached_bytes / each) : 1);
    while (spec.batch % most != 0) --most;
    return most;
  }
  std::size_t square_bytes() const {
    return align_up(static_cast<std::size_t>(sequences_ * spec_.heads * std::min(query_block, spec_.length) * spec_.length) *
                    sizeof(float));
  }
  std::int64_t rows(const Block& block) const { return sequences_ * spec_.heads * block.rows; }
  std::size_t groups(const Block& block) const { return (static_cast<std::size_t>(rows(block)) + rows_per_group - 1) / rows_per_group; }

  AttentionSpec spec_;
  std::int64_t sequences_;
  own::Constant<AttentionShape> shape_;
  const Kernel &softmax_, &softmax_backward_;
  std::vector<Block> blocks_;
};

Refusal refuse(const Device& device, const AttentionSpec& spec) {
  if (!spec.causal) return "it is for causal attention";
  if (auto refusal = onednn::device_refusal(device)) return refusal;
  if (!device.info().is_cpu) return "on GPUs the fused kernel saves the trips of the scores through memory";
  if (spec.type != Type::f32) return "gradients of keys are summed over query blocks, which needs f32";
  return {};
}

}  // namespace

constexpr Implementation<Attention, AttentionSpec> onednn_attention{"onednn", refuse, construct<OnednnAttention>};

}  // namespace ppengine::ops
