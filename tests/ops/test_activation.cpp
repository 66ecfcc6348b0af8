// Activations: against PyTorch, finite differences in double, extreme inputs, and each implementation against the other.
#include <ppengine/base/error.hpp>
#include <ppengine/ops/activation.hpp>

#include "layers.hpp"

using namespace ppengine;
using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

constexpr std::pair<ActivationKind, const char*> kinds[] = {{ActivationKind::gelu_tanh, "gelu_tanh"},
                                                            {ActivationKind::gelu_erf, "gelu_erf"},
                                                            {ActivationKind::silu, "silu"},
                                                            {ActivationKind::relu, "relu"}};

double silu_in_double(double x) { return x / (1 + std::exp(-x)); }

double in_double(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::silu:
      return silu_in_double(x);
    case ActivationKind::relu:
      return std::max(x, 0.0);
  }
  return 0;
}

// |actual - expected| <= relative · |expected| + absolute, element by element.
void check_each(const std::string& what, const std::vector<float>& actual, const std::vector<float>& expected, double relative,
                double absolute) {
  BOOST_REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    BOOST_CHECK_MESSAGE(std::abs(double(actual[i]) - expected[i]) <= relative * std::abs(expected[i]) + absolute,
                        what << " at " << i << ": " << actual[i] << ", expected " << expected[i]);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(activation)

BOOST_AUTO_TEST_CASE(equals_pytorch_to_a_few_units_in_the_last_place) {
  Stream stream(device());
  for (const auto& one : reference("activation"))
    for (const auto& [kind, name] : kinds) {
      if (one["kind"] != name) continue;
      const auto values = floats(one["x"]);
      const ActivationSpec spec{kind, static_cast<std::int64_t>(values.size())};
      for (const auto& [implementation, op] : every_implementation<Activation>(*device(), spec)) {
        const Array x(stream, values), y(stream, values.size()), ones(stream, std::vector<float>(values.size(), 1.0f)),
            slope(stream, values.size());
        op->forward(stream, x.data(), y.data());
        op->backward_input(stream, x.data(), ones.data(), slope.data());
        check_each(implementation + " " + name, y.get(), floats(one["y"]), 1e-6, 5e-7);
        check_each(implementation + " slope of " + name, slope.get(), floats(one["slope"]), 1e-6, 1e-6);
      }
    }
}

BOOST_AUTO_TEST_CASE(gradients_equal_finite_differences_at_odd_sizes) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [kind, name] : kinds)
      for (const std::size_t count : {1, 15, 16, 1000, 5003}) {
        const auto x = rounded(random_values(count, count, 6), type), diff = rounded(random_values(count, 2), type);
        std::vector<double> y, gradient;
        for (std::size_t i = 0; i < count; ++i) {
          y.push_back(in_double(kind, x[i]));
          gradient.push_back((in_double(kind, x[i] + 1e-5) - in_double(kind, x[i] - 1e-5)) / 2e-5 * diff[i]);
        }
        for (const auto& [implementation, op] :
             every_implementation<Activation>(*device(), ActivationSpec{kind, static_cast<std::int64_t>(count), type})) {
          const Array on_x(stream, x, type), on_y(stream, count, type), on_diff(stream, diff, type);
          op->forward(stream, on_x.data(), on_y.data());
          check_close(implementation + name, on_y.get(), y, tolerance(type, 5e-7));
          op->backward_input(stream, on_x.data(), on_diff.data(), on_diff.data());  // in place
          check_close(implementation + name + " gradient", on_diff.get(), gradient, tolerance(type, 2e-6));
          op->forward(stream, on_x.data(), on_x.data());  // in place
          BOOST_TEST(on_x.get() == on_y.get(), "same bits again");
        }
      }
}

BOOST_AUTO_TEST_CASE(huge_inputs_give_no_nan) {
  Stream stream(device());
  const std::vector<float> huge{-3e38f, -1e30f, -1e20f, -1e10f, -1e5f, 1e5f, 1e10f, 1e20f, 1e30f, 3e38f};
  for (const auto& [kind, name] : kinds) {
    const auto op = Activation::make(*device(), {kind, 10});
    const Array x(stream, huge), y(stream, 10), diff(stream, std::vector<float>(10, 1.0f));
    op->forward(stream, x.data(), y.data());
    op->backward_input(stream, x.data(), diff.data(), diff.data());
    for (std::size_t i = 0; i < 10; ++i) {
      BOOST_TEST(y.get()[i] == std::max(huge[i], 0.0f), name);
      BOOST_TEST(diff.get()[i] == (huge[i] > 0 ? 1.0f : 0.0f), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_fine) {
  Stream stream(device());
  Activation::make(*device(), {ActivationKind::silu, 0})->forward(stream, nullptr, nullptr);
  BOOST_CHECK_NO_THROW(stream.wait());
}

BOOST_AUTO_TEST_CASE(gated_silu_equals_finite_differences_also_as_halves_of_one_matrix) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, width, stride] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1}, {3, 7, 14}, {5, 33, 33}, {2, 64, 128}, {0, 5, 5}}) {
      const auto n = static_cast<std::size_t>(rows * stride), m = static_cast<std::size_t>(rows * width);
      const bool halves = stride == 2 * width;
      const auto gate = rounded(random_values(n, 1, 5), type), up = halves ? gate : rounded(random_values(n, 2), type);
      const auto diff = rounded(random_values(m, 3), type);
      const std::size_t shift = halves ? static_cast<std::size_t>(width) : 0;
      std::vector<double> y(m), diff_gate(n), diff_up(n);
      for (std::size_t i = 0; i < m; ++i) {
        const std::size_t at = i / static_cast<std::size_t>(width) * static_cast<std::size_t>(stride) + i % static_cast<std::size_t>(width);
        const double g = gate[at], u = up[at + shift];
        y[i] = silu_in_double(g) * u;
        diff_gate[at] = (silu_in_double(g + 1e-5) - silu_in_double(g - 1e-5)) / 2e-5 * u * diff[i];
        (halves ? diff_gate : diff_up)[at + shift] = silu_in_double(g) * diff[i];
      }
      const auto op = GatedSilu::make(*device(), {rows, width, stride, type});
      const Array on_gate(stream, gate, type), on_up(stream, up, type), on_y(stream, m, type), on_diff(stream, diff, type),
          to_gate(stream, n, type), to_up(stream, n, type);
      const std::size_t bytes = shift * size_of(type);
      const auto second = [&](const Array& first, const Array& other) {
        return halves ? static_cast<std::byte*>(first.data()) + bytes : other.data();
      };
      op->forward(stream, on_gate.data(), second(on_gate, on_up), on_y.data());
      op->backward_input(stream, on_gate.data(), second(on_gate, on_up), on_diff.data(), to_gate.data(), second(to_gate, to_up));
      check_close(label("gated", type, rows, width), on_y.get(), y, tolerance(type));
      check_close(label("gated gate", type, rows, width), to_gate.get(), diff_gate, tolerance(type));
      check_close(label("gated up", type, rows, width), to_up.get(), diff_up, tolerance(type));
    }
  BOOST_CHECK_THROW(GatedSilu::make(*device(), {1, 4, 3}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
