// Linear: forward and both halves of its gradient against products in double (which finite differences confirm), on every implementation.
#include <ppengine/ops/linear.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

// W as [in,out], from either layout.
double weight_at(const LinearSpec& spec, const std::vector<double>& w, std::int64_t i, std::int64_t o) {
  return w[static_cast<std::size_t>(spec.layout == WeightLayout::out_in ? o * spec.in + i : i * spec.out + o)];
}

std::vector<double> reference_forward(const LinearSpec& spec, const std::vector<double>& src, const std::vector<double>& w,
                                      const std::vector<double>& bias, const std::vector<double>& residual) {
  std::vector<double> dst(static_cast<std::size_t>(spec.rows * spec.out));
  for (std::int64_t r = 0; r < spec.rows; ++r)
    for (std::int64_t o = 0; o < spec.out; ++o) {
      const auto at = static_cast<std::size_t>(r * spec.out + o);
      double sum = (spec.bias ? bias[static_cast<std::size_t>(o)] : 0) + (spec.residual ? residual[at] : 0);
      for (std::int64_t i = 0; i < spec.in; ++i) sum += src[static_cast<std::size_t>(r * spec.in + i)] * weight_at(spec, w, i, o);
      dst[at] = sum;
    }
  return dst;
}

struct Data {
  explicit Data(const LinearSpec& spec, float scale = 1.0f)
      : src(rounded(random_values(static_cast<std::size_t>(spec.rows * spec.in), 1, scale), spec.type)),
        weight(rounded(random_values(static_cast<std::size_t>(spec.in * spec.out), 2), spec.type)),
        bias(rounded(random_values(static_cast<std::size_t>(spec.out), 3), spec.type)),
        residual(rounded(random_values(static_cast<std::size_t>(spec.rows * spec.out), 4, scale), spec.type)),
        diff_dst(rounded(random_values(static_cast<std::size_t>(spec.rows * spec.out), 5, scale), spec.type)),
        add(rounded(random_values(static_cast<std::size_t>(spec.rows * spec.in), 6, scale), spec.type)) {}
  std::vector<float> src, weight, bias, residual, diff_dst, add;
};

// The gradients, written out: diff_src = diff_dst·Wᵀ + add, diff_W = srcᵀ·diff_dst, diff_bias = column sums.
struct Gradients {
  Gradients(const LinearSpec& spec, const Data& d)
      : src(as_double(d.add)), weight(d.weight.size()), bias(static_cast<std::size_t>(spec.out)) {
    if (!spec.add_diff_src) std::fill(src.begin(), src.end(), 0.0);
    const auto w = as_double(d.weight);
    for (std::int64_t r = 0; r < spec.rows; ++r)
      for (std::int64_t o = 0; o < spec.out; ++o) {
        const double dy = d.diff_dst[static_cast<std::size_t>(r * spec.out + o)];
        bias[static_cast<std::size_t>(o)] += dy;
        for (std::int64_t i = 0; i < spec.in; ++i) {
          src[static_cast<std::size_t>(r * spec.in + i)] += dy * weight_at(spec, w, i, o);
          weight[static_cast<std::size_t>(spec.layout == WeightLayout::out_in ? o * spec.in + i : i * spec.out + o)] +=
              dy * d.src[static_cast<std::size_t>(r * spec.in + i)];
        }
      }
  }
  std::vector<double> src, weight, bias;
};

void check_on(const std::shared_ptr<Device>& device, const LinearSpec& spec, double tolerance, float scale = 1.0f) {
  BOOST_TEST_CONTEXT("rows " << spec.rows << " in " << spec.in << " out " << spec.out << " layout " << int(spec.layout) << " bias "
                             << spec.bias << " residual " << spec.residual << " " << name_of(spec.type) << " onednn " << device->onednn()) {
    Stream stream(device);
    const auto linear = Linear::make(*device, spec);
    const Data d(spec, scale);
    Array src(stream, d.src, spec.type), weight(stream, d.weight, spec.type), bias(stream, d.bias, spec.type);
    Array residual(stream, d.residual, spec.type), diff_dst(stream, d.diff_dst, spec.type), add(stream, d.add, spec.type);
    Array dst(stream, d.residual.size(), spec.type), diff_src(stream, d.src.size(), spec.type);
    const auto expected = reference_forward(spec, as_double(d.src), as_double(d.weight), as_double(d.bias), as_double(d.residual));
    linear->forward(stream, src.data(), weight.data(), bias.data(), residual.data(), dst.data());
    check_close("forward", dst.get(), expected, tolerance);
    if (spec.residual) {
      dst.set(d.residual);
      linear->forward(stream, src.data(), weight.data(), bias.data(), dst.data(), dst.data());
      check_close("forward with the residual in place", dst.get(), expected, tolerance);
    }
    const Gradients gradients(spec, d);
    linear->backward_input(stream, diff_dst.data(), weight.data(), add.data(), diff_src.data());
    check_close("diff_src", diff_src.get(), gradients.src, tolerance);
    if (spec.add_diff_src) {
      diff_src.set(d.add);
      linear->backward_input(stream, diff_dst.data(), weight.data(), diff_src.data(), diff_src.data());
      check_close("diff_src added in place", diff_src.get(), gradients.src, tolerance);
    }
    Array diff_weight(stream, std::vector<float>(d.weight.size(), 7.0f)), diff_bias(stream, std::vector<float>(d.bias.size(), 7.0f));
    linear->backward_weight(stream, src.data(), diff_dst.data(), diff_weight.f32(), diff_bias.f32(), false);
    check_close("diff_weight", diff_weight.get(), gradients.weight, tolerance);
    if (spec.bias) check_close("diff_bias", diff_bias.get(), gradients.bias, tolerance);
    linear->backward_weight(stream, src.data(), diff_dst.data(), diff_weight.f32(), diff_bias.f32(), true);
    auto twice = gradients;
    for (double& value : twice.weight) value *= 2;
    for (double& value : twice.bias) value *= 2;
    check_close("diff_weight twice", diff_weight.get(), twice.weight, tolerance);
    if (spec.bias) check_close("diff_bias twice", diff_bias.get(), twice.bias, tolerance);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(linear)

BOOST_AUTO_TEST_CASE(every_size_layout_and_extra_matches_products_in_double) {
  const std::int64_t sizes[][3] = {{1, 1, 1}, {1, 48, 33}, {0, 16, 8}, {3, 5, 7}, {64, 64, 64}, {65, 63, 67}, {130, 96, 200}, {4, 256, 17}};
  for (const auto& device : devices())
    for (const auto& [rows, in, out] : sizes)
      for (auto layout : {WeightLayout::out_in, WeightLayout::in_out})
        for (int extras = 0; extras < 4; ++extras)
          check_on(device, {rows, in, out, layout, (extras & 1) != 0, (extras & 2) != 0, (extras & 2) != 0, Type::f32}, 1e-5);
}

BOOST_AUTO_TEST_CASE(equals_pytorch) {
  for (const auto& one : reference("linear"))
    for (const auto& device : devices()) {
      Stream stream(device);
      const auto op = Linear::make(*device, {one["rows"], one["in"], one["out"], WeightLayout::out_in, true, true, false, Type::f32});
      Array x(stream, floats(one["x"])), w(stream, floats(one["w"])), b(stream, floats(one["b"])),
          residual(stream, floats(one["residual"]));
      Array diff(stream, floats(one["diff"])), y(stream, diff.count()), dx(stream, x.count()), dw(stream, w.count()), db(stream, b.count());
      op->forward(stream, x.data(), w.data(), b.data(), residual.data(), y.data());
      op->backward_input(stream, diff.data(), w.data(), nullptr, dx.data());
      op->backward_weight(stream, x.data(), diff.data(), dw.f32(), db.f32(), false);
      check_close("y", y.get(), floats(one["y"]), 2e-6);
      check_close("diff_x", dx.get(), floats(one["diff_x"]), 2e-6);
      check_close("diff_w", dw.get(), floats(one["diff_w"]), 2e-6);
      check_close("diff_b", db.get(), floats(one["diff_b"]), 2e-6);
    }
}

BOOST_AUTO_TEST_CASE(bf16_is_close_to_f32) {
  for (const auto& device : devices())
    for (auto layout : {WeightLayout::out_in, WeightLayout::in_out})
      for (std::int64_t rows : {1, 67}) {
        check_on(device, {rows, 96, 80, layout, true, false, false, Type::bf16}, 5e-3);
        check_on(device, {rows, 33, 50, layout, true, true, true, Type::bf16}, 5e-3);
      }
}

BOOST_AUTO_TEST_CASE(large_magnitudes_keep_their_relative_error) {
  for (const auto& device : devices()) check_on(device, {20, 40, 30, WeightLayout::out_in, true, true, true, Type::f32}, 1e-5, 1e15f);
}

BOOST_AUTO_TEST_CASE(gradients_equal_finite_differences) {
  const LinearSpec spec{3, 5, 4, WeightLayout::in_out, true, true, false, Type::f32};
  const Data d(spec);
  const auto src = as_double(d.src), weight = as_double(d.weight), bias = as_double(d.bias), residual = as_double(d.residual);
  const auto loss = [&](const std::vector<double>& dst) { return dot(dst, as_double(d.diff_dst)); };
  const Gradients gradients(spec, d);
  const auto close = [](const std::vector<double>& a, const std::vector<double>& b) {
    check_close("written out against numeric", std::vector<float>(a.begin(), a.end()), b, 1e-6);
  };
  close(gradients.src, numeric_gradient([&](const auto& x) { return loss(reference_forward(spec, x, weight, bias, residual)); }, src));
  close(gradients.weight, numeric_gradient([&](const auto& x) { return loss(reference_forward(spec, src, x, bias, residual)); }, weight));
  close(gradients.bias, numeric_gradient([&](const auto& x) { return loss(reference_forward(spec, src, weight, x, residual)); }, bias));
}

BOOST_AUTO_TEST_CASE(calls_queued_on_different_memory_do_not_mix) {
  const LinearSpec spec{8, 16, 16, WeightLayout::out_in, false, false, false, Type::f32};
  for (const auto& device : devices()) {
    Stream stream(device);
    const auto op = Linear::make(*device, spec);
    const Data d(spec);
    Array weight(stream, d.weight);
    std::vector<Array> src, dst;
    for (int i = 0; i < 40; ++i) {
      auto values = d.src;
      for (float& value : values) value *= float(i);
      src.emplace_back(stream, values);
      dst.emplace_back(stream, std::size_t(8 * 16));
    }
    stream.wait();
    for (std::size_t i = 0; i < src.size(); ++i) op->forward(stream, src[i].data(), weight.data(), nullptr, nullptr, dst[i].data());
    const auto one = reference_forward(spec, as_double(d.src), as_double(d.weight), {}, {});
    for (std::size_t i = 0; i < src.size(); ++i) {
      auto expected = one;
      for (double& value : expected) value *= double(i);
      check_close("call " + std::to_string(i), dst[i].get(), expected, 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(repeated_runs_allocate_nothing_and_give_the_same_bits) {
  const LinearSpec spec{100, 96, 80, WeightLayout::out_in, true, true, true, Type::f32};
  for (const auto& device : devices()) {
    Stream stream(device);
    const auto op = Linear::make(*device, spec);
    const Data d(spec);
    Array src(stream, d.src), weight(stream, d.weight), bias(stream, d.bias), residual(stream, d.residual), diff_dst(stream, d.diff_dst);
    Array dst(stream, d.residual.size()), diff_src(stream, d.src.size()), diff_weight(stream, d.weight.size()),
        diff_bias(stream, d.bias.size());
    std::vector<float> first[4];
    std::size_t allocations = 0, lookups = 0;
    for (int run = 0; run < 5; ++run) {
      op->forward(stream, src.data(), weight.data(), bias.data(), residual.data(), dst.data());
      op->backward_input(stream, diff_dst.data(), weight.data(), src.data(), diff_src.data());
      op->backward_weight(stream, src.data(), diff_dst.data(), diff_weight.f32(), diff_bias.f32(), false);
      const std::vector<float> now[4] = {dst.get(), diff_src.get(), diff_weight.get(), diff_bias.get()};
      for (int i = 0; i < 4; ++i) {
        if (run == 0) first[i] = now[i];
        BOOST_TEST((first[i] == now[i]));
      }
      if (run == 0) allocations = device->memory().allocations(), lookups = device->kernels().lookups();
    }
    BOOST_TEST(device->memory().allocations() == allocations);
    BOOST_TEST(device->kernels().lookups() == lookups);
  }
}

BOOST_AUTO_TEST_CASE(every_refusal_has_a_reason) {
  const std::string off = device()->info().onednn ? "oneDNN is switched off" : "oneDNN has no engine for this device";
  const LinearSpec spec{4, 4, 4, WeightLayout::out_in, false, false, false, Type::f32};
  const auto considered = Linear::consider(*device_without_onednn(), spec);
  BOOST_REQUIRE(considered.size() == 3);
  BOOST_TEST(considered[0].implementation == "cpu");
  BOOST_TEST(considered[0].refusal.value() == off);
  BOOST_TEST(considered[1].implementation == "onednn");
  BOOST_TEST(considered[1].refusal.value() == off);
  BOOST_TEST(!considered[2].refusal.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
