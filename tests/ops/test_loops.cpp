// The vector loops of ops/cpu by themselves, without a device, against sums in double: so they can be run for other CPUs too
// (tools/aarch64).
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <vector>

#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/loops_steps.hpp>

using namespace ppengine::ops;
using namespace ppengine::ops::cpu;

namespace {

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 12345;
  for (float& value : values) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    value = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
  }
  return values;
}

// NaN passes no comparison: the difference must be seen to be small.
void check_near(const std::vector<float>& got, const std::vector<double>& expected, double tolerance, const std::string& what) {
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(double(got[i]) - expected[i]) <= tolerance * (1 + std::abs(expected[i])))) ++wrong;
  BOOST_TEST(wrong == 0u, what << ": " << wrong << " of " << got.size() << " differ");
}

LinearStep plain_step(const float* src, const void* weight, const float* scales, float* dst, std::int64_t in, std::int64_t out,
                      std::int64_t group) {
  LinearStep step{};
  step.src = src, step.weight = weight, step.scales = scales, step.dst = dst;
  step.in = in, step.out = out, step.group = group;
  return step;
}

std::vector<double> products(const std::vector<double>& x, const std::vector<double>& w, std::size_t rows, std::size_t in,
                             std::size_t out) {
  std::vector<double> sums(rows * out);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i) sums[r * out + o] += x[r * in + i] * w[o * in + i];
  return sums;
}

std::vector<double> wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace

BOOST_AUTO_TEST_SUITE(loops)

BOOST_AUTO_TEST_CASE(a_tile_of_a_product) {
  const ProductLoops& loops = *product_loops();
  BOOST_TEST_MESSAGE("target " << loops.target);
  for (std::int64_t height : {std::int64_t{1}, loops.tile_height})
    for (std::int64_t width : {std::int64_t{3}, loops.panel_width}) {
      const std::int64_t depth = 37;
      const auto a = numbers(static_cast<std::size_t>(height * depth), 1), b = numbers(static_cast<std::size_t>(width * depth), 2);
      alignas(64) float panel[37 * most_panel_width];
      std::vector<float> c(static_cast<std::size_t>(height * width));
      loops.pack_panel(b.data(), depth, true, width, depth, panel);
      loops.multiply({height, width, depth, a.data(), depth, panel, nullptr, nullptr, c.data(), width, c.data(), b.data(), depth, 0});
      check_near(c, products(wide(a), wide(b), static_cast<std::size_t>(height), 37, static_cast<std::size_t>(width)), 1e-5, "tile");
    }
}

BOOST_AUTO_TEST_CASE(linears_over_few_rows_in_every_storage) {
  constexpr std::int64_t in = 101, out = 21;
  const auto w = numbers(in * out, 3);
  std::vector<std::uint16_t> bf16;
  std::vector<std::int8_t> int8;
  std::vector<double> bf16_worth, int8_worth;
  for (float value : w) {
    bf16.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    bf16_worth.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bf16.back()) << 16));
    int8.push_back(static_cast<std::int8_t>(std::lround(value * 127)));
    int8_worth.push_back(int8.back() * 0.5);
  }
  const std::vector<float> scales(out, 0.5f);
  for (std::int64_t rows = 1; rows <= most_few_rows; ++rows) {
    const auto x = numbers(static_cast<std::size_t>(rows * in), 4);
    const auto check = [&](const char* name, WeightFormat format, const void* weight, const std::vector<double>& worth) {
      std::vector<float> dst(static_cast<std::size_t>(rows * out));
      decode_loops()->linear(plain_step(x.data(), weight, scales.data(), dst.data(), in, out, in), format, rows, 0, out);
      check_near(dst, products(wide(x), worth, static_cast<std::size_t>(rows), in, out), 1e-5, name);
    };
    check("f32", WeightFormat::f32, w.data(), wide(w));
    check("bf16", WeightFormat::bf16, bf16.data(), bf16_worth);
    check("int8", WeightFormat::int8, int8.data(), int8_worth);
  }
}

// Below and above the widths up to which weights are fetched again for every few rows.
BOOST_AUTO_TEST_CASE(a_row_of_a_linear_has_the_same_bits_in_any_company) {
  constexpr std::int64_t out = 21;
  for (const std::int64_t in : {101, 1024, 1500}) {
    const auto w = numbers(static_cast<std::size_t>(in * out), 3), x = numbers(static_cast<std::size_t>(most_few_rows * in), 4);
    const auto linear = [&](std::int64_t first, std::int64_t rows) {
      std::vector<float> dst(static_cast<std::size_t>(rows * out));
      decode_loops()->linear(plain_step(x.data() + first * in, w.data(), nullptr, dst.data(), in, out, in), WeightFormat::f32, rows, 0,
                             out);
      return dst;
    };
    std::vector<float> alone;
    for (std::int64_t row = 0; row < most_few_rows; ++row) {
      const auto one = linear(row, 1);
      alone.insert(alone.end(), one.begin(), one.end());
      const auto together = linear(0, row + 1);
      BOOST_TEST((together == alone), "rows " << row + 1 << " of " << in);
    }
  }
}

// q · step + least, q from 0 to 15; inputs rounded as ops/cpu/loops_steps.hpp says.
BOOST_AUTO_TEST_CASE(linears_with_four_bits_over_rows_of_bytes) {
  for (const auto& [in, out, group] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>(300, 13, 32), {256, 6, 128}, {96, 70, 64}, {20, 5, 32}}) {
    const std::int64_t blocks = (in + 31) / 32, groups = (in + group - 1) / group;
    std::vector<std::uint8_t> packed(static_cast<std::size_t>(out * blocks * 16));
    std::vector<float> words;
    std::vector<double> worth(static_cast<std::size_t>(out * in));
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t g = 0; g < groups; ++g)
        words.push_back(std::bit_cast<float>(0x3f800000u + static_cast<std::uint32_t>(g << 16) + 0xbf00u));
      for (std::int64_t i = 0; i < in; ++i) {
        const auto q = static_cast<std::uint8_t>((i * 7 + o * 3 + i * o) % 16);
        packed[static_cast<std::size_t>(o * blocks * 16 + i / 32 * 16 + i % 16)] |= static_cast<std::uint8_t>(i % 32 < 16 ? q : q << 4);
        const std::uint32_t step = 0x3f800000u + static_cast<std::uint32_t>(i / group << 16);
        worth[static_cast<std::size_t>(o * in + i)] = q * double(std::bit_cast<float>(step)) - 0.5;
      }
    }
    for (std::int64_t rows : {1, 2, 4, 9}) {
      const auto x = numbers(static_cast<std::size_t>(rows * in), 5);
      auto rounded = wide(x);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t first = 0; first < in; first += 32) {
          double largest = 0;
          const auto at = [&](std::int64_t i) -> double& { return rounded[static_cast<std::size_t>(r * in + i)]; };
          for (std::int64_t i = first; i < std::min(first + 32, in); ++i) largest = std::max(largest, std::abs(at(i)));
          for (std::int64_t i = first; i < std::min(first + 32, in); ++i) at(i) = std::nearbyint(at(i) * 127 / largest) * largest / 127;
        }
      const ByteRowShape shape = byte_loops()->shape(in, group);
      std::vector<std::byte> bytes(static_cast<std::size_t>(rows * shape.bytes));
      for (std::int64_t r = 0; r < rows; ++r) byte_loops()->quantize(shape, x.data() + r * in, bytes.data() + r * shape.bytes);
      std::vector<float> dst(static_cast<std::size_t>(rows * out));
      byte_loops()->linear(plain_step(x.data(), packed.data(), words.data(), dst.data(), in, out, group), shape, bytes.data(), rows, 0,
                           out);
      check_near(dst, products(rounded, worth, static_cast<std::size_t>(rows), static_cast<std::size_t>(in), static_cast<std::size_t>(out)),
                 2e-5, "int4");
    }
  }
}

BOOST_AUTO_TEST_CASE(attention_of_one_token_over_a_cache) {
  constexpr std::int64_t heads = 4, width = 20, before = 130, capacity = 140;
  const auto q = numbers(heads * width, 6), k = numbers(2 * width, 7), v = numbers(2 * width, 8);
  auto keys = numbers(2 * capacity * width, 9), values = numbers(2 * capacity * width, 10);
  std::vector<float> dst(heads * width);
  const int filled = before;
  AttentionStep step{};
  step.q = q.data(), step.k = k.data(), step.v = v.data(), step.filled = &filled;
  step.k_cache = keys.data(), step.v_cache = values.data(), step.dst = dst.data();
  step.k_stride = step.v_stride = 2 * width, step.capacity = capacity;
  AttentionShape& s = step.shape;
  s.length = 1, s.heads = heads, s.group = 2, s.head_dim = width, s.q_batch = s.q_token = heads * width;
  s.k_batch = s.v_batch = 2 * capacity * width, s.k_token = s.v_token = width, s.k_head = s.v_head = capacity * width;
  s.scale = 0.3f, s.window = no_window, s.ring = no_ring;
  for (std::int64_t head = 0; head < heads; ++head) decode_loops()->attend(step, head);
  std::vector<double> expected(heads * width);
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<double> weight(before + 1);
    double total = 0;
    for (std::int64_t t = 0; t <= before; ++t) {  // the new key is in the cache now
      double score = 0;
      for (std::int64_t d = 0; d < width; ++d) score += double(q[head * width + d]) * keys[(head / 2 * capacity + t) * width + d];
      total += weight[t] = std::exp(0.3 * score);
    }
    for (std::int64_t t = 0; t <= before; ++t)
      for (std::int64_t d = 0; d < width; ++d)
        expected[head * width + d] += weight[t] / total * values[(head / 2 * capacity + t) * width + d];
  }
  check_near(dst, expected, 1e-5, "attention");
}

BOOST_AUTO_TEST_CASE(norms_activations_and_narrow_rows) {
  constexpr std::int64_t width = 45;
  const auto x = numbers(width, 11), gamma = numbers(width, 12), beta = numbers(width, 13);
  std::vector<float> got(width);
  double mean = 0, variance = 0;
  for (float value : x) mean += value / double(width);
  for (float value : x) variance += (value - mean) * (value - mean) / double(width);
  std::vector<double> normal, gelu, silu;
  for (std::size_t i = 0; i < x.size(); ++i) {
    normal.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * gamma[i] + beta[i]);
    gelu.push_back(0.5 * x[i] * (1 + std::erf(x[i] / std::sqrt(2.0))));
    silu.push_back(x[i] / (1 + std::exp(-double(x[i]))));
  }
  norm_loops()->forward({width, 1e-5f, true, gamma.data(), beta.data()}, x.data(), got.data(), nullptr, nullptr, 1);
  check_near(got, normal, 1e-5, "layer norm");
  activation_loops()->gelu_erf.forward(x.data(), got.data(), width);
  check_near(got, gelu, 1e-5, "gelu");
  activation_loops()->silu.forward(x.data(), got.data(), width);
  check_near(got, silu, 1e-5, "silu");
  std::vector<std::int8_t> bytes(width, -3);
  widen_loops()->int8(bytes.data(), 0.5f, width, got.data());
  check_near(got, std::vector<double>(width, -1.5), 0, "widened");
}

BOOST_AUTO_TEST_SUITE_END()
