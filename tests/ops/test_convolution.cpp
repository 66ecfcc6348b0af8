// Convolution: every implementation against its definition in double, forward and both halves of the gradient.
#include <ppengine/ops/convolution.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

struct Case {
  const char* name;
  ConvolutionSpec spec;
};

ConvolutionSpec spec_of(std::int64_t batch, std::int64_t in, std::int64_t out, std::vector<std::int64_t> src,
                        std::vector<std::int64_t> kernel, std::vector<std::int64_t> stride, std::vector<std::int64_t> padding,
                        std::vector<std::int64_t> dilation, bool bias = true, std::int64_t groups = 1) {
  ConvolutionSpec spec{batch, in, out, groups, src, {}, kernel, stride, padding, dilation, bias};
  for (std::size_t i = 0; i < src.size(); ++i)
    spec.dst.push_back((src[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1);
  return spec;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list{
      {"3x3", spec_of(2, 5, 7, {9, 64}, {3, 3}, {1, 1}, {1, 1}, {1, 1})},
      {"one picture, one channel", spec_of(1, 1, 1, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1})},
      {"small pictures together", spec_of(9, 33, 40, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false)},
      {"odd sizes", spec_of(3, 4, 13, {7, 11}, {3, 2}, {1, 1}, {1, 0}, {1, 1})},
      {"stride 2", spec_of(2, 3, 17, {13, 18}, {7, 7}, {2, 2}, {3, 3}, {1, 1}, false)},
      {"stride 2, 1x1", spec_of(2, 6, 5, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1})},
      {"strides that differ", spec_of(2, 2, 3, {11, 23}, {3, 3}, {2, 3}, {1, 2}, {1, 1})},
      {"patches", spec_of(2, 3, 20, {16, 16}, {8, 8}, {8, 8}, {0, 0}, {1, 1})},
      {"1x1 in place", spec_of(2, 19, 21, {6, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1})},
      {"3x3 in place", spec_of(2, 3, 4, {10, 37}, {3, 3}, {1, 1}, {0, 0}, {1, 1})},
      {"dilated", spec_of(2, 3, 5, {12, 14}, {3, 3}, {1, 2}, {2, 2}, {2, 3})},
      {"wide window", spec_of(1, 2, 3, {40, 20}, {17, 17}, {1, 1}, {8, 8}, {1, 1})},
      {"many channels", spec_of(1, 90, 300, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1})},
      {"one dimension", spec_of(3, 8, 9, {50}, {5}, {2}, {2}, {1})},
      {"what no window sees", spec_of(2, 3, 4, {8, 9}, {2, 2}, {3, 3}, {0, 0}, {1, 1})},
      {"3x3 of many pixels", spec_of(3, 6, 10, {33, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1})},
      {"dilated, of many pixels", spec_of(3, 3, 4, {33, 40}, {3, 5}, {1, 1}, {0, 2}, {3, 2})},
      {"groups", spec_of(2, 6, 9, {7, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true, 3)},
  };
  return list;
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (std::int64_t one : sizes) count *= one;
  return count;
}

// body(place in src, in weight, in dst) for every product of the definition.
template <class Body>
void for_products(const ConvolutionSpec& s, const Body& body) {
  const bool flat = s.src.size() == 1;
  const auto two = [&](const std::vector<std::int64_t>& from, std::int64_t otherwise) {
    return flat ? std::vector<std::int64_t>{otherwise, from[0]} : from;
  };
  const auto src = two(s.src, 1), dst = two(s.dst, 1), kernel = two(s.kernel, 1), stride = two(s.stride, 1), padding = two(s.padding, 0),
             dilation = two(s.dilation, 1);
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t o = 0; o < s.out_channels; ++o)
      for (std::int64_t c = 0; c < in; ++c)
        for (std::int64_t y = 0; y < dst[0]; ++y)
          for (std::int64_t x = 0; x < dst[1]; ++x)
            for (std::int64_t a = 0; a < kernel[0]; ++a)
              for (std::int64_t b = 0; b < kernel[1]; ++b) {
                const std::int64_t h = y * stride[0] - padding[0] + a * dilation[0], w = x * stride[1] - padding[1] + b * dilation[1];
                if (h < 0 || w < 0 || h >= src[0] || w >= src[1]) continue;
                body(static_cast<std::size_t>(((n * s.in_channels + o / out * in + c) * src[0] + h) * src[1] + w),
                     static_cast<std::size_t>(((o * in + c) * kernel[0] + a) * kernel[1] + b),
                     static_cast<std::size_t>(((n * s.out_channels + o) * dst[0] + y) * dst[1] + x));
              }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(convolution)

BOOST_AUTO_TEST_CASE(every_implementation_equals_the_definition) {
  for (const auto& [what, s] : cases()) {
    const auto sources = static_cast<std::size_t>(s.batch * s.in_channels * product(s.src)),
               results = static_cast<std::size_t>(s.batch * s.out_channels * product(s.dst));
    const auto weights = static_cast<std::size_t>(s.out_channels * s.in_channels / s.groups * product(s.kernel)),
               outs = static_cast<std::size_t>(s.out_channels);
    const auto x = random_values(sources, 1), w = random_values(weights, 2), b = random_values(outs, 3), diff = random_values(results, 4);
    const auto before_w = random_values(weights, 5), before_b = random_values(outs, 6);
    std::vector<double> y(results), diff_x(sources), diff_w(weights), diff_b(outs);
    const std::size_t per_out = static_cast<std::size_t>(product(s.dst));
    for (std::size_t i = 0; i < results; ++i) {
      diff_b[i / per_out % outs] += double(diff[i]);
      if (s.bias) y[i] = double(b[i / per_out % outs]);
    }
    for_products(s, [&](std::size_t at, std::size_t k, std::size_t to) {
      y[to] += double(x[at]) * double(w[k]);
      diff_x[at] += double(diff[to]) * double(w[k]);
      diff_w[k] += double(diff[to]) * double(x[at]);
    });
    Stream stream(device());
    for (const auto& one : Convolution::implementations()) {
      if (one.refusal(*device(), s)) continue;
      const std::string name = std::string(one.name) + " " + what;
      const auto op = one.make(*device(), s);
      const Array on_x(stream, x), on_w(stream, w), on_b(stream, b), on_diff(stream, diff), to_y(stream, results), to_x(stream, sources);
      const Array room(stream, op->workspace_bytes() / 4 + 1), to_w(stream, weights), to_b(stream, outs), added_w(stream, before_w),
          added_b(stream, before_b);
      op->forward(stream, on_x.data(), on_w.data(), s.bias ? on_b.data() : nullptr, to_y.data(), room.data());
      check_close(name + " y", to_y.get(), y, 2e-6);
      op->backward_input(stream, on_diff.data(), on_w.data(), to_x.data(), room.data());
      check_close(name + " diff_x", to_x.get(), diff_x, 2e-6);
      float* const bias = s.bias ? to_b.f32() : nullptr;
      op->backward_weight(stream, on_x.data(), on_diff.data(), to_w.f32(), bias, false, room.data());
      check_close(name + " diff_w", to_w.get(), diff_w, 2e-6);
      if (s.bias) check_close(name + " diff_b", to_b.get(), diff_b, 2e-6);
      op->backward_weight(stream, on_x.data(), on_diff.data(), added_w.f32(), s.bias ? added_b.f32() : nullptr, true, room.data());
      std::vector<double> sums = diff_w, bias_sums = diff_b;
      for (std::size_t i = 0; i < weights; ++i) sums[i] += double(before_w[i]);
      for (std::size_t i = 0; i < outs; ++i) bias_sums[i] += double(before_b[i]);
      check_close(name + " added diff_w", added_w.get(), sums, 2e-6);
      if (s.bias) check_close(name + " added diff_b", added_b.get(), bias_sums, 2e-6);
      const auto first = to_y.get();
      op->forward(stream, on_x.data(), on_w.data(), s.bias ? on_b.data() : nullptr, to_y.data(), room.data());
      BOOST_TEST(to_y.get() == first, name << ": same bits again");
    }
  }
}

BOOST_AUTO_TEST_CASE(cpus_use_the_product_over_windows) {
  const ConvolutionSpec spec = spec_of(2, 3, 4, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1});
  if (!device()->onednn()) return;
  BOOST_TEST(!Convolution::consider(*device(), spec).front().refusal);
  BOOST_TEST(Convolution::consider(*device(), spec).front().implementation == "cpu");
  BOOST_TEST(Convolution::make(*device_without_onednn(), spec) == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
