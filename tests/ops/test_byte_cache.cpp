// Attention over keys and values in bytes: against the reference in double on values that were rounded as the cache rounds them.
#include <numeric>

#include <ppengine/base/error.hpp>

#include "attention_reference.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

// To the nearest of 255 steps between the head's largest value and its negative.
Values rounded_to_bytes(const std::vector<float>& values, std::int64_t head_dim) {
  Values result(values.begin(), values.end());
  for (std::size_t first = 0; first < values.size(); first += std::size_t(head_dim)) {
    float largest = 0;
    for (std::size_t i = first; i < first + std::size_t(head_dim); ++i) largest = std::max(largest, std::abs(values[i]));
    for (std::size_t i = first; i < first + std::size_t(head_dim); ++i)
      result[i] = largest > 0 ? std::round(double(values[i] * (127.0f / largest))) * largest / 127.0 : 0.0;
  }
  return result;
}

struct Case {
  AttentionSpec spec;
  std::int64_t capacity;
  CachePages pages;
};

// Everything that goes in piece by piece, with the results of all tokens in their order.
std::vector<float> through_cache(const Case& of, const std::vector<std::int64_t>& pieces, const std::vector<float>& q,
                                 const std::vector<float>& k, const std::vector<float>& v) {
  const AttentionSpec& spec = of.spec;
  const auto own = device();
  Stream stream(own);
  CachedAttentionSpec cached{spec.batch,    0,           spec.heads, spec.kv_heads, spec.head_dim, spec.q_stride, spec.k_stride,
                             spec.v_stride, of.capacity, spec.scale, Type::f32,     spec.window,   spec.cap,      of.pages};
  cached.bytes = true;
  const std::size_t bytes = cached.cache_bytes() * std::size_t(of.pages.size > 0 ? 1 : spec.batch);
  Buffer k_cache(own, bytes), v_cache(own, bytes);
  stream.zero(k_cache.data(), bytes);
  stream.zero(v_cache.data(), bytes);
  const std::int64_t width = spec.heads * spec.head_dim;
  std::vector<float> results(std::size_t(spec.batch * spec.length * width));
  std::int64_t filled = 0;
  for (std::int64_t piece : pieces) {
    cached.length = piece;
    const auto op = CachedAttention::make(*own, cached);
    const auto take = [&](const std::vector<float>& from, std::int64_t stride) {
      std::vector<float> part;
      for (std::int64_t b = 0; b < spec.batch; ++b)
        part.insert(part.end(), from.begin() + (b * spec.length + filled) * stride,
                    from.begin() + (b * spec.length + filled + piece) * stride);
      return part;
    };
    Array q_part(stream, take(q, spec.q_stride)), k_part(stream, take(k, spec.k_stride)), v_part(stream, take(v, spec.v_stride));
    std::vector<std::int32_t> count(std::size_t(spec.batch), std::int32_t(filled));
    if (of.pages.size > 0) count.insert(count.end(), {3, 1, 4, 2});  // pages of the first sequence, then of the second
    Array numbers(stream, count), dst(stream, std::size_t(spec.batch * piece * width));
    Buffer workspace(own, op->workspace_bytes());
    op->forward(stream, q_part.data(), k_part.data(), v_part.data(), numbers.i32(), k_cache.data(), v_cache.data(), dst.data(),
                workspace.data());
    const std::vector<float> part = dst.get();
    for (std::int64_t b = 0; b < spec.batch; ++b)
      std::copy_n(part.begin() + b * piece * width, piece * width, results.begin() + (b * spec.length + filled) * width);
    filled += piece;
  }
  BOOST_REQUIRE(filled == spec.length);
  return results;
}

boost::test_tools::assertion_result has_byte_cache(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(true);
  try {
    CachedAttentionSpec spec{1, 1, 1, 1, 8, 8, 8, 8, 64, 1.0f, Type::f32};
    spec.bytes = true;
    static_cast<void>(CachedAttention::make(*device(), spec));
  } catch (const ppengine::Error& error) {
    result = false;
    result.message() << error.what();
  }
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(byte_cache, *boost::unit_test::precondition(has_byte_cache))

BOOST_AUTO_TEST_CASE(results_are_those_of_rounded_keys_and_values) {
  const auto windowed = [](AttentionSpec spec, std::int64_t window, float cap) {
    spec.window = window, spec.cap = cap;
    return spec;
  };
  for (const Case& of : {Case{make_spec(2, 90, 4, 2, 40), 128, {}}, Case{make_spec(2, 90, 4, 2, 40), 128, {64, 5, 2, 2}},
                         Case{make_spec(1, 90, 6, 1, 64), 90, {}}, Case{make_spec(1, 90, 2, 2, 5), 100, {}},
                         Case{windowed(make_spec(1, 700, 2, 1, 8), 40, 1.5f), window_capacity(40, 100, 700), {}}}) {
    const auto q = random_values(q_count(of.spec), 1), k = random_values(k_count(of.spec), 2), v = random_values(v_count(of.spec), 3);
    const auto expected =
        Reference(of.spec).forward(as_double(q), rounded_to_bytes(k, of.spec.head_dim), rounded_to_bytes(v, of.spec.head_dim));
    const std::vector<std::int64_t> pieces = of.spec.length == 90
                                                 ? std::vector<std::int64_t>{69, 1, 3, 12, 5}
                                                 : std::vector<std::int64_t>{100, 100, 1, 3, 50, 1, 100, 8, 100, 37, 100, 100};
    const auto got = through_cache(of, pieces, q, k, v);
    check_close("heads of " + std::to_string(of.spec.head_dim), got, expected, 1e-5);
    // However many go in at once: bit for bit.
    std::vector<std::int64_t> others(static_cast<std::size_t>(of.spec.length % 50 + 10), 1);
    while (std::accumulate(others.begin(), others.end(), std::int64_t{0}) < of.spec.length) others.push_back(10);
    BOOST_TEST((through_cache(of, others, q, k, v) == got));
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_stays_so_and_harms_no_other_head) {
  const Case of{make_spec(1, 70, 2, 2, 16), 128, {}};
  const auto q = random_values(q_count(of.spec), 1), v = random_values(v_count(of.spec), 3);
  auto k = random_values(k_count(of.spec), 2);
  const auto fine = through_cache(of, {70}, q, k, v);
  k[std::size_t(20 * of.spec.k_stride + 3)] = std::numeric_limits<float>::infinity();  // the first head of token 20
  const auto got = through_cache(of, {70}, q, k, v);
  for (std::size_t t = 0; t < 70; ++t)
    for (std::size_t i = 0; i < 32; ++i) {
      if (t >= 20 && i < 16)
        BOOST_TEST(std::isnan(got[t * 32 + i]));
      else
        BOOST_TEST(got[t * 32 + i] == fine[t * 32 + i]);
    }
}

BOOST_AUTO_TEST_CASE(bytes_take_a_quarter_of_the_memory_and_little_more) {
  CachedAttentionSpec spec{1, 1, 12, 12, 64, 768, 768, 768, 1024, 1.0f, Type::f32};
  const std::size_t floats = spec.cache_bytes();
  spec.bytes = true;
  BOOST_TEST(double(spec.cache_bytes()) / double(floats) == 0.265625);  // 64 bytes and a scale of 4, of 256
}

BOOST_AUTO_TEST_SUITE_END()
