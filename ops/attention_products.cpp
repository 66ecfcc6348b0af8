// Attention without a causal mask on any device: two matrix products with a softmax between them, whose result is kept for the backward.
#include <algorithm>

#include <ppengine/ops/detail/attention_parts.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/matmul.hpp>
#include <ppengine/ops/softmax.hpp>

namespace ppengine::ops {
namespace {

class ProductsAttention : public Attention {
 public:
  ProductsAttention(Device& device, const AttentionSpec& s) : spec_(s) {
    if (s.batch == 0 || s.length == 0) return;
    const std::int64_t width = s.heads * s.head_dim, t = s.length, d = s.head_dim;
    // [batch, heads, tokens, head_dim] as they lie, and the other way round.
    const auto heads = [&](std::int64_t stride) { return tensor({s.batch, s.heads, t, d}, {t * stride, d, stride, 1}); };
    const auto turned = [&](std::int64_t stride) { return tensor({s.batch, s.heads, d, t}, {t * stride, d, 1, stride}); };
    const Tensor square = tensor({s.batch, s.heads, t, t}, {s.heads * t * t, t * t, t, 1}),
                 mirrored = tensor({s.batch, s.heads, t, t}, {s.heads * t * t, t * t, 1, t});
    const auto make = [&](const Tensor& a, const Tensor& b, const Tensor& c, float alpha) {
      return Matmul::make(device, {a, b, c, alpha});
    };
    scores_ = make(heads(s.q_stride), turned(s.k_stride), square, s.scale);
    result_ = make(square, heads(s.v_stride), heads(width), 1.0f);
    diff_probabilities_ = make(heads(width), turned(s.v_stride), square, 1.0f);
    diff_q_ = make(square, heads(s.k_stride), heads(s.q_stride), s.scale);
    diff_k_ = make(mirrored, heads(s.q_stride), heads(s.k_stride), s.scale);
    diff_v_ = make(mirrored, heads(width), heads(s.v_stride), 1.0f);
    softmax_ = Softmax::make(device, {s.batch * s.heads * t, t, Type::f32});
  }

  std::size_t saved_bytes() const override {
    return static_cast<std::size_t>(spec_.batch * spec_.heads * spec_.length * spec_.length) * sizeof(float);
  }
  std::size_t workspace_bytes() const override { return saved_bytes(); }

  void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void* workspace) override {
    if (!scores_) return;
    void* const probabilities = saved ? saved : workspace;
    scores_->run(stream, q, k, probabilities);
    softmax_->forward(stream, probabilities, probabilities);
    result_->run(stream, probabilities, v, dst);
  }
  void backward(Stream& stream, const void* q, const void* k, const void* v, const void*, const void* diff_dst, const void* saved,
                void* diff_q, void* diff_k, void* diff_v, void* workspace) override {
    if (!scores_) return;
    diff_v_->run(stream, saved, diff_dst, diff_v);
    diff_probabilities_->run(stream, diff_dst, v, workspace);
    softmax_->backward_input(stream, saved, workspace, workspace);
    diff_q_->run(stream, workspace, k, diff_q);
    diff_k_->run(stream, workspace, q, diff_k);
  }

 private:
  static Tensor tensor(const Shape& shape, const Shape& strides) {
    Tensor tensor(nullptr, Type::f32, shape);
    tensor.strides = strides;
    return tensor;
  }

  AttentionSpec spec_;
  std::unique_ptr<Matmul> scores_, result_, diff_probabilities_, diff_q_, diff_k_, diff_v_;
  std::unique_ptr<Softmax> softmax_;
};

Refusal refuse(const Device&, const AttentionSpec& spec) {
  if (spec.causal) return "it has no causal mask";
  if (spec.type != Type::f32) return "it is for f32";
  if (spec.kv_heads != spec.heads) return "heads share keys and values";
  if (spec.cap > 0) return "caps are not made here";
  return {};
}

}  // namespace

constexpr Implementation<Attention, AttentionSpec> products_attention{"products", refuse, construct<ProductsAttention>};

}  // namespace ppengine::ops
