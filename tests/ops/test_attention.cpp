// Causal attention, for training and over a cache: against a reference in double whose gradients finite differences confirm, on every
// implementation.
#include <ppengine/base/error.hpp>

#include "attention_reference.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

BOOST_AUTO_TEST_SUITE(attention)

BOOST_AUTO_TEST_CASE(the_reference_gradients_equal_finite_differences) {
  const AttentionSpec spec = make_spec(1, 4, 4, 2, 3);
  const Reference reference(spec);
  const auto q = as_double(random_values(q_count(spec), 1)), k = as_double(random_values(k_count(spec), 2)),
             v = as_double(random_values(v_count(spec), 3));
  const auto diff = as_double(random_values(o_count(spec), 4));
  Values dq, dk, dv;
  reference.backward(q, k, v, diff, dq, dk, dv);
  const auto close = [](const char* name, const Values& a, const Values& b) {
    check_close(name, std::vector<float>(a.begin(), a.end()), b, 1e-6);
  };
  close("q", dq, numeric_gradient([&](const Values& x) { return dot(reference.forward(x, k, v), diff); }, q));
  close("k", dk, numeric_gradient([&](const Values& x) { return dot(reference.forward(q, x, v), diff); }, k));
  close("v", dv, numeric_gradient([&](const Values& x) { return dot(reference.forward(q, k, x), diff); }, v));
}

BOOST_AUTO_TEST_CASE(every_size_matches_the_reference) {
  for (const auto& device : devices()) {
    check_on(device, make_spec(1, 1, 1, 1, 1), 1e-5);
    check_on(device, make_spec(2, 1, 2, 1, 64), 1e-5);
    check_on(device, make_spec(2, 7, 3, 3, 5), 1e-5);
    check_on(device, make_spec(1, 64, 2, 2, 64), 1e-5);
    check_on(device, make_spec(3, 65, 4, 2, 16), 1e-5);
    check_on(device, make_spec(1, 130, 6, 2, 80), 1e-5);
    check_on(device, make_spec(2, 260, 2, 1, 33), 1e-5);
    check_on(device, make_spec(1, 70, 2, 1, 128), 1e-5);
    check_on(device, make_spec(1, 66, 1, 1, 200), 1e-5);
    check_on(device, make_spec(0, 8, 2, 2, 8), 1e-5);
  }
}

// With AVX-512 tiles are 12 by 32, with AVX2 6 by 16, half as wide where that is enough, and blocks have 96, 192 or 384 tokens.
BOOST_AUTO_TEST_CASE(every_border_of_tiles_and_blocks_matches_the_reference) {
  const auto device = devices().front();
  for (std::int64_t length : {2, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49})
    check_on(device, make_spec(1, length, 2, 1, 20), 1e-5);
  for (std::int64_t length : {95, 96, 97, 191, 192, 193, 383, 384, 385, 577}) check_on(device, make_spec(1, length, 1, 1, 4), 1e-5);
  for (std::int64_t width : {2, 15, 17, 31, 32, 36, 47, 48, 49, 65}) check_on(device, make_spec(1, 30, 2, 2, width), 1e-5);
}

BOOST_AUTO_TEST_CASE(without_a_causal_mask_every_query_sees_all_keys) {
  const auto whole = [](AttentionSpec spec) {
    spec.causal = false;
    return spec;
  };
  for (const auto& device : devices()) {
    for (std::int64_t length : {1, 2, 11, 17, 33, 65, 97}) check_on(device, whole(make_spec(2, length, 3, 3, 20)), 1e-5);
    check_on(device, whole(make_spec(1, 70, 2, 2, 64)), 1e-5);
  }
  for (std::int64_t length : {191, 192, 193, 385, 577}) check_on(devices().front(), whole(make_spec(1, length, 2, 2, 4)), 1e-5);
  if (!device()->onednn()) return;
  check_on(device(), whole(make_spec(1, 200, 4, 2, 16)), 1e-5);  // shared keys and values
  BOOST_TEST(!Attention::consider(*device(), whole(make_spec(1, 8, 2, 2, 8))).front().refusal);
}

// More probabilities than one slice of the backward holds: of queries, then of heads.
BOOST_AUTO_TEST_CASE(gradients_made_slice_by_slice_are_whole) {
  const auto device = devices().front();
  check_on(device, make_spec(1, 2100, 1, 1, 8), 1e-5);
  check_on(device, make_spec(1, 520, 34, 17, 8), 1e-5);
  check_on(device, make_spec(1, 800, 4, 2, 24), 1e-5);
}

BOOST_AUTO_TEST_CASE(equals_pytorch) {
  for (const auto& one : reference("attention"))
    for (const auto& device : devices()) {
      Stream stream(device);
      Array q(stream, floats(one["q"])), k(stream, floats(one["k"])), v(stream, floats(one["v"])), diff(stream, floats(one["diff"]));
      Array y(stream, q.count()), dq(stream, q.count()), dk(stream, k.count()), dv(stream, v.count());
      const AttentionSpec spec = make_spec(one["batch"], one["length"], one["heads"], one["kv_heads"], one["width"]);
      for (const auto& [name, op] : every_implementation<Attention>(*device, spec)) {
        Buffer saved(device, op->saved_bytes()), workspace(device, op->workspace_bytes());
        op->forward(stream, q.data(), k.data(), v.data(), y.data(), saved.data(), workspace.data());
        op->backward(stream, q.data(), k.data(), v.data(), y.data(), diff.data(), saved.data(), dq.data(), dk.data(), dv.data(),
                     workspace.data());
        check_close(name + " y", y.get(), floats(one["y"]), 2e-6);
        check_close(name + " diff_q", dq.get(), floats(one["diff_q"]), 2e-6);
        check_close(name + " diff_k", dk.get(), floats(one["diff_k"]), 2e-6);
        check_close(name + " diff_v", dv.get(), floats(one["diff_v"]), 2e-6);
      }
    }
}

BOOST_AUTO_TEST_CASE(large_scores_neither_overflow_nor_lose_the_sum) {
  for (const auto& device : devices()) check_on(device, make_spec(1, 100, 2, 2, 16), 2e-4, 30.0f);
}

BOOST_AUTO_TEST_CASE(bf16_is_close_to_f32) {
  for (const auto& device : devices()) {
    check_on(device, make_spec(1, 70, 4, 2, 64, Type::bf16), 2e-2);
    check_on(device, make_spec(2, 5, 2, 2, 10, Type::bf16), 2e-2);
  }
}

BOOST_AUTO_TEST_CASE(slices_of_a_packed_projection_are_read_and_written_in_place) {
  for (const auto& device : devices()) {
    AttentionSpec spec = make_spec(2, 140, 2, 2, 24);
    const std::int64_t width = 48;
    spec.q_stride = spec.k_stride = spec.v_stride = 3 * width;
    Stream stream(device);
    const auto op = Attention::make(*device, spec);
    const auto packed = random_values(q_count(spec), 1), diff = random_values(o_count(spec), 2);
    Array qkv(stream, packed), gradient(stream, packed.size()), dst(stream, diff.size()), diff_dst(stream, diff);
    Buffer saved(device, op->saved_bytes()), workspace(device, op->workspace_bytes());
    const auto part = [&](const Array& array, std::int64_t i) { return array.f32() + i * width; };
    op->forward(stream, part(qkv, 0), part(qkv, 1), part(qkv, 2), dst.data(), saved.data(), workspace.data());
    op->backward(stream, part(qkv, 0), part(qkv, 1), part(qkv, 2), dst.data(), diff_dst.data(), saved.data(), part(gradient, 0),
                 part(gradient, 1), part(gradient, 2), workspace.data());
    Values slices[3], gradients[3];
    for (int i = 0; i < 3; ++i) {
      slices[i].assign(packed.begin() + i * width, packed.end());
      slices[i].resize(packed.size());
    }
    const Reference reference(spec);
    check_close("forward", dst.get(), reference.forward(slices[0], slices[1], slices[2]), 1e-5);
    reference.backward(slices[0], slices[1], slices[2], as_double(diff), gradients[0], gradients[1], gradients[2]);
    Values expected(packed.size());
    for (std::size_t i = 0; i < packed.size(); ++i) {
      const std::size_t slice = i / std::size_t(width) % 3;
      expected[i] = gradients[slice][i - slice * std::size_t(width)];
    }
    check_close("gradient", gradient.get(), expected, 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(repeated_runs_allocate_nothing_and_give_the_same_bits) {
  const AttentionSpec spec = make_spec(2, 150, 4, 2, 32);
  for (const auto& device : devices()) {
    Stream stream(device);
    const auto op = Attention::make(*device, spec);
    Array q(stream, random_values(q_count(spec), 1)), k(stream, random_values(k_count(spec), 2)),
        v(stream, random_values(v_count(spec), 3));
    Array diff(stream, random_values(o_count(spec), 4)), dst(stream, o_count(spec)), dq(stream, q.count()), dk(stream, k.count()),
        dv(stream, v.count());
    Buffer saved(device, op->saved_bytes()), workspace(device, op->workspace_bytes());
    std::vector<std::vector<float>> first;
    std::size_t allocations = 0;
    for (int run = 0; run < 4; ++run) {
      op->forward(stream, q.data(), k.data(), v.data(), dst.data(), saved.data(), workspace.data());
      op->backward(stream, q.data(), k.data(), v.data(), dst.data(), diff.data(), saved.data(), dq.data(), dk.data(), dv.data(),
                   workspace.data());
      std::vector<std::vector<float>> now{dst.get(), dq.get(), dk.get(), dv.get()};
      if (run == 0) first = now, allocations = device->memory().allocations();
      BOOST_TEST((now == first));
    }
    BOOST_TEST(device->memory().allocations() == allocations);
  }
}

// Of every sequence and head of a batch, which several threads share, as for the sequence alone; grouped heads, several blocks.
BOOST_AUTO_TEST_CASE(a_sequence_has_the_same_bits_in_any_company) {
  const AttentionSpec many = make_spec(3, 400, 4, 2, 24), alone = make_spec(1, 400, 4, 2, 24);
  const auto device = devices().front();
  Stream stream(device);
  const auto all = every_implementation<Attention>(*device, many), one = every_implementation<Attention>(*device, alone);
  BOOST_REQUIRE(all.size() == one.size());
  const auto q = random_values(q_count(many), 1), k = random_values(k_count(many), 2), v = random_values(v_count(many), 3),
             diff = random_values(o_count(many), 4);
  const auto run = [&](Attention& op, const AttentionSpec& spec, std::size_t first) {
    const auto part = [&](const std::vector<float>& values, std::size_t count) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * count / static_cast<std::size_t>(spec.batch));
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(count));
    };
    Array q_array(stream, part(q, q_count(spec))), k_array(stream, part(k, k_count(spec))), v_array(stream, part(v, v_count(spec))),
        diff_array(stream, part(diff, o_count(spec)));
    Array dst(stream, o_count(spec)), dq(stream, q_count(spec)), dk(stream, k_count(spec)), dv(stream, v_count(spec));
    Buffer saved(device, op.saved_bytes()), workspace(device, op.workspace_bytes());
    op.forward(stream, q_array.data(), k_array.data(), v_array.data(), dst.data(), saved.data(), workspace.data());
    op.backward(stream, q_array.data(), k_array.data(), v_array.data(), dst.data(), diff_array.data(), saved.data(), dq.data(), dk.data(),
                dv.data(), workspace.data());
    return std::vector<std::vector<float>>{dst.get(), dq.get(), dk.get(), dv.get()};
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto together = run(*all[i].op, many, 0);
    for (std::size_t sequence = 0; sequence < 3; ++sequence) {
      const auto apart = run(*one[i].op, alone, sequence);
      for (std::size_t result = 0; result < apart.size(); ++result)
        BOOST_TEST(std::equal(apart[result].begin(), apart[result].end(),
                              together[result].begin() + static_cast<std::ptrdiff_t>(sequence * apart[result].size())),
                   all[i].name << ", sequence " << sequence << ", result " << result);
    }
  }
}

// 12 heads: a square of scores would take 805 MB of f32 here.
BOOST_AUTO_TEST_CASE(memory_does_not_grow_with_the_square_of_the_length) {
  constexpr std::size_t most = 80u << 20;
  const std::int64_t length = 4096;
  for (const std::int64_t window : {0, 1024}) {
    AttentionSpec spec = make_spec(1, length, 12, 12, 64);
    spec.window = window;
    const auto op = Attention::make(*device(), spec);
    BOOST_TEST(op->saved_bytes() + op->workspace_bytes() < most);
  }
  const CachedAttentionSpec cached{.batch = 1,
                                   .length = length,
                                   .heads = 12,
                                   .kv_heads = 12,
                                   .head_dim = 64,
                                   .q_stride = 768,
                                   .k_stride = 768,
                                   .v_stride = 768,
                                   .capacity = length,
                                   .scale = 0.125f};
  BOOST_TEST(CachedAttention::make(*device(), cached)->workspace_bytes() < most);
}

BOOST_AUTO_TEST_CASE(four_thousand_tokens_match_sums_in_double) {
  const AttentionSpec spec = make_spec(1, 4096, 1, 1, 8);
  const auto one = device();
  Stream stream(one);
  const auto q = random_values(q_count(spec), 1, 3.0f), k = random_values(k_count(spec), 2, 3.0f), v = random_values(v_count(spec), 3);
  const auto op = Attention::make(*one, spec);
  const Array a(stream, q), b(stream, k), c(stream, v), dst(stream, o_count(spec));
  Buffer workspace(one, std::max<std::size_t>(op->workspace_bytes() + op->saved_bytes(), 64)),
      saved(one, std::max<std::size_t>(op->saved_bytes(), 64));
  op->forward(stream, a.f32(), b.f32(), c.f32(), dst.f32(), saved.data(), workspace.data());
  const auto got = dst.get();
  std::vector<float> some;
  std::vector<double> expected;
  for (const std::int64_t t : {0, 383, 384, 2048, 4095}) {
    double total = 0, sums[8] = {};
    for (std::int64_t key = 0; key <= t; ++key) {
      double score = 0;
      for (std::int64_t d = 0; d < 8; ++d)
        score += double(q[static_cast<std::size_t>(t * spec.q_stride + d)]) * k[static_cast<std::size_t>(key * spec.k_stride + d)];
      const double weight = std::exp(spec.scale * score);
      total += weight;
      for (std::int64_t d = 0; d < 8; ++d) sums[d] += weight * v[static_cast<std::size_t>(key * spec.v_stride + d)];
    }
    for (std::int64_t d = 0; d < 8; ++d) expected.push_back(sums[d] / total), some.push_back(got[static_cast<std::size_t>(t * 8 + d)]);
  }
  check_close("4096 tokens", some, expected, 1e-5);
}

BOOST_AUTO_TEST_CASE(every_refusal_has_a_reason) {
  const std::string off = device()->info().onednn ? "oneDNN is switched off" : "oneDNN has no engine for this device";
  const auto considered = Attention::consider(*device_without_onednn(), make_spec(1, 4, 1, 1, 5));
  BOOST_REQUIRE(considered.size() == 5);
  BOOST_TEST(considered[0].implementation == "cpu");
  BOOST_TEST(considered[0].refusal.value() == off);
  BOOST_TEST(considered[1].implementation == "sycl lanes");
  if (device()->info().is_cpu) BOOST_TEST(considered[1].refusal.value() == "heads are 5 wide, which is no multiple of 8");
  BOOST_TEST(considered[2].implementation == "onednn");
  BOOST_TEST(considered[2].refusal.value() == off);
  BOOST_TEST(considered[3].implementation == "sycl");
  BOOST_TEST(!considered[3].refusal.has_value());
  if (device()->onednn() && device()->info().is_cpu) {
    const auto narrow = Attention::consider(*device(), make_spec(1, 4, 1, 1, 8, Type::bf16));
    BOOST_TEST(narrow[0].refusal.has_value());
  }
}

BOOST_AUTO_TEST_CASE(heads_that_do_not_share_evenly_are_refused) {
  BOOST_CHECK_THROW(Attention::make(*device(), make_spec(1, 4, 5, 2, 8)), ppengine::ConfigError);
}

BOOST_AUTO_TEST_CASE(a_cache_filled_piece_by_piece_gives_what_training_gives) {
  for (const auto& [type, paged] : {std::pair(Type::f32, false), {Type::bf16, false}, {Type::f32, true}, {Type::bf16, true}}) {
    const double tolerance = type == Type::f32 ? 1e-5 : 2e-2;
    AttentionSpec spec = make_spec(2, 90, 4, 2, 40, type);
    const auto q = rounded(random_values(q_count(spec), 1), type), k = rounded(random_values(k_count(spec), 2), type);
    const auto v = rounded(random_values(v_count(spec), 3), type);
    const auto expected = Reference(spec).forward(as_double(q), as_double(k), as_double(v));
    const auto own = device_without_onednn();
    Stream stream(own);
    const std::int64_t capacity = 128;
    const CachePages pages = paged ? CachePages{64, 5, 2, 2} : CachePages{};  // two of five for each sequence
    const auto cells = std::size_t(2 * (paged ? 5 * 64 : 2 * capacity) * 40);
    Array k_cache(stream, cells, type), v_cache(stream, cells, type);
    std::int64_t filled = 0;
    for (std::int64_t piece : {69, 1, 3, 12, 5}) {  // a prompt, single tokens, a few at once; 10 tokens in all are too many for a step
      const CachedAttentionSpec cached{2,        piece,      4,    2, 40,   spec.q_stride, spec.k_stride, spec.v_stride,
                                       capacity, spec.scale, type, 0, 0.0f, pages};
      const auto op = CachedAttention::make(*own, cached);
      const auto take = [&](const std::vector<float>& from, std::int64_t stride) {
        std::vector<float> part;
        for (std::int64_t b = 0; b < 2; ++b)
          part.insert(part.end(), from.begin() + (b * spec.length + filled) * stride,
                      from.begin() + (b * spec.length + filled + piece) * stride);
        return part;
      };
      Array q_part(stream, take(q, spec.q_stride), type), k_part(stream, take(k, spec.k_stride), type),
          v_part(stream, take(v, spec.v_stride), type);
      Array count(stream, std::vector<std::int32_t>{std::int32_t(filled), std::int32_t(filled), 3, 1, 4, 2}),
          dst(stream, q_part.count(), type);
      Buffer workspace(own, op->workspace_bytes());
      op->forward(stream, q_part.data(), k_part.data(), v_part.data(), count.i32(), k_cache.data(), v_cache.data(), dst.data(),
                  workspace.data());
      std::vector<float> wanted;
      for (std::int64_t b = 0; b < 2; ++b)
        wanted.insert(wanted.end(), expected.begin() + (b * spec.length + filled) * 160,
                      expected.begin() + (b * spec.length + filled + piece) * 160);
      check_close("piece of " + std::to_string(piece) + (paged ? ", in pages" : ""), dst.get(), wanted, tolerance);
      filled += piece;
    }
  }
}

BOOST_AUTO_TEST_CASE(sequences_of_different_lengths_share_a_batch) {
  const auto own = device_without_onednn();
  Stream stream(own);
  const std::int64_t heads = 2, d = 64, capacity = 600, width = heads * d;
  const std::vector<std::int32_t> filled{0, 1, 599, 300};
  const auto k_old = random_values(std::size_t(4 * heads * capacity * d), 1),
             v_old = random_values(std::size_t(4 * heads * capacity * d), 2);
  const auto q = random_values(std::size_t(4 * width), 3), k = random_values(std::size_t(4 * width), 4),
             v = random_values(std::size_t(4 * width), 5);
  const auto op = CachedAttention::make(*own, {4, 1, heads, heads, d, width, width, width, capacity, 0.125f, Type::f32});
  Array k_cache(stream, k_old), v_cache(stream, v_old), q_array(stream, q), k_array(stream, k), v_array(stream, v), count(stream, filled),
      dst(stream, q.size());
  Buffer workspace(own, op->workspace_bytes());
  op->forward(stream, q_array.data(), k_array.data(), v_array.data(), count.i32(), k_cache.data(), v_cache.data(), dst.data(),
              workspace.data());
  auto k_all = k_old, v_all = v_old;
  Values expected(q.size());
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t base = (b * heads + h) * capacity * d, keys = filled[std::size_t(b)] + 1, at = b * width + h * d;
      Values p(static_cast<std::size_t>(keys));
      double sum = 0;
      for (std::int64_t i = 0; i < d; ++i) {
        k_all[std::size_t(base + (keys - 1) * d + i)] = k[std::size_t(at + i)];
        v_all[std::size_t(base + (keys - 1) * d + i)] = v[std::size_t(at + i)];
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        for (std::int64_t i = 0; i < d; ++i) p[std::size_t(j)] += 0.125 * q[std::size_t(at + i)] * k_all[std::size_t(base + j * d + i)];
        sum += p[std::size_t(j)] = std::exp(p[std::size_t(j)]);
      }
      for (std::int64_t j = 0; j < keys; ++j)
        for (std::int64_t i = 0; i < d; ++i)
          expected[std::size_t(at + i)] += p[std::size_t(j)] / sum * v_all[std::size_t(base + j * d + i)];
    }
  check_close("decode", dst.get(), expected, 1e-5);
  BOOST_TEST((k_cache.get() == k_all));
  BOOST_TEST((v_cache.get() == v_all));
}

BOOST_AUTO_TEST_SUITE_END()
