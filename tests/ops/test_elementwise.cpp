// Flat functions: sums, casts, strided copies, dropout, reductions, against plain loops in double.
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/square_sums.hpp>

#include "layers.hpp"

using namespace ppengine;
using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

template <class F>
std::vector<double> map(const std::vector<float>& a, const std::vector<float>& b, F f) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(f(double(a[i]), double(b[i])));
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(elementwise)

BOOST_AUTO_TEST_CASE(add_multiply_scale_and_fill) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const std::size_t n : {0, 1, 17, 4097}) {
      const auto x = rounded(random_values(n, 1), type), y = rounded(random_values(n, 2), type);
      const auto count = static_cast<std::int64_t>(n);
      const Array a(stream, x, type), b(stream, y, type), c(stream, n, type);
      ops::add(stream, type, a.data(), b.data(), c.data(), count);
      check_close("add", c.get(), map(x, y, [](double p, double q) { return p + q; }), tolerance(type, 1e-7));
      ops::multiply(stream, type, a.data(), b.data(), b.data(), count);
      check_close("multiply", b.get(), map(x, y, [](double p, double q) { return p * q; }), tolerance(type, 1e-7));
      ops::scale(stream, type, a.data(), -3.0f, count);
      check_close("scale", a.get(), map(x, y, [](double p, double) { return -3 * p; }), tolerance(type, 1e-7));
      ops::fill(stream, type, a.data(), 1.5f, count);
      BOOST_TEST(a.get() == std::vector<float>(n, 1.5f));
    }
  BOOST_CHECK_THROW(ops::add(stream, Type::i32, nullptr, nullptr, nullptr, 1), ConfigError);
}

BOOST_AUTO_TEST_CASE(bias_is_added_to_each_row) {
  Stream stream(device());
  const auto x = random_values(5 * 33, 1), y = random_values(33, 2);
  const Array a(stream, x), b(stream, y);
  ops::add_bias(stream, Type::f32, a.data(), b.data(), a.data(), 5, 33);
  const auto result = a.get();
  for (std::size_t i = 0; i < x.size(); ++i) BOOST_TEST(result[i] == x[i] + y[i % 33]);
}

BOOST_AUTO_TEST_CASE(casts_round_to_nearest_even) {
  Stream stream(device());
  std::vector<float> values = random_values(1001, 1, 100);
  values[0] = 1.00390625f;  // halfway between two bf16: to the even one, 1.0
  values[1] = 1.01171875f;  // halfway: up to 1.015625
  values[2] = 3.4e38f, values[3] = -0.0f, values[4] = 1e-40f;
  const Array from(stream, values), to(stream, 1001, Type::bf16), back(stream, std::size_t{1001});
  ops::cast(stream, Type::f32, from.data(), Type::bf16, to.data(), 1001);
  ops::cast(stream, Type::bf16, to.data(), Type::f32, back.data(), 1001);
  BOOST_TEST(back.get() == rounded(values, Type::bf16));
  BOOST_TEST(back.get()[0] == 1.0f);
  BOOST_TEST(back.get()[1] == 1.015625f);
  const Array whole(stream, std::vector<std::int32_t>{-7, 0, 12345}), floats_of(stream, std::size_t{3});
  ops::cast(stream, Type::i32, whole.data(), Type::f32, floats_of.data(), 3);
  BOOST_TEST(floats_of.get() == (std::vector<float>{-7, 0, 12345}));
}

BOOST_AUTO_TEST_CASE(strided_copies_of_any_rank) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16}) {
    // The middle columns [2,5) of a [2,3,7], transposed to [3,2,3].
    const auto values = rounded(random_values(42, 1), type);
    const Array from(stream, values, type), to(stream, 18, type);
    Tensor src = Tensor(from.data(), type, {2, 3, 7}).slice(2, 2, 5);
    Tensor dst(to.data(), type, {3, 2, 3});
    std::swap(dst.shape[0], dst.shape[1]);
    std::swap(dst.strides[0], dst.strides[1]);
    ops::copy_strided(stream, src, dst);
    const auto result = to.get();
    for (std::size_t a = 0; a < 2; ++a)
      for (std::size_t b = 0; b < 3; ++b)
        for (std::size_t c = 0; c < 3; ++c) BOOST_TEST(result[b * 6 + a * 3 + c] == values[a * 21 + b * 7 + c + 2]);
    const Array all(stream, 42, type);
    ops::copy_strided(stream, Tensor(from.data(), type, {6, 7}), Tensor(all.data(), type, {6, 7}));
    BOOST_TEST(all.get() == values);
  }
  BOOST_CHECK_THROW(ops::copy_strided(stream, Tensor(nullptr, Type::f32, {2}), Tensor(nullptr, Type::f32, {3})), ConfigError);
}

BOOST_AUTO_TEST_CASE(rows_are_gathered_and_put_back) {
  Stream stream(device());
  for (const std::size_t width : {1, 5, 16, 130}) {
    const std::vector<std::int32_t> rows{0, 3, 4, 10};
    const auto values = random_values(11 * width, 3);
    const Array table(stream, values), which(stream, rows), few(stream, rows.size() * width);
    const auto* ids = static_cast<const std::int32_t*>(which.data());
    ops::gather_rows(stream, table.f32(), ids, few.f32(), 4, static_cast<std::int64_t>(width));
    const auto packed = few.get();
    for (std::size_t k = 0; k < rows.size(); ++k)
      for (std::size_t i = 0; i < width; ++i) BOOST_TEST(packed[k * width + i] == values[static_cast<std::size_t>(rows[k]) * width + i]);
    // Into all of a table, and into a part of it that begins and ends within rows.
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 11 * width}, {3 * width + width / 2, 10 * width + width / 3}}) {
      const Array back(stream, end - begin + 1);
      ops::scatter_rows(stream, few.f32(), ids, back.f32(), 4, static_cast<std::int64_t>(width), static_cast<std::int64_t>(begin),
                        static_cast<std::int64_t>(end));
      std::vector<float> expected(end - begin + 1);  // nothing is written behind the part
      for (const std::int32_t row : rows)
        for (std::size_t e = static_cast<std::size_t>(row) * width; e < static_cast<std::size_t>(row + 1) * width; ++e)
          if (e >= begin && e < end) expected[e - begin] = values[e];
      BOOST_TEST(back.get() == expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(transposition_at_odd_sizes) {
  Stream stream(device());
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{1, 1}, {16, 32}, {37, 19}, {3, 100}}) {
    const auto values = random_values(rows * columns, 1);
    const Array from(stream, values), to(stream, rows * columns);
    ops::transpose(stream, from.f32(), to.f32(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns));
    const auto result = to.get();
    bool right = true;
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) right = right && result[j * rows + i] == values[i * columns + j];
    BOOST_TEST(right);
  }
}

BOOST_AUTO_TEST_CASE(dropout_keeps_the_wanted_share_and_depends_on_the_index_alone) {
  Stream stream(device());
  constexpr std::size_t n = 100003;
  const std::vector<float> ones(n, 1.0f), sevens(n, 7.0f);
  const Array x(stream, ones), add(stream, sevens), y(stream, n), part(stream, std::size_t{1000});
  ops::dropout(stream, Type::f32, x.data(), nullptr, y.data(), n, 0.25f, 42, 0);
  const auto whole = y.get();
  double kept = 0;
  for (const float value : whole) {
    BOOST_REQUIRE((value == 0.0f || value == 1.0f / 0.75f));
    kept += value != 0.0f;
  }
  BOOST_TEST(std::abs(kept / n - 0.75) < 0.01);         // 7 standard deviations
  for (const std::size_t first : {1, 63, 64, 12345}) {  // any part of it, from any place, is the same
    ops::dropout(stream, Type::f32, x.data(), nullptr, part.data(), 1000, 0.25f, 42, first);
    const auto values = part.get();
    BOOST_TEST(std::equal(values.begin(), values.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
  }
  ops::dropout(stream, Type::f32, x.data(), nullptr, y.data(), n, 0.25f, 43, 0);
  BOOST_TEST((y.get() != whole));
  ops::dropout(stream, Type::f32, x.data(), add.data(), y.data(), n, 0.25f, 42, 0);
  const auto added = y.get();
  for (std::size_t i = 0; i < n; ++i) BOOST_REQUIRE(added[i] == whole[i] + 7.0f);
  ops::dropout(stream, Type::f32, x.data(), nullptr, y.data(), n, 0.0f, 42, 0);
  BOOST_TEST((y.get() == ones));
  const Array half(stream, ones, Type::bf16);
  ops::dropout(stream, Type::bf16, half.data(), nullptr, half.data(), n, 0.25f, 42, 0);
  BOOST_TEST((half.get() == rounded(whole, Type::bf16)));
  BOOST_CHECK_THROW(ops::dropout(stream, Type::f32, x.data(), nullptr, y.data(), n, 1.5f, 42, 0), ConfigError);
}

// The known answer of the paper's own test file (Random123, kat_vectors): counter 0, key 0 begins with 6627e8d5.
BOOST_AUTO_TEST_CASE(dropout_draws_philox_4x32_10) {
  Stream stream(device());
  const std::uint32_t word = 0x6627e8d5u;
  const Array one(stream, std::vector<float>{1.0f}), y(stream, std::size_t{1});
  const auto kept = [&](double p) {
    ops::dropout(stream, Type::f32, one.data(), nullptr, y.data(), 1, static_cast<float>(p), 0, 0);
    return y.get()[0] != 0.0f;
  };
  BOOST_TEST(kept(word / 4294967296.0 - 1e-6));
  BOOST_TEST(!kept(word / 4294967296.0 + 1e-6));
}

BOOST_AUTO_TEST_CASE(column_sums) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{0, 5}, {1, 1}, {7, 19}, {64, 16}, {301, 130}}) {
      const auto values = rounded(random_values(rows * columns, 1), type);
      std::vector<double> expected(columns);
      for (std::size_t i = 0; i < values.size(); ++i) expected[i % columns] += values[i];
      const Array src(stream, values, type), sums(stream, std::vector<float>(columns, 3.0f)),
          more(stream, std::vector<float>(columns, 3.0f));
      ops::sum_rows(stream, type, src.data(), sums.f32(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), false);
      ops::sum_rows(stream, type, src.data(), more.f32(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), true);
      check_close(label("sums", type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)), sums.get(), expected, 2e-6);
      for (double& value : expected) value += 3;
      check_close("accumulated", more.get(), expected, 2e-6);
    }
}

BOOST_AUTO_TEST_CASE(sums_of_squares_of_many_ranges) {
  Stream stream(device());
  const auto values = random_values(300000, 5, 1000);
  const Array src(stream, values);
  const std::vector<ops::SquareSums::Range> ranges{{3, 1}, {10, 0}, {16, 17}, {40, 4097}, {70001, 200003}, {299999, 1}};
  ops::SquareSums all(device(), ranges);
  const std::vector<double> sums = all.of(stream, src.f32());
  BOOST_REQUIRE_EQUAL(sums.size(), ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    double expected = 0;
    for (std::size_t k = 0; k < ranges[i].count; ++k) expected += double(values[ranges[i].begin + k]) * values[ranges[i].begin + k];
    BOOST_TEST(std::abs(sums[i] - expected) <= expected * 1.2e-7, "range " << i << ": " << sums[i] << " " << expected);
    ops::SquareSums alone(device(), std::span(&ranges[i], 1));
    BOOST_TEST(alone.of(stream, src.f32()).front() == sums[i]);
    const Array moved(stream, std::vector<float>(values.begin() + static_cast<long>(ranges[i].begin), values.end()));
    const ops::SquareSums::Range first{0, ranges[i].count};
    BOOST_TEST(ops::SquareSums(device(), std::span(&first, 1)).of(stream, moved.f32()).front() == sums[i]);
  }
}

BOOST_AUTO_TEST_CASE(sums_are_accurate_to_the_last_place) {
  Stream stream(device());
  const Array workspace(stream, reduce_workspace() / 4), result(stream, std::size_t{1});
  for (const std::size_t n : {0, 1, 17, 4097, 1000003}) {
    auto values = random_values(n, 5, 1000);
    double total = 0, squares = 0;
    for (const float value : values) total += value, squares += double(value) * value;
    const Array src(stream, values);
    ops::sum(stream, src.f32(), result.f32(), static_cast<std::int64_t>(n), workspace.data());
    const float first = result.get()[0];
    BOOST_TEST(std::abs(first - total) <= std::max(std::abs(total), 1.0) * 1.2e-7, "sum of " << n << ": " << first << " " << total);
    ops::sum(stream, src.f32(), result.f32(), static_cast<std::int64_t>(n), workspace.data());
    BOOST_TEST(result.get()[0] == first);
    ops::sum_squares(stream, src.f32(), result.f32(), static_cast<std::int64_t>(n), workspace.data());
    BOOST_TEST(std::abs(result.get()[0] - squares) <= squares * 1.2e-7);
  }
}

BOOST_AUTO_TEST_SUITE_END()
