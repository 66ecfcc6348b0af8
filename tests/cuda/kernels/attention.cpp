// Launches of ops/kernels/attention.cpp, attention_f32.cpp and attention_bf16.cpp.
#include <ppengine/ops/kernels/attention_shape.hpp>

#include "case.hpp"

namespace ppengine::test {
namespace {

constexpr auto f32 = Element::f32;

// Dense q [batch,length,heads,head_dim], k and v [batch,length,kv_heads,head_dim].
AttentionShape dense(long length, long heads, long kv_heads, long head_dim) {
  return {length,
          heads,
          heads / kv_heads,
          head_dim,
          length * heads * head_dim,
          heads * head_dim,
          length * kv_heads * head_dim,
          kv_heads * head_dim,
          head_dim,
          length * kv_heads * head_dim,
          kv_heads * head_dim,
          head_dim,
          0.2f,
          0,
          no_window,
          no_ring,
          0,
          0,
          0};
}

std::size_t cells(long a, long b, long c) { return static_cast<std::size_t>(a * b * c); }

}  // namespace

// Two heads that share keys and values; 70 tokens take two tiles, the second hardly begun.
std::vector<KernelCase> tile_cases() {
  std::vector<KernelCase> all;
  for (const std::string& type : two_types()) {
    const Element t = element_of(type);
    for (const long widest : {64, 128, 256}) {
      const long length = widest == 64 ? 70 : 18, heads = 2, kv_heads = 1, head_dim = widest == 64 ? 24 : widest - 60;
      AttentionShape shape = dense(length, heads, kv_heads, head_dim);
      if (widest == 128) shape.window = 7, shape.cap = 3;
      const auto tiles = static_cast<std::uint32_t>((length + 63) / 64);
      const auto add = [&](const std::string& kernel, std::uint32_t rows, std::vector<Argument> arguments) {
        all.push_back(make_case("attention_" + type, "attention_" + kernel + "_" + std::to_string(widest) + "_" + type,
                                plane(rows, tiles, 16, 16), std::move(arguments)));
      };
      const Argument q = random(t, cells(length, heads, head_dim)), k = random(t, cells(length, kv_heads, head_dim)),
                     v = random(t, cells(length, kv_heads, head_dim)), d = random(t, cells(length, heads, head_dim)),
                     log_sums = random(f32, cells(length, heads, 1), 4, 5), deltas = random(f32, cells(length, heads, 1));
      add("forward", 2, {q, k, v, empty(t, cells(length, heads, head_dim)), empty(f32, cells(length, heads, 1)), structure(shape), none()});
      add("backward_q", 2, {q, k, v, d, log_sums, deltas, empty(t, cells(length, heads, head_dim)), structure(shape)});
      add("backward_kv", 1,
          {q, k, v, d, log_sums, deltas, empty(t, cells(length, kv_heads, head_dim)), empty(t, cells(length, kv_heads, head_dim)),
           structure(shape)});
    }
  }
  return all;
}

// The same on tensor cores, which round probabilities and the gradients of scores to bf16 for their products: to two hundredths of the
// largest value.
std::vector<KernelCase> tensor_attention_cases() {
  std::vector<KernelCase> all;
  const auto t = Element::bf16;
  for (const long widest : {64, 128}) {
    const long length = 150, heads = 2, kv_heads = 1, head_dim = widest - 24;
    AttentionShape shape = dense(length, heads, kv_heads, head_dim);
    if (widest == 128) shape.window = 70, shape.cap = 3;
    const auto add = [&](const std::string& kernel, std::uint32_t rows, std::vector<Argument> arguments) {
      const std::string width = std::to_string(widest);
      all.push_back(make_case("attention_tensor_" + width, "attention_tensor_" + kernel + "_" + width, plane(rows, 3, 4, 32),
                              std::move(arguments), 0.02));
      all.back().twin = Twin{"attention_bf16", "attention_" + kernel + "_" + width + "_bf16", {3, rows, 1}, {16, 16, 1}};
    };
    const Argument q = random(t, cells(length, heads, head_dim)), k = random(t, cells(length, kv_heads, head_dim)),
                   v = random(t, cells(length, kv_heads, head_dim)), d = random(t, cells(length, heads, head_dim)),
                   log_sums = random(f32, cells(length, heads, 1), 4, 5), deltas = random(f32, cells(length, heads, 1));
    add("forward", 2, {q, k, v, empty(t, cells(length, heads, head_dim)), empty(f32, cells(length, heads, 1)), structure(shape), none()});
    add("backward_q", 2, {q, k, v, d, log_sums, deltas, empty(t, cells(length, heads, head_dim)), structure(shape)});
    add("backward_kv", 1,
        {q, k, v, d, log_sums, deltas, empty(t, cells(length, kv_heads, head_dim)), empty(t, cells(length, kv_heads, head_dim)),
         structure(shape)});
  }
  // 40 new tokens behind 37 of a cache in two pages, the second of which lies first.
  AttentionShape paged = dense(40, 2, 1, 40);
  paged.page = 64, paged.table_at = 1, paged.table_stride = 2;
  paged.k_batch = paged.v_batch = 0;
  paged.k_token = paged.v_token = 40;
  paged.k_head = paged.v_head = 128 * 40;
  all.push_back(make_case("attention_tensor_64", "attention_tensor_forward_64", plane(2, 1, 4, 32),
                          {random(t, cells(40, 2, 40)), random(t, cells(128, 1, 40)), random(t, cells(128, 1, 40)),
                           empty(t, cells(40, 2, 40)), none(), structure(paged), integers({37, 1, 0})},
                          0.02));
  all.back().twin = Twin{"attention_bf16", "attention_forward_64_bf16", {1, 2, 1}, {16, 16, 1}};
  return all;
}

std::vector<KernelCase> attention_cases() {
  std::vector<KernelCase> all;
  const auto add = [&](const std::string& kernel, std::uint32_t groups, std::vector<Argument> arguments) {
    all.push_back(make_case("attention", kernel, line(groups, 64), std::move(arguments)));
  };
  AttentionShape scores = dense(8, 2, 2, 4);
  scores.window = 5;
  const auto softmax = [&](std::vector<Argument> arguments) {
    for (const long one : {16, 8, 8, 0, 8}) arguments.push_back(whole(one));  // rows, queries, keys, first query, length
    arguments.push_back(structure(scores));
    return arguments;
  };
  add("causal_softmax", 2, softmax({random(f32, 128), empty(f32, 16)}));
  add("causal_softmax_backward", 2, softmax({random(f32, 128), random(f32, 128), random(f32, 16, 1, 2)}));

  const long batch = 2, heads = 4, kv_heads = 2, head_dim = 40, capacity = 16;
  AttentionShape cache = dense(1, heads, kv_heads, head_dim);
  cache.k_batch = cache.v_batch = kv_heads * capacity * head_dim;
  cache.k_token = cache.v_token = head_dim;
  cache.k_head = cache.v_head = capacity * head_dim;
  const RotaryShape turned{3, 2, 1, 10, 4, 1};
  for (const std::string& type : two_types()) {
    const Element t = element_of(type);
    add("row_products_" + type, 2, {random(t, 12 * 40), random(t, 12 * 40), empty(f32, 12), whole(12), whole(3), whole(2), whole(40)});
    const Argument k = random(t, cells(batch, kv_heads, head_dim)), v = random(t, cells(batch, kv_heads, head_dim)),
                   filled = integers({3, 9}), k_cache = random(t, cells(batch * kv_heads, capacity, head_dim)),
                   v_cache = random(t, cells(batch * kv_heads, capacity, head_dim));
    const std::vector<Argument> strides{structure(cache), whole(kv_heads * head_dim), whole(kv_heads * head_dim), whole(capacity)};
    std::vector<Argument> append{k, v, filled, k_cache, v_cache};
    append.insert(append.end(), strides.begin(), strides.end());
    add("append_" + type, batch, append);
    std::vector<Argument> decode{random(t, cells(batch, heads, head_dim)), k, v, filled, k_cache, v_cache,
                                 empty(t, cells(batch, heads, head_dim))};
    decode.insert(decode.end(), strides.begin(), strides.end());
    add("decode_" + type, static_cast<std::uint32_t>(batch * heads), decode);
    for (const float back : {1.0f, -1.0f})
      add("rotary_" + type, 2,
          {random(t, 120), empty(t, 120), random(f32, 24, -1, 1), random(f32, 24, -1, 1), integers({1, 2}), whole(120), structure(turned),
           whole(20), whole(20), whole(10), number(back)});
  }
  return all;
}

}  // namespace ppengine::test
