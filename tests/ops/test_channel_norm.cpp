// Batch norm's work on CPUs: against its definition in double, the gradient against finite differences.
#include <ppengine/ops/channel_norm.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

BOOST_AUTO_TEST_SUITE(channel_norm)

BOOST_AUTO_TEST_CASE(statistics_results_and_gradients_equal_the_definition) {
  if (!device()->onednn()) return;
  Stream stream(device());
  for (const auto& [samples, channels, places] : {std::array<std::int64_t, 3>{1, 1, 2}, {3, 5, 1}, {2, 3, 7}, {4, 2, 64}, {2, 33, 70}}) {
    const ChannelNormSpec spec{samples, channels, places, 1e-3f};
    const auto op = ChannelNorm::make(*device(), spec);
    BOOST_REQUIRE(op);
    const auto count = static_cast<std::size_t>(samples * channels * places), c = static_cast<std::size_t>(channels);
    const auto x = random_values(count, 1), gamma = random_values(c, 2), beta = random_values(c, 3), diff = random_values(count, 4);
    const auto channel = [&](std::size_t i) { return i / static_cast<std::size_t>(places) % c; };
    const double share = 1.0 / double(samples * places);
    const auto statistics = [&](const std::vector<double>& at) {
      std::vector<double> mean(c), variance(c);
      for (std::size_t i = 0; i < count; ++i) mean[channel(i)] += share * at[i];
      for (std::size_t i = 0; i < count; ++i) variance[channel(i)] += share * (at[i] - mean[channel(i)]) * (at[i] - mean[channel(i)]);
      return std::pair(mean, variance);
    };
    const auto forward = [&](const std::vector<double>& at) {
      const auto [mean, variance] = statistics(at);
      std::vector<double> y(count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t k = channel(i);
        y[i] = (at[i] - mean[k]) / std::sqrt(variance[k] + double(spec.epsilon)) * double(gamma[k]) + double(beta[k]);
      }
      return y;
    };
    const auto [mean, variance] = statistics(as_double(x));
    const auto gradient = numeric_gradient([&](const auto& at) { return dot(forward(at), as_double(diff)); }, as_double(x));
    std::vector<double> sum(c), product(c);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t k = channel(i);
      sum[k] += double(diff[i]);
      product[k] += double(diff[i]) * (double(x[i]) - mean[k]) / std::sqrt(variance[k] + double(spec.epsilon));
    }
    const Array on_x(stream, x), on_gamma(stream, gamma), on_beta(stream, beta), on_diff(stream, diff), y(stream, count),
        diff_x(stream, count);
    const Array m(stream, c), v(stream, c), s(stream, c), p(stream, c);
    op->mean(stream, on_x.f32(), m.f32());
    op->variance(stream, on_x.f32(), m.f32(), v.f32());
    op->forward(stream, on_x.f32(), m.f32(), v.f32(), on_gamma.f32(), on_beta.f32(), y.f32());
    op->sums(stream, on_diff.f32(), on_x.f32(), m.f32(), v.f32(), s.f32(), p.f32());
    op->backward_input(stream, on_diff.f32(), on_x.f32(), m.f32(), v.f32(), s.f32(), p.f32(), on_gamma.f32(), diff_x.f32());
    check_close("mean", m.get(), mean, 1e-5);
    check_close("variance", v.get(), variance, 1e-5);
    check_close("y", y.get(), forward(as_double(x)), 1e-5);
    check_close("sum", s.get(), sum, 1e-5);
    check_close("product", p.get(), product, 1e-5);
    check_close("diff_x", diff_x.get(), gradient, 1e-5);
    // With given statistics it is a line through each channel.
    op->backward_input(stream, on_diff.f32(), on_x.f32(), m.f32(), v.f32(), nullptr, nullptr, nullptr, diff_x.f32());
    std::vector<double> given(count);
    for (std::size_t i = 0; i < count; ++i) given[i] = double(diff[i]) / std::sqrt(variance[channel(i)] + double(spec.epsilon));
    check_close("diff_x of given statistics", diff_x.get(), given, 1e-5);
  }
  BOOST_TEST(ChannelNorm::make(*device_without_onednn(), {1, 1, 1}) == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
