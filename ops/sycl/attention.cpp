// Attention on our own kernels, in tiles (kernels/attention_tiles.hpp): what is kept for the backward is one log-sum per row.
#include <fmt/core.h>

#include <ppengine/ops/detail/attention_parts.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>
#include <ppengine/ops/sycl/constant.hpp>

namespace ppengine::ops {

namespace {

// Elements between sequences, rows and heads.
struct Strides {
  int64_t sequence, row, head;
};

template <class Spec>
AttentionShape make_shape(const Spec& spec, const Strides& k, const Strides& v, int64_t ring, const CachePages& pages = {}) {
  return {spec.length,
          spec.heads,
          spec.heads / spec.kv_heads,
          spec.head_dim,
          spec.length * spec.q_stride,
          spec.q_stride,
          k.sequence,
          k.row,
          k.head,
          v.sequence,
          v.row,
          v.head,
          spec.scale,
          spec.cap,
          spec.window > 0 ? spec.window : no_window,
          ring,
          pages.size,
          pages.table_at,
          pages.table_stride};
}

}  // namespace

AttentionShape training_shape(const AttentionSpec& spec) {
  return make_shape(spec, {spec.length * spec.k_stride, spec.k_stride, spec.head_dim},
                    {spec.length * spec.v_stride, spec.v_stride, spec.head_dim}, no_ring);
}

AttentionShape cache_shape(const CachedAttentionSpec& spec) {
  if (spec.pages.size > 0) {
    const int64_t head = spec.slots() * spec.head_dim;
    return make_shape(spec, {0, spec.head_dim, head}, {0, spec.head_dim, head}, no_ring, spec.pages);
  }
  const int64_t head = spec.capacity * spec.head_dim;
  const Strides cache{spec.kv_heads * head, spec.head_dim, head};
  return make_shape(spec, cache, cache, spec.window > 0 ? spec.capacity : no_ring);
}

namespace {

constexpr int64_t tile_side = 64, tile_threads = 16;  // as in kernels/tile.hpp
constexpr int64_t widest_head = 256;                  // as instantiated in kernels/attention_*.cpp
constexpr int64_t row_group = 64;                     // work-items of a group in kernels/attention.cpp

size_t up(int64_t count, int64_t by) { return static_cast<size_t>((count + by - 1) / by); }
const char* suffix(Type type) { return type == Type::bf16 ? "bf16" : "f32"; }

const Kernel& tile_kernel(Device& device, const char* name, int64_t head_dim, Type type) {
  const int width = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  return device.kernels().get(fmt::format("attention_{}", suffix(type)), fmt::format("attention_{}_{}_{}", name, width, suffix(type)));
}

template <class Spec>
Refusal refusal(const Spec& spec) {
  if (spec.type == Type::i32) return "there is no attention on integers";
  if (spec.head_dim > widest_head) return fmt::format("heads are {} wide, our kernels hold at most {}", spec.head_dim, widest_head);
  return {};
}

class SyclAttention : public Attention {
 public:
  SyclAttention(Device& device, const AttentionSpec& spec)
      : spec_(spec),
        shape_(device, training_shape(spec)),
        forward_(tile_kernel(device, "forward", spec.head_dim, spec.type)),
        backward_q_(tile_kernel(device, "backward_q", spec.head_dim, spec.type)),
        backward_kv_(tile_kernel(device, "backward_kv", spec.head_dim, spec.type)),
        products_(device.kernels().get("attention", fmt::format("row_products_{}", suffix(spec.type)))) {}

  size_t saved_bytes() const override { return static_cast<size_t>(rows()) * sizeof(float); }
  size_t workspace_bytes() const override { return saved_bytes(); }

  void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void*) override {
    const int32_t* const none = nullptr;
    forward_.launch_2d(stream, static_cast<size_t>(spec_.batch * spec_.heads), up(spec_.length, tile_side), tile_threads, tile_threads, q,
                       k, v, dst, saved, shape_.data(), none);
  }

  void backward(Stream& stream, const void* q, const void* k, const void* v, const void* dst, const void* diff_dst, const void* saved,
                void* diff_q, void* diff_k, void* diff_v, void* workspace) override {
    products_.launch(stream, up(rows(), 4), row_group, dst, diff_dst, workspace, rows(), spec_.length, spec_.heads, spec_.head_dim);
    const size_t blocks = up(spec_.length, tile_side);
    backward_q_.launch_2d(stream, static_cast<size_t>(spec_.batch * spec_.heads), blocks, tile_threads, tile_threads, q, k, v, diff_dst,
                          saved, workspace, diff_q, shape_.data());
    backward_kv_.launch_2d(stream, static_cast<size_t>(spec_.batch * spec_.kv_heads), blocks, tile_threads, tile_threads, q, k, v, diff_dst,
                           saved, workspace, diff_k, diff_v, shape_.data());
  }

 private:
  int64_t rows() const { return spec_.batch * spec_.length * spec_.heads; }

  AttentionSpec spec_;
  own::Constant<AttentionShape> shape_;
  const Kernel &forward_, &backward_q_, &backward_kv_, &products_;
};

// Few new tokens: one launch appends and attends, a work-group per token and head. More: append, then a
// query per vector lane on CPUs, and the tiles of training over the cache elsewhere.
class SyclCachedAttention : public CachedAttention {
 public:
  static constexpr int64_t few_tokens = 8;

  SyclCachedAttention(Device& device, const CachedAttentionSpec& spec)
      : spec_(spec),
        shape_(device, cache_shape(spec)),
        decode_(device.kernels().get("attention", fmt::format("decode_{}", suffix(spec.type)))),
        append_(device.kernels().get("attention", fmt::format("append_{}", suffix(spec.type)))),
        lanes_(spec.length > few_tokens && !lanes_refusal(device, spec.type, spec.head_dim)
                   ? &device.kernels().get("attention_lanes", "attention_forward_lanes")
                   : nullptr),
        forward_(spec.length > few_tokens && !lanes_ ? &tile_kernel(device, "forward", spec.head_dim, spec.type) : nullptr) {}

  size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const void* q, const void* k, const void* v, const int32_t* filled, void* k_cache, void* v_cache, void* dst,
               void*) override {
    const int64_t tokens = spec_.batch * spec_.length;
    if (!lanes_ && !forward_) {
      decode_.launch(stream, static_cast<size_t>(tokens * spec_.heads), row_group, q, k, v, filled, k_cache, v_cache, dst, shape_.data(),
                     spec_.k_stride, spec_.v_stride, spec_.slots());
      return;
    }
    append_.launch(stream, static_cast<size_t>(tokens), row_group, k, v, filled, k_cache, v_cache, shape_.data(), spec_.k_stride,
                   spec_.v_stride, spec_.slots());
    const void* const none = nullptr;
    if (lanes_)
      return lanes_->launch(stream, static_cast<size_t>(spec_.batch * spec_.heads) * up(spec_.length, attention_block), attention_lanes, q,
                            k_cache, v_cache, dst, none, shape_.data(), filled);
    forward_->launch_2d(stream, static_cast<size_t>(spec_.batch * spec_.heads), up(spec_.length, tile_side), tile_threads, tile_threads, q,
                        k_cache, v_cache, dst, none, shape_.data(), filled);
  }

 private:
  CachedAttentionSpec spec_;
  own::Constant<AttentionShape> shape_;
  const Kernel &decode_, &append_;
  const Kernel *lanes_, *forward_;  // null: another one serves
};

Refusal refuse(const Device&, const AttentionSpec& spec) { return spec.causal ? refusal(spec) : Refusal("it is for causal attention"); }
Refusal refuse(const Device&, const CachedAttentionSpec& spec) { return refusal(spec); }

}  // namespace

constexpr Implementation<Attention, AttentionSpec> sycl_attention{"sycl", refuse, construct<SyclAttention>};
constexpr Implementation<CachedAttention, CachedAttentionSpec> sycl_cached_attention{"sycl", refuse, construct<SyclCachedAttention>};

}  // namespace ppengine::ops
