// Attention with windows and caps, for training and over a cache that is a ring; rotary embedding of parts of heads; norms with a shifted
// weight; soft caps. Against references in double, whose gradients finite differences confirm.
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/rotary.hpp>

#include "attention_reference.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

AttentionSpec windowed(AttentionSpec spec, std::int64_t window, float cap) {
  spec.window = window;
  spec.cap = cap;
  return spec;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attention_window)

BOOST_AUTO_TEST_CASE(the_reference_gradients_equal_finite_differences) {
  const AttentionSpec spec = windowed(make_spec(1, 5, 2, 1, 3), 3, 0.7f);
  const Reference reference(spec);
  const auto q = as_double(random_values(q_count(spec), 1)), k = as_double(random_values(k_count(spec), 2)),
             v = as_double(random_values(v_count(spec), 3)), diff = as_double(random_values(o_count(spec), 4));
  Values dq, dk, dv;
  reference.backward(q, k, v, diff, dq, dk, dv);
  const auto close = [](const char* name, const Values& a, const Values& b) {
    check_close(name, std::vector<float>(a.begin(), a.end()), b, 1e-6);
  };
  close("q", dq, numeric_gradient([&](const Values& x) { return dot(reference.forward(x, k, v), diff); }, q));
  close("k", dk, numeric_gradient([&](const Values& x) { return dot(reference.forward(q, x, v), diff); }, k));
}

BOOST_AUTO_TEST_CASE(windows_and_caps_match_the_reference) {
  for (const auto& device : devices()) {
    for (std::int64_t window : {1, 2, 31, 64, 65, 200}) check_on(device, windowed(make_spec(1, 150, 2, 1, 16), window, 0), 1e-5);
    check_on(device, windowed(make_spec(2, 70, 4, 2, 8), 0, 1.5f), 1e-5);
    check_on(device, windowed(make_spec(2, 140, 2, 2, 24), 17, 0.8f), 1e-5, 2.0f);
    check_on(device, windowed(make_spec(1, 135, 2, 1, 5), 70, 0.8f), 1e-5);
    check_on(device, windowed(make_spec(1, 66, 1, 1, 200), 20, 2.0f), 1e-5);
    check_on(device, windowed(make_spec(1, 70, 2, 1, 64, Type::bf16), 20, 2.0f), 2e-2);
  }
}

// 700 tokens through a ring of 256: prompts, few tokens and single ones.
BOOST_AUTO_TEST_CASE(a_ring_gives_what_training_gives) {
  BOOST_TEST(window_capacity(40, 100, 1000) == 256);
  BOOST_TEST(window_capacity(200, 100, 1000) == 512);
  BOOST_TEST(window_capacity(40, 100, 200) == 200);
  BOOST_TEST(window_capacity(0, 100, 1000) == 1000);
  for (const auto& own : devices())
    for (Type type : {Type::f32, Type::bf16}) {
      const double tolerance = type == Type::f32 ? 1e-5 : 2e-2;
      const AttentionSpec spec = windowed(make_spec(1, 700, 2, 1, 8, type), 40, 1.5f);
      const auto q = rounded(random_values(q_count(spec), 1), type), k = rounded(random_values(k_count(spec), 2), type),
                 v = rounded(random_values(v_count(spec), 3), type);
      const auto expected = Reference(spec).forward(as_double(q), as_double(k), as_double(v));
      Stream stream(own);
      const std::int64_t capacity = window_capacity(40, 100, 700), width = 16;
      Array k_cache(stream, std::size_t(capacity * 8), type), v_cache(stream, std::size_t(capacity * 8), type);
      std::int64_t filled = 0;
      for (std::int64_t piece : {100, 100, 1, 3, 50, 1, 100, 8, 100, 37, 100, 100}) {
        const CachedAttentionSpec cached{1, piece, 2, 1, 8, 16, 8, 8, capacity, spec.scale, type, spec.window, spec.cap};
        const auto op = CachedAttention::make(*own, cached);
        const auto take = [&](const std::vector<float>& from, std::int64_t stride) {
          return std::vector<float>(from.begin() + filled * stride, from.begin() + (filled + piece) * stride);
        };
        Array q_part(stream, take(q, 16), type), k_part(stream, take(k, 8), type), v_part(stream, take(v, 8), type);
        Array count(stream, std::vector<std::int32_t>{std::int32_t(filled)}), dst(stream, q_part.count(), type);
        Buffer workspace(own, op->workspace_bytes());
        op->forward(stream, q_part.data(), k_part.data(), v_part.data(), count.i32(), k_cache.data(), v_cache.data(), dst.data(),
                    workspace.data());
        const std::vector<double> wanted(expected.begin() + filled * width, expected.begin() + (filled + piece) * width);
        check_close("piece of " + std::to_string(piece) + " at " + std::to_string(filled), dst.get(), wanted, tolerance);
        filled += piece;
      }
      BOOST_TEST(filled == 700);
    }
}

// A packed projection with a head's query, key and value together: two pairs of the first two are turned, and all are put apart.
BOOST_AUTO_TEST_CASE(parts_of_heads_are_turned_and_put_in_order) {
  const auto own = device();
  Stream stream(own);
  for (std::int64_t length : {3, 20}) {  // few tokens are a step of decoding, more a kernel of their own
    const std::int64_t heads = 2, d = 6, width = 3 * heads * d;
    const auto src = random_values(std::size_t(length * width), 1);
    std::vector<float> cosines, sines;
    for (std::int64_t p = 0; p < 40; ++p)
      for (std::int64_t i = 0; i < 2; ++i)
        cosines.push_back(std::cos(0.3f * float(p * (i + 1)))), sines.push_back(std::sin(0.3f * float(p * (i + 1))));
    RotarySpec spec{1, length, 3 * heads, d, width, width};
    spec.turned = 2 * heads, spec.half = 2, spec.parts = 3;
    const auto op = Rotary::make(*own, spec);
    Array src_array(stream, src), dst(stream, src.size()), back(stream, src.size()), cos_array(stream, cosines), sin_array(stream, sines);
    op->forward(stream, src_array.data(), cos_array.f32(), sin_array.f32(), nullptr, dst.data());
    std::vector<double> expected(src.size());
    for (std::int64_t t = 0; t < length; ++t)
      for (std::int64_t part = 0; part < 3; ++part)
        for (std::int64_t h = 0; h < heads; ++h) {
          const float* const from = src.data() + t * width + (h * 3 + part) * d;
          double* const to = expected.data() + t * width + (part * heads + h) * d;
          std::copy_n(from, d, to);
          for (std::int64_t i = 0; part < 2 && i < 2; ++i) {
            const double c = cosines[std::size_t(t * 2 + i)], s = sines[std::size_t(t * 2 + i)];
            to[i] = from[i] * c - from[i + 2] * s;
            to[i + 2] = from[i + 2] * c + from[i] * s;
          }
        }
    check_close("forward", dst.get(), expected, 1e-6);
    op->backward_input(stream, dst.data(), cos_array.f32(), sin_array.f32(), nullptr, back.data());
    check_close("back", back.get(), src, 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(a_shifted_weight_is_a_weight_and_one) {
  for (const auto& own : devices()) {
    Stream stream(own);
    const std::int64_t rows = 7, width = 19;
    const auto src = random_values(std::size_t(rows * width), 1), gamma = random_values(std::size_t(width), 2),
               diff = random_values(std::size_t(rows * width), 3);
    auto one_more = gamma;
    for (float& value : one_more) value += 1;
    NormSpec plain{NormKind::rms, rows, width, 1e-5f, false}, shifted = plain;
    shifted.gamma_shift = 1;
    const auto a = Norm::make(*own, plain), b = Norm::make(*own, shifted);
    Array src_array(stream, src), diff_array(stream, diff), gamma_array(stream, gamma), more_array(stream, one_more);
    const auto run = [&](Norm& norm, const Array& weight) {
      Array dst(stream, src.size()), rstd(stream, std::size_t(rows)), diff_src(stream, src.size()), diff_gamma(stream, std::size_t(width));
      norm.forward(stream, src_array.data(), weight.data(), nullptr, dst.data(), nullptr, rstd.f32());
      norm.backward_input(stream, src_array.data(), diff_array.data(), weight.data(), nullptr, rstd.f32(), nullptr, diff_src.data());
      norm.backward_weight(stream, src_array.data(), diff_array.data(), nullptr, rstd.f32(), diff_gamma.f32(), nullptr, false);
      return std::vector{dst.get(), diff_src.get(), diff_gamma.get()};
    };
    const auto expected = run(*a, more_array), got = run(*b, gamma_array);
    for (std::size_t i = 0; i < 3; ++i) check_close("result " + std::to_string(i), got[i], as_double(expected[i]), 2e-6);
  }
}

BOOST_AUTO_TEST_CASE(soft_caps_and_their_gradients_equal_tanh) {
  Stream stream(device());
  const auto src = random_values(100, 1, 9.0f), diff = random_values(100, 2);
  Array src_array(stream, src), diff_array(stream, diff), dst(stream, 100), diff_src(stream, 100);
  soft_cap(stream, Type::f32, src_array.data(), dst.data(), 3.0f, 100);
  soft_cap_backward(stream, Type::f32, src_array.data(), diff_array.data(), diff_src.data(), 3.0f, 100);
  std::vector<double> expected, gradient;
  for (std::size_t i = 0; i < 100; ++i) {
    const double bent = std::tanh(double(src[i]) / 3);
    expected.push_back(3 * bent);
    gradient.push_back(double(diff[i]) * (1 - bent * bent));
  }
  check_close("forward", dst.get(), expected, 1e-6);
  check_close("backward", diff_src.get(), gradient, 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
