// Attention on CPUs by our kernels with a query per lane (kernels/attention_lanes.cpp): one launch forward, two backward, nothing between
// them that waits. Twice the rate of oneDNN's products with a softmax between them, where each step changes from one thread pool to the
// other.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/ops/detail/attention_parts.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>
#include <ppengine/ops/sycl/constant.hpp>

namespace ppengine::ops {
namespace {

constexpr std::int64_t keys_at_once = 4;        // as in kernels/attention_lanes.cpp
constexpr std::int64_t slice_bytes = 16 << 20;  // of probabilities; as many of their gradients

std::int64_t up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

class LanesAttention : public Attention {
 public:
  LanesAttention(Device& device, const AttentionSpec& spec)
      : spec_(spec),
        shape_(device, training_shape(spec)),
        forward_(device.kernels().get("attention_lanes", "attention_forward_lanes")),
        backward_q_(device.kernels().get("attention_lanes", "attention_backward_q_lanes")),
        backward_kv_(device.kernels().get("attention_lanes", "attention_backward_kv_lanes")) {
    // As many queries of one key/value head as fit, then as many heads.
    const std::int64_t group = spec.heads / spec.kv_heads, row = group * spec.length * static_cast<std::int64_t>(sizeof(float)),
                       whole = up(spec.length, attention_block);
    const std::int64_t blocks =
        row ? std::clamp<std::int64_t>(slice_bytes / (row * attention_block), 1, std::max<std::int64_t>(whole, 1)) : 1;
    queries_ = blocks * attention_block;
    pairs_ = std::clamp<std::int64_t>(row ? slice_bytes / (row * queries_) : 1, 1, std::max<std::int64_t>(spec.batch * spec.kv_heads, 1));
  }

  std::size_t saved_bytes() const override { return static_cast<std::size_t>(spec_.batch * spec_.length * spec_.heads) * sizeof(float); }
  std::size_t workspace_bytes() const override { return 2 * square_bytes(); }

  void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void*) override {
    const std::int32_t* const none = nullptr;
    forward_.launch(stream, static_cast<std::size_t>(spec_.batch * spec_.heads * up(spec_.length, attention_block)), attention_lanes, q, k,
                    v, dst, saved, shape_.data(), none);
  }

  void backward(Stream& stream, const void* q, const void* k, const void* v, const void* dst, const void* diff_dst, const void* saved,
                void* diff_q, void* diff_k, void* diff_v, void* workspace) override {
    void* const probabilities = workspace;
    void* const diff_scores = static_cast<std::byte*>(workspace) + square_bytes();
    const std::int64_t all = spec_.batch * spec_.kv_heads, group = spec_.heads / spec_.kv_heads;
    for (std::int64_t pair = 0; pair < all; pair += pairs_) {
      const std::int64_t pairs = std::min(pairs_, all - pair);
      // The last queries see all keys: they write their gradients, the others add to the beginning of them.
      for (std::int64_t first = (up(spec_.length, queries_) - 1) * queries_; first >= 0; first -= queries_) {
        const std::int64_t queries = std::min(queries_, spec_.length - first), keys = first + queries;
        backward_q_.launch(stream, static_cast<std::size_t>(pairs * group * up(queries, attention_block)), attention_lanes, q, k, v, dst,
                           diff_dst, saved, diff_q, probabilities, diff_scores, shape_.data(), pair, first, queries);
        backward_kv_.launch(stream, static_cast<std::size_t>(pairs * up(keys, keys_at_once)), attention_lanes, q, diff_dst, probabilities,
                            diff_scores, diff_k, diff_v, shape_.data(), pair, first, queries, keys,
                            static_cast<std::int32_t>(keys < spec_.length));
      }
    }
  }

 private:
  // A few rows more than keys: the last block of keys reads past them.
  std::size_t square_bytes() const {
    const std::int64_t group = spec_.heads / spec_.kv_heads;
    return align_up(static_cast<std::size_t>((pairs_ * group * spec_.length + keys_at_once) * queries_) * sizeof(float));
  }

  AttentionSpec spec_;
  own::Constant<AttentionShape> shape_;
  const Kernel &forward_, &backward_q_, &backward_kv_;
  std::int64_t queries_ = 0, pairs_ = 0;  // of a slice of the backward
};

}  // namespace

Refusal lanes_refusal(const Device& device, Type type, std::int64_t head_dim) {
  if (!device.info().is_cpu) return "a query per lane is made for CPUs' vectors";
  if (type != Type::f32) return "it reads f32 only";
  if (head_dim % attention_step != 0) return fmt::format("heads are {} wide, which is no multiple of {}", head_dim, attention_step);
  if (head_dim > attention_widest_lanes)
    return fmt::format("heads are {} wide, this kernel holds at most {}", head_dim, attention_widest_lanes);
  return {};
}

namespace {

Refusal refuse(const Device& device, const AttentionSpec& spec) {
  return spec.causal ? lanes_refusal(device, spec.type, spec.head_dim) : Refusal("it is for causal attention");
}

}  // namespace

constexpr Implementation<Attention, AttentionSpec> lanes_attention{"sycl lanes", refuse, construct<LanesAttention>};

}  // namespace ppengine::ops
