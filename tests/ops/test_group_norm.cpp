// Group norm on CPUs: against its definition in double, gradients against finite differences.
#include <ppengine/ops/group_norm.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

BOOST_AUTO_TEST_SUITE(group_norm)

BOOST_AUTO_TEST_CASE(results_and_gradients_equal_the_definition) {
  if (!device()->onednn()) return;
  Stream stream(device());
  for (const auto& [samples, channels, groups, places] :
       {std::array<std::int64_t, 4>{1, 2, 1, 1}, {3, 6, 3, 1}, {2, 6, 2, 7}, {4, 4, 4, 64}, {2, 33, 11, 70}, {5, 3, 1, 17}}) {
    const GroupNormSpec spec{samples, channels, groups, places, 1e-3f};
    const auto op = GroupNorm::make(*device(), spec);
    BOOST_REQUIRE(op);
    const auto count = static_cast<std::size_t>(samples * channels * places), c = static_cast<std::size_t>(channels);
    const std::size_t of_group = count / static_cast<std::size_t>(samples * groups);
    const auto x = random_values(count, 1), gamma = random_values(c, 2), beta = random_values(c, 3), diff = random_values(count, 4);
    const auto channel = [&](std::size_t i) { return i / static_cast<std::size_t>(places) % c; };
    const auto normal = [&](const std::vector<double>& at) {
      std::vector<double> y(count);
      for (std::size_t begin = 0; begin < count; begin += of_group) {
        double mean = 0, variance = 0;
        for (std::size_t i = begin; i < begin + of_group; ++i) mean += at[i] / double(of_group);
        for (std::size_t i = begin; i < begin + of_group; ++i) variance += (at[i] - mean) * (at[i] - mean) / double(of_group);
        for (std::size_t i = begin; i < begin + of_group; ++i) y[i] = (at[i] - mean) / std::sqrt(variance + double(spec.epsilon));
      }
      return y;
    };
    const auto forward = [&](const std::vector<double>& at) {
      std::vector<double> y = normal(at);
      for (std::size_t i = 0; i < count; ++i) y[i] = y[i] * double(gamma[channel(i)]) + double(beta[channel(i)]);
      return y;
    };
    const auto gradient = numeric_gradient([&](const auto& at) { return dot(forward(at), as_double(diff)); }, as_double(x));
    const auto x_hat = normal(as_double(x));
    std::vector<double> diff_gamma(c), diff_beta(c);
    for (std::size_t i = 0; i < count; ++i) diff_gamma[channel(i)] += double(diff[i]) * x_hat[i], diff_beta[channel(i)] += double(diff[i]);
    const Array on_x(stream, x), on_gamma(stream, gamma), on_beta(stream, beta), on_diff(stream, diff), y(stream, count),
        diff_x(stream, count), got_gamma(stream, c), got_beta(stream, c);
    const auto of_groups = static_cast<std::size_t>(samples * groups), rows = static_cast<std::size_t>(samples * channels);
    const Array mean(stream, of_groups), rstd(stream, of_groups), sums(stream, rows), products(stream, rows);
    op->forward(stream, on_x.f32(), on_gamma.f32(), on_beta.f32(), y.f32(), mean.f32(), rstd.f32());
    op->backward(stream, on_diff.f32(), on_x.f32(), mean.f32(), rstd.f32(), on_gamma.f32(), diff_x.f32(), sums.f32(), products.f32());
    op->backward_weight(stream, sums.f32(), products.f32(), got_gamma.f32(), got_beta.f32(), false);
    check_close("y", y.get(), forward(as_double(x)), 1e-5);
    check_close("diff_x", diff_x.get(), gradient, 1e-5);
    check_close("diff_gamma", got_gamma.get(), diff_gamma, 1e-5);
    check_close("diff_beta", got_beta.get(), diff_beta, 1e-5);
    op->backward_weight(stream, sums.f32(), products.f32(), got_gamma.f32(), nullptr, true);
    for (double& one : diff_gamma) one *= 2;
    check_close("diff_gamma, added twice", got_gamma.get(), diff_gamma, 1e-5);
    op->forward(stream, on_x.f32(), nullptr, nullptr, y.f32(), mean.f32(), rstd.f32());
    check_close("y without weights", y.get(), x_hat, 1e-5);
  }
  BOOST_TEST(GroupNorm::make(*device_without_onednn(), {1, 1, 1, 1}) == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
