// Layer norm and RMS norm: against PyTorch, finite differences in double, and each implementation against the other.
#include <ppengine/base/error.hpp>
#include <ppengine/ops/norm.hpp>

#include "layers.hpp"

using namespace ppengine;
using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

struct Values {
  std::vector<float> x, gamma, beta, diff, add;
};
struct Results {
  std::vector<float> y, diff_x, diff_gamma, diff_beta;
};

Values random(const NormSpec& spec, float scale = 1.0f) {
  const auto n = static_cast<std::size_t>(spec.rows * spec.width), w = static_cast<std::size_t>(spec.width);
  return {rounded(random_values(n, 1, scale), spec.type), rounded(random_values(w, 2), spec.type), rounded(random_values(w, 3), spec.type),
          rounded(random_values(n, 4), spec.type), rounded(random_values(n, 5), spec.type)};
}

// With accumulate, the weights' gradients start at 1.
Results run(Norm& norm, Stream& stream, const NormSpec& spec, const Values& v, bool accumulate = false) {
  const Array x(stream, v.x, spec.type), gamma(stream, v.gamma, spec.type), beta(stream, v.beta, spec.type),
      diff(stream, v.diff, spec.type), add(stream, v.add.empty() ? std::vector<float>(v.x.size()) : v.add, spec.type);
  const Array y(stream, v.x.size(), spec.type), diff_x(stream, v.x.size(), spec.type);
  const Array mean(stream, static_cast<std::size_t>(spec.rows)), rstd(stream, static_cast<std::size_t>(spec.rows));
  const Array diff_gamma(stream, std::vector<float>(v.gamma.size(), 1.0f)), diff_beta(stream, std::vector<float>(v.gamma.size(), 1.0f));
  norm.forward(stream, x.data(), gamma.data(), spec.bias ? beta.data() : nullptr, y.data(), mean.f32(), rstd.f32());
  norm.backward_input(stream, x.data(), diff.data(), gamma.data(), mean.f32(), rstd.f32(), spec.add_diff_src ? add.data() : nullptr,
                      diff_x.data());
  norm.backward_weight(stream, x.data(), diff.data(), mean.f32(), rstd.f32(), diff_gamma.f32(), spec.bias ? diff_beta.f32() : nullptr,
                       accumulate);
  return {y.get(), diff_x.get(), diff_gamma.get(), diff_beta.get()};
}

std::vector<double> forward_in_double(const NormSpec& spec, const std::vector<double>& x, const std::vector<double>& gamma,
                                      const std::vector<double>& beta) {
  std::vector<double> y(x.size());
  const auto width = static_cast<std::size_t>(spec.width);
  for (std::size_t row = 0; row < static_cast<std::size_t>(spec.rows); ++row) {
    const double* from = x.data() + row * width;
    double mean = 0, variance = 0;
    if (spec.kind == NormKind::layer)
      for (std::size_t i = 0; i < width; ++i) mean += from[i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) variance += (from[i] - mean) * (from[i] - mean) / static_cast<double>(width);
    const double r = 1 / std::sqrt(variance + spec.epsilon);
    for (std::size_t i = 0; i < width; ++i) y[row * width + i] = (from[i] - mean) * r * gamma[i] + (spec.bias ? beta[i] : 0);
  }
  return y;
}

void check_against_finite_differences(const NormSpec& spec) {
  const Values v = random(spec);
  const auto x = as_double(v.x), gamma = as_double(v.gamma), beta = as_double(v.beta), diff = as_double(v.diff);
  const auto y = forward_in_double(spec, x, gamma, beta);
  auto diff_x = numeric_gradient([&](const auto& at) { return dot(forward_in_double(spec, at, gamma, beta), diff); }, x);
  if (spec.add_diff_src)
    for (std::size_t i = 0; i < diff_x.size(); ++i) diff_x[i] += v.add[i];
  auto diff_gamma = numeric_gradient([&](const auto& at) { return dot(forward_in_double(spec, x, at, beta), diff); }, gamma);
  auto diff_beta = numeric_gradient([&](const auto& at) { return dot(forward_in_double(spec, x, gamma, at), diff); }, beta);
  for (double& value : diff_gamma) value += 1;
  for (double& value : diff_beta) value += 1;
  Stream stream(device());
  for (const auto& [name, norm] : every_implementation<Norm>(*device(), spec)) {
    const std::string what = label(name + (spec.kind == NormKind::layer ? " layer" : " rms"), spec.type, spec.rows, spec.width);
    const Results r = run(*norm, stream, spec, v, true);
    check_close(what + " y", r.y, y, tolerance(spec.type));
    check_close(what + " diff_x", r.diff_x, diff_x, tolerance(spec.type, 2e-5));
    check_close(what + " diff_gamma", r.diff_gamma, diff_gamma, 1e-5);
    if (spec.bias) check_close(what + " diff_beta", r.diff_beta, diff_beta, 1e-5);
    const Results again = run(*norm, stream, spec, v, true);
    BOOST_TEST((r.y == again.y && r.diff_x == again.diff_x && r.diff_gamma == again.diff_gamma), what << " gives the same bits again");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(norm)

BOOST_AUTO_TEST_CASE(equals_pytorch) {
  Stream stream(device());
  for (const auto& one : reference("norm")) {
    const bool layer = one["kind"] == "layer";
    const NormSpec spec{.kind = layer ? NormKind::layer : NormKind::rms, .rows = one["rows"], .width = one["width"], .bias = layer};
    const Values v{floats(one["x"]), floats(one["gamma"]), floats(one["beta"]), floats(one["diff"]), {}};
    for (const auto& [name, norm] : every_implementation<Norm>(*device(), spec)) {
      const Results r = run(*norm, stream, spec, v);
      check_close(name + " y", r.y, floats(one["y"]), 2e-6);
      check_close(name + " diff_x", r.diff_x, floats(one["diff_x"]), 2e-6);
      check_close(name + " diff_gamma", r.diff_gamma, floats(one["diff_gamma"]), 2e-6);
      if (layer) check_close(name + " diff_beta", r.diff_beta, floats(one["diff_beta"]), 2e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_equal_finite_differences_at_odd_sizes_and_one_row) {
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 33}, {7, 17}, {5, 64}, {3, 131}})
      for (const bool add : {false, true}) {
        check_against_finite_differences(
            {.kind = NormKind::layer, .rows = rows, .width = width, .bias = !add, .add_diff_src = add, .type = type});
        check_against_finite_differences(
            {.kind = NormKind::rms, .rows = rows, .width = width, .bias = false, .add_diff_src = add, .type = type});
      }
}

BOOST_AUTO_TEST_CASE(no_rows_are_fine_and_zero_the_weight_gradient) {
  const NormSpec spec{.rows = 0, .width = 8};
  Stream stream(device());
  const auto norm = Norm::make(*device(), spec);
  Values v = random(spec);
  BOOST_TEST(run(*norm, stream, spec, v).diff_gamma == std::vector<float>(8, 0.0f));
  BOOST_TEST(run(*norm, stream, spec, v, true).diff_gamma == std::vector<float>(8, 1.0f));
}

BOOST_AUTO_TEST_CASE(large_offsets_do_not_cancel) {
  const NormSpec spec{.rows = 2, .width = 256};
  Values v = random(spec);
  for (float& value : v.x) value += 1e4f;
  Stream stream(device());
  for (const auto& [name, norm] : every_implementation<Norm>(*device(), spec))
    check_close(name, run(*norm, stream, spec, v).y, forward_in_double(spec, as_double(v.x), as_double(v.gamma), as_double(v.beta)), 1e-3);
}

BOOST_AUTO_TEST_CASE(the_gradient_may_be_added_in_place) {
  const NormSpec spec{.rows = 3, .width = 40, .add_diff_src = true};
  const Values v = random(spec);
  Stream stream(device());
  const auto norm = Norm::make(*device(), spec);
  const Results apart = run(*norm, stream, spec, v);
  const Array x(stream, v.x), gamma(stream, v.gamma), beta(stream, v.beta), y(stream, 120), diff(stream, v.diff), sum(stream, v.add),
      mean(stream, 3), rstd(stream, 3);
  norm->forward(stream, x.data(), gamma.data(), beta.data(), y.data(), mean.f32(), rstd.f32());
  norm->backward_input(stream, x.data(), diff.data(), gamma.data(), mean.f32(), rstd.f32(), sum.data(), sum.data());
  BOOST_TEST(sum.get() == apart.diff_x);
}

BOOST_AUTO_TEST_CASE(a_bias_with_rms_is_refused) {
  BOOST_CHECK_THROW(Norm::make(*device(), {.kind = NormKind::rms, .rows = 1, .width = 4, .bias = true}), ConfigError);
  for (const auto& one : Norm::consider(*device_without_onednn(), {.rows = 1, .width = 4}))
    if (one.implementation == "onednn") BOOST_TEST(one.refusal.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
