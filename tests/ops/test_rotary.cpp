// Rotary embedding: against the rotation in double; the way back undoes it.
#include <ppengine/base/error.hpp>
#include <ppengine/ops/rotary.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

void check(Type type, bool positions, bool in_place, double tolerance) {
  const auto own = device();
  Stream stream(own);
  const std::int64_t batch = 2, length = 5, heads = 3, d = 10, half = d / 2, table = 40;
  const std::int64_t src_stride = 41, dst_stride = in_place ? 41 : 30;
  std::vector<float> cosines, sines;
  for (std::int64_t p = 0; p < table; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = double(p) * std::pow(10000.0, -2.0 * double(i) / double(d));
      cosines.push_back(float(std::cos(angle))), sines.push_back(float(std::sin(angle)));
    }
  const std::vector<std::int32_t> first{7, 30};
  const auto src = rounded(random_values(std::size_t(batch * length * src_stride), 1), type);
  const auto op = Rotary::make(*own, {batch, length, heads, d, src_stride, dst_stride, type});
  Array src_array(stream, src, type), dst(stream, std::size_t(batch * length * dst_stride), type), cos_array(stream, cosines),
      sin_array(stream, sines);
  Array first_array(stream, first);
  Array& target = in_place ? src_array : dst;
  op->forward(stream, src_array.data(), cos_array.f32(), sin_array.f32(), positions ? first_array.i32() : nullptr, target.data());
  std::vector<double> expected = in_place ? as_double(src) : std::vector<double>(dst.count());
  for (std::int64_t token = 0; token < batch * length; ++token)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t p = token % length + (positions ? first[std::size_t(token / length)] : 0);
        const double angle = double(p) * std::pow(10000.0, -2.0 * double(i) / double(d));
        const double a = src[std::size_t(token * src_stride + h * d + i)], b = src[std::size_t(token * src_stride + h * d + i + half)];
        expected[std::size_t(token * dst_stride + h * d + i)] = a * std::cos(angle) - b * std::sin(angle);
        expected[std::size_t(token * dst_stride + h * d + i + half)] = b * std::cos(angle) + a * std::sin(angle);
      }
  check_close("forward", target.get(), expected, tolerance);
  // A rotation's gradient is the rotation back: applied to the result, it gives the source.
  Array back(stream, src.size(), type);
  op->backward_input(stream, target.data(), cos_array.f32(), sin_array.f32(), positions ? first_array.i32() : nullptr, back.data());
  std::vector<float> undone = back.get(), wanted = src;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (i % 41 >= 30) wanted[i] = 0;  // between the heads and the stride nothing is written
  check_close("backward", undone, wanted, tolerance);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rotary)

BOOST_AUTO_TEST_CASE(rotates_pairs_by_position) {
  for (bool positions : {false, true})
    for (bool in_place : {false, true}) check(Type::f32, positions, in_place, 1e-6);
}

BOOST_AUTO_TEST_CASE(equals_pytorch) {
  const auto one = reference("rotary")[0];
  Stream stream(device());
  const std::int64_t heads = one["heads"], width = one["width"];
  const auto op = Rotary::make(*device(), {one["batch"], one["length"], heads, width, heads * width, heads * width, Type::f32});
  Array x(stream, floats(one["x"])), cosines(stream, floats(one["cos"])), sines(stream, floats(one["sin"])),
      diff(stream, floats(one["diff"]));
  Array y(stream, x.count()), dx(stream, x.count());
  op->forward(stream, x.data(), cosines.f32(), sines.f32(), nullptr, y.data());
  op->backward_input(stream, diff.data(), cosines.f32(), sines.f32(), nullptr, dx.data());
  check_close("y", y.get(), floats(one["y"]), 2e-6);
  check_close("diff_x", dx.get(), floats(one["diff_x"]), 2e-6);
}

BOOST_AUTO_TEST_CASE(bf16_is_close_to_f32) { check(Type::bf16, true, false, 2e-2); }

BOOST_AUTO_TEST_CASE(an_odd_head_is_refused) {
  BOOST_CHECK_THROW(Rotary::make(*device(), {1, 1, 1, 3, 3, 3, Type::f32}), ppengine::ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
