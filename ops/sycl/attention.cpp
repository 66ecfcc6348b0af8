// Attention on our own kernels, in tiles (kernels/attention_tiles.hpp, kernels/attention_tensor.hpp): what is kept for the backward is one
// log-sum per row.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/ops/detail/attention_parts.hpp>
#include <ppengine/ops/device/nvidia.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>
#include <ppengine/ops/sycl/constant.hpp>

namespace ppengine::ops {

namespace {

// Elements between sequences, rows and heads.
struct Strides {
  std::int64_t sequence, row, head;
};

template <class Spec>
AttentionShape make_shape(const Spec& spec, const Strides& k, const Strides& v, std::int64_t ring, const CachePages& pages = {}) {
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
    const std::int64_t head = spec.slots() * spec.head_dim;
    return make_shape(spec, {0, spec.head_dim, head}, {0, spec.head_dim, head}, no_ring, spec.pages);
  }
  const std::int64_t head = spec.capacity * spec.head_dim;
  const Strides cache{spec.kv_heads * head, spec.head_dim, head};
  return make_shape(spec, cache, cache, spec.window > 0 ? spec.capacity : no_ring);
}

namespace {

constexpr std::int64_t tile_side = 64, tile_threads = 16;  // as in kernels/tile.hpp
constexpr std::int64_t widest_head = 256;                  // as instantiated in kernels/attention_*.cpp
constexpr std::int64_t row_group = 64;                     // work-items of a group in kernels/attention.cpp

std::size_t up(std::int64_t count, std::int64_t by) { return static_cast<std::size_t>((count + by - 1) / by); }
const char* suffix(Type type) { return type == Type::bf16 ? "bf16" : "f32"; }

// Kernels over tiles, and their work-groups.
struct TileKernels {
  const Kernel *forward = nullptr, *backward_q = nullptr, *backward_kv = nullptr;
  std::size_t size_y = tile_threads, size_x = tile_threads;
};

TileKernels tile_kernels(Device& device, std::int64_t head_dim, Type type) {
  const int width = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  const auto kernel = [&](const char* name) {
    return &device.kernels().get(fmt::format("attention_{}", suffix(type)), fmt::format("attention_{}_{}_{}", name, width, suffix(type)));
  };
  return {kernel("forward"), kernel("backward_q"), kernel("backward_kv")};
}

TileKernels tensor_kernels(Device& device, std::int64_t head_dim) {
  const int width = head_dim <= 64 ? 64 : 128;
  const auto kernel = [&](const char* name) {
    return &device.kernels().get(fmt::format("attention_tensor_{}", width), fmt::format("attention_tensor_{}_{}", name, width));
  };
  return {kernel("forward"), kernel("backward_q"), kernel("backward_kv"), 4, 32};
}

// As they read 16 bytes at a time, rows and heads have to begin at multiples of that.
template <class Spec>
bool fits_tensor_cores(const Device& device, const Spec& spec) {
  const auto whole = [](std::int64_t elements) { return elements % 8 == 0; };
  return has_tensor_cores(device) && spec.type == Type::bf16 && spec.head_dim <= 128 && whole(spec.head_dim) && whole(spec.q_stride) &&
         whole(spec.k_stride) && whole(spec.v_stride);
}

bool lie_at_16_bytes(std::initializer_list<const void*> pointers) {
  return std::ranges::all_of(pointers, [](const void* one) { return reinterpret_cast<std::uintptr_t>(one) % 16 == 0; });
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
        anywhere_(tile_kernels(device, spec.head_dim, spec.type)),
        aligned_(fits_tensor_cores(device, spec) ? tensor_kernels(device, spec.head_dim) : anywhere_),
        products_(device.kernels().get("attention", fmt::format("row_products_{}", suffix(spec.type)))) {}

  std::size_t saved_bytes() const override { return static_cast<std::size_t>(rows()) * sizeof(float); }
  std::size_t workspace_bytes() const override { return saved_bytes(); }

  void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void*) override {
    const std::int32_t* const none = nullptr;
    const TileKernels& kernels = lie_at_16_bytes({q, k, v, dst}) ? aligned_ : anywhere_;
    kernels.forward->launch_2d(stream, static_cast<std::size_t>(spec_.batch * spec_.heads), up(spec_.length, tile_side), kernels.size_y,
                               kernels.size_x, q, k, v, dst, saved, shape_.data(), none);
  }

  void backward(Stream& stream, const void* q, const void* k, const void* v, const void* dst, const void* diff_dst, const void* saved,
                void* diff_q, void* diff_k, void* diff_v, void* workspace) override {
    products_.launch(stream, up(rows(), 4), row_group, dst, diff_dst, workspace, rows(), spec_.length, spec_.heads, spec_.head_dim);
    const std::size_t blocks = up(spec_.length, tile_side);
    const TileKernels& kernels = lie_at_16_bytes({q, k, v, diff_dst, diff_q, diff_k, diff_v}) ? aligned_ : anywhere_;
    kernels.backward_q->launch_2d(stream, static_cast<std::size_t>(spec_.batch * spec_.heads), blocks, kernels.size_y, kernels.size_x, q, k,
                                  v, diff_dst, saved, workspace, diff_q, shape_.data());
    kernels.backward_kv->launch_2d(stream, static_cast<std::size_t>(spec_.batch * spec_.kv_heads), blocks, kernels.size_y, kernels.size_x,
                                   q, k, v, diff_dst, saved, workspace, diff_k, diff_v, shape_.data());
  }

 private:
  std::int64_t rows() const { return spec_.batch * spec_.length * spec_.heads; }

  AttentionSpec spec_;
  own::Constant<AttentionShape> shape_;
  TileKernels anywhere_, aligned_;
  const Kernel& products_;
};

// Few new tokens: one launch appends and attends, a work-group per token and head. More: append, then a
// query per vector lane on CPUs, and the tiles of training over the cache elsewhere.
class SyclCachedAttention : public CachedAttention {
 public:
  static constexpr std::int64_t few_tokens = 8;

  SyclCachedAttention(Device& device, const CachedAttentionSpec& spec)
      : spec_(spec),
        shape_(device, cache_shape(spec)),
        decode_(device.kernels().get("attention", fmt::format("decode_{}", suffix(spec.type)))),
        append_(device.kernels().get("attention", fmt::format("append_{}", suffix(spec.type)))),
        lanes_(spec.length > few_tokens && !lanes_refusal(device, spec.type, spec.head_dim)
                   ? &device.kernels().get("attention_lanes", "attention_forward_lanes")
                   : nullptr),
        anywhere_(spec.length > few_tokens && !lanes_ ? tile_kernels(device, spec.head_dim, spec.type) : TileKernels()),
        aligned_(anywhere_.forward && fits_tensor_cores(device, spec) ? tensor_kernels(device, spec.head_dim) : anywhere_) {}

  std::size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const void* q, const void* k, const void* v, const std::int32_t* filled, void* k_cache, void* v_cache,
               void* dst, void*) override {
    const std::int64_t tokens = spec_.batch * spec_.length;
    if (!lanes_ && !anywhere_.forward) {
      decode_.launch(stream, static_cast<std::size_t>(tokens * spec_.heads), row_group, q, k, v, filled, k_cache, v_cache, dst,
                     shape_.data(), spec_.k_stride, spec_.v_stride, spec_.slots());
      return;
    }
    append_.launch(stream, static_cast<std::size_t>(tokens), row_group, k, v, filled, k_cache, v_cache, shape_.data(), spec_.k_stride,
                   spec_.v_stride, spec_.slots());
    const void* const none = nullptr;
    if (lanes_)
      return lanes_->launch(stream, static_cast<std::size_t>(spec_.batch * spec_.heads) * up(spec_.length, attention_block),
                            attention_lanes, q, k_cache, v_cache, dst, none, shape_.data(), filled);
    const TileKernels& kernels = lie_at_16_bytes({q, k_cache, v_cache, dst}) ? aligned_ : anywhere_;
    kernels.forward->launch_2d(stream, static_cast<std::size_t>(spec_.batch * spec_.heads), up(spec_.length, tile_side), kernels.size_y,
                               kernels.size_x, q, k_cache, v_cache, dst, none, shape_.data(), filled);
  }

 private:
  CachedAttentionSpec spec_;
  own::Constant<AttentionShape> shape_;
  const Kernel &decode_, &append_;
  const Kernel* lanes_;  // null: another one serves
  TileKernels anywhere_, aligned_;
};

Refusal refuse(const Device&, const AttentionSpec& spec) { return spec.causal ? refusal(spec) : Refusal("it is for causal attention"); }
Refusal refuse(const Device&, const CachedAttentionSpec& spec) { return spec.bytes ? Refusal("it reads no bytes") : refusal(spec); }

}  // namespace

constexpr Implementation<Attention, AttentionSpec> sycl_attention{"sycl", refuse, construct<SyclAttention>};
constexpr Implementation<CachedAttention, CachedAttentionSpec> sycl_cached_attention{"sycl", refuse, construct<SyclCachedAttention>};

}  // namespace ppengine::ops
