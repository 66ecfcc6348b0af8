// Linears of inference: every storage, with norm, activation, gate and residual, few rows and many, against sums in double over the weights
// as they are stored (for int8 and bf16 those are computed here from the definition).
#include <thread>

#include <ppengine/ops/weight_linear.hpp>

#include "support.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

// What a weight is worth after storing: bf16 rounds to nearest even, int8 is scale · round(w / scale), scale = largest |w| of its group /
// 127, int4 as ops/weights.hpp defines it.
std::vector<double> stored_values(const PackedWeight& weight, const std::vector<float>& values) {
  std::vector<double> stored(values.begin(), values.end());
  if (weight.storage.format == WeightFormat::bf16) return as_double(rounded(values, Type::bf16));
  if (weight.storage.format == WeightFormat::f32) return stored;
  if (weight.storage.format == WeightFormat::int4) {
    const auto bf16 = [](double value) { return as_double(rounded({static_cast<float>(value)}, Type::bf16))[0]; };
    const std::int64_t group = weight.storage.group > 0 ? weight.storage.group : 32;
    for (std::int64_t row = 0; row < weight.out; ++row)
      for (std::int64_t first = 0; first < weight.in; first += group) {
        const auto begin = stored.begin() + row * weight.in + first, end = begin + std::min(group, weight.in - first);
        const double least = *std::min_element(begin, end), step = bf16((*std::max_element(begin, end) - least) / 15), zero = bf16(least);
        for (auto value = begin; value != end; ++value)
          *value = step > 0 ? std::clamp(std::nearbyint((*value - zero) / step), 0.0, 15.0) * step + zero : zero;
      }
    return stored;
  }
  const std::int64_t group = weight.storage.group > 0 ? std::min(weight.storage.group, weight.in) : weight.in;
  for (std::int64_t row = 0; row < weight.out; ++row)
    for (std::int64_t first = 0; first < weight.in; first += group) {
      double largest = 0;
      const std::int64_t last = std::min(first + group, weight.in);
      for (std::int64_t i = first; i < last; ++i)
        largest = std::max(largest, std::abs(stored[static_cast<std::size_t>(row * weight.in + i)]));
      for (std::int64_t i = first; i < last && largest > 0; ++i) {
        double& value = stored[static_cast<std::size_t>(row * weight.in + i)];
        value = std::nearbyint(value / (largest / 127)) * (largest / 127);
      }
    }
  return stored;
}

double activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::silu:
      return x / (1 + std::exp(-x));
    case ActivationKind::relu:
      return std::max(x, 0.0);
  }
  return x;
}

bool by_bytes(const Device& device, const WeightLinearSpec& spec) {
  return spec.byte_inputs && spec.weight.storage.format == WeightFormat::int4 && device.info().is_cpu && device.onednn();
}

// 32 inputs share a scale: the largest of them / 127.
void round_to_bytes(std::vector<double>& x) {
  for (std::size_t first = 0; first < x.size(); first += 32) {
    double largest = 0;
    const std::size_t last = std::min(first + 32, x.size());
    for (std::size_t i = first; i < last; ++i) largest = std::max(largest, std::abs(x[i]));
    for (std::size_t i = first; i < last && largest > 0; ++i) x[i] = std::nearbyint(x[i] * 127 / largest) * largest / 127;
  }
}

void check_on(const std::shared_ptr<Device>& device, const WeightLinearSpec& spec) {
  Stream stream(device);
  const auto rows = static_cast<std::size_t>(spec.rows), in = static_cast<std::size_t>(spec.weight.in),
             out = static_cast<std::size_t>(spec.weight.out);
  const auto src = random_values(rows * in, 1), w = random_values(out * in, 2), bias = random_values(out, 3),
             residual = random_values(rows * out, 4);
  const auto gate = random_values(rows * out, 5, 3.0f), gamma = random_values(in, 6), beta = random_values(in, 7);
  const auto stored = stored_values(spec.weight, w);

  std::vector<double> expected(rows * out);
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> x(src.begin() + static_cast<long>(r * in), src.begin() + static_cast<long>((r + 1) * in));
    if (spec.norm) {
      double mean = 0, variance = 0;
      if (spec.norm->kind == NormKind::layer)
        for (double one : x) mean += one / double(in);
      for (double one : x) variance += (one - mean) * (one - mean) / double(in);
      for (std::size_t i = 0; i < in; ++i)
        x[i] = (x[i] - mean) / std::sqrt(variance + double(spec.norm->epsilon)) * gamma[i] + (spec.norm->bias ? beta[i] : 0.0f);
    }
    if (by_bytes(*device, spec)) round_to_bytes(x);
    for (std::size_t o = 0; o < out; ++o) {
      double sum = spec.bias ? bias[o] : 0;
      for (std::size_t i = 0; i < in; ++i) sum += x[i] * stored[o * in + i];
      if (spec.activation) sum = activated(*spec.activation, sum);
      if (spec.gated) sum *= activated(ActivationKind::silu, gate[r * out + o]);
      if (spec.residual) sum += residual[r * out + o];
      expected[r * out + o] = sum;
    }
  }

  const auto op = WeightLinear::make(*device, spec);
  std::vector<std::byte> packed(spec.weight.bytes());
  pack(spec.weight, w, packed);
  Buffer weight(device, packed.size()), workspace(device, std::max<std::size_t>(op->workspace_bytes(), 64));
  stream.copy(weight.data(), packed.data(), packed.size());
  const Array a(stream, src), b(stream, bias), res(stream, residual), g(stream, gate), ga(stream, gamma), be(stream, beta),
      dst(stream, rows * out);
  op->forward(stream, {a.f32(), weight.data(), b.f32(), res.f32(), g.f32(), ga.f32(), be.f32(), dst.f32(), workspace.data()});
  const std::string name =
      std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out) + " " + name_of(spec.weight.storage.format);
  check_close(name, dst.get(), expected, 2e-5);
  if (spec.residual) {  // in place
    const Array both(stream, residual);
    op->forward(stream, {a.f32(), weight.data(), b.f32(), both.f32(), g.f32(), ga.f32(), be.f32(), both.f32(), workspace.data()});
    check_close(name + " in place", both.get(), expected, 2e-5);
  }
}

constexpr WeightStorage storages[] = {{WeightFormat::f32, 0},   {WeightFormat::bf16, 0}, {WeightFormat::int8, 0}, {WeightFormat::int8, 32},
                                      {WeightFormat::int8, 20}, {WeightFormat::int4, 0}, {WeightFormat::int4, 64}};

}  // namespace

BOOST_AUTO_TEST_SUITE(weight_linear)

BOOST_AUTO_TEST_CASE(every_storage_and_fusion_agrees_with_sums_in_double) {
  const WeightLinearSpec::NormBefore layer{NormKind::layer, 1e-5f, true}, rms{NormKind::rms, 1e-6f, false};
  for (const auto& device : devices())
    for (const WeightStorage& storage : storages)
      for (std::int64_t rows : {1, 2, 3, 7, 8, 9, 21}) {
        check_on(device, {rows, {storage, 37, 53}, true, true, layer});
        check_on(device, {rows, {storage, 64, 128}, false, false, rms, {}, true});
        check_on(device, {rows, {storage, 5, 17}, true, false, {}, ActivationKind::gelu_tanh});
        check_on(device, {rows, {storage, 1, 1}, false, true});
      }
}

// Without a norm: its rounding could push an input over to the next byte.
BOOST_AUTO_TEST_CASE(four_bits_with_inputs_in_bytes_agree_with_sums_in_double) {
  for (const auto& device : devices())
    for (std::int64_t group : {0, 64, 96, 128})
      for (std::int64_t rows : {1, 2, 3, 7, 8, 9, 21, 70})
        for (const auto& [out, in] : {std::pair<std::int64_t, std::int64_t>(37, 53), {64, 128}, {5, 17}, {1, 1}, {130, 1000}}) {
          const PackedWeight weight{{WeightFormat::int4, group}, out, in};
          check_on(device, {rows, weight, true, true, {}, {}, false, true});
          check_on(device, {rows, weight, false, false, {}, {}, true, true});
          check_on(device, {rows, weight, true, false, {}, ActivationKind::gelu_tanh, false, true});
        }
}

BOOST_AUTO_TEST_CASE(inputs_that_are_not_finite_make_no_finite_output) {
  const auto one = device();
  Stream stream(one);
  const PackedWeight weight{{WeightFormat::int4, 0}, 40, 96};
  std::vector<std::byte> packed(weight.bytes());
  pack(weight, random_values(40 * 96, 2), packed);
  Buffer on_device(one, packed.size()), workspace(one, 1 << 20);
  stream.copy(on_device.data(), packed.data(), packed.size());
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto values = random_values(96, 1);
    values[70] = bad;
    const Array src(stream, values), dst(stream, 40);
    const auto op = WeightLinear::make(*one, {.rows = 1, .weight = weight, .byte_inputs = true});
    op->forward(stream, {.src = src.f32(), .weight = on_device.data(), .dst = dst.f32(), .workspace = workspace.data()});
    for (float value : dst.get()) BOOST_TEST(!std::isfinite(value));
  }
}

BOOST_AUTO_TEST_CASE(every_activation) {
  for (const auto& device : devices())
    for (ActivationKind kind : {ActivationKind::gelu_tanh, ActivationKind::gelu_erf, ActivationKind::silu, ActivationKind::relu})
      for (std::int64_t rows : {1, 12}) check_on(device, {rows, {{WeightFormat::f32, 0}, 19, 33}, true, false, {}, kind});
}

// The order of additions is the same for any number of rows: a sequence's result does not depend on the others of its group.
BOOST_AUTO_TEST_CASE(a_row_has_the_same_bits_beside_other_rows) {
  const auto one = device();
  Stream stream(one);
  for (const WeightStorage& storage : storages) {
    const PackedWeight weight{storage, 43, 101};
    std::vector<std::byte> packed(weight.bytes());
    pack(weight, random_values(43 * 101, 2), packed);
    Buffer on_device(one, packed.size());
    stream.copy(on_device.data(), packed.data(), packed.size());
    const Array src(stream, random_values(8 * 101, 1)), gamma(stream, random_values(101, 3));
    std::vector<float> first;
    for (std::int64_t rows = 1; rows <= 8; ++rows) {
      const Array dst(stream, static_cast<std::size_t>(rows) * 43);
      const auto op = WeightLinear::make(*one, {rows, weight, false, false, WeightLinearSpec::NormBefore{NormKind::rms, 1e-6f, false}});
      Buffer workspace(one, std::max<std::size_t>(op->workspace_bytes(), 64));
      op->forward(stream, {src.f32(), on_device.data(), nullptr, nullptr, nullptr, gamma.f32(), nullptr, dst.f32(), workspace.data()});
      auto values = dst.get();
      values.resize(43);
      if (rows == 1) first = values;
      BOOST_TEST((values == first), "with " << rows << " rows, " << name_of(storage.format));
    }
  }
}

// With inputs in bytes that holds for any number of rows.
BOOST_AUTO_TEST_CASE(a_row_in_bytes_has_the_same_bits_beside_any_number_of_rows) {
  const auto one = device();
  Stream stream(one);
  const PackedWeight weight{{WeightFormat::int4, 0}, 143, 201};
  std::vector<std::byte> packed(weight.bytes());
  pack(weight, random_values(143 * 201, 2), packed);
  Buffer on_device(one, packed.size());
  stream.copy(on_device.data(), packed.data(), packed.size());
  const Array src(stream, random_values(90 * 201, 1)), gamma(stream, random_values(201, 3));
  const WeightLinearSpec::NormBefore rms{NormKind::rms, 1e-6f, false};
  std::vector<float> first;
  for (std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 90}) {
    const Array dst(stream, static_cast<std::size_t>(rows) * 143);
    const auto op = WeightLinear::make(
        *one, {.rows = rows, .weight = weight, .norm = rms, .activation = ActivationKind::gelu_tanh, .byte_inputs = true});
    Buffer workspace(one, std::max<std::size_t>(op->workspace_bytes(), 64));
    op->forward(stream,
                {.src = src.f32(), .weight = on_device.data(), .gamma = gamma.f32(), .dst = dst.f32(), .workspace = workspace.data()});
    auto values = dst.get();
    values.resize(143);
    if (rows == 1) first = values;
    if (one->onednn()) BOOST_TEST((values == first), "with " << rows << " rows");
  }
}

// Linears that follow one another are one launch on CPUs: each must see all of what the one before it has written. Of several lengths,
// from several threads at once, the last time with another number of rows in the middle.
BOOST_AUTO_TEST_CASE(linears_in_a_row_see_each_others_results) {
  const auto one = device();
  constexpr std::int64_t width = 160;
  const auto run = [&](int count, bool wait, int other_at) {
    Stream stream(one);
    const PackedWeight weight{{WeightFormat::int8, 0}, width, width};
    std::vector<std::byte> packed(weight.bytes());
    pack(weight, random_values(width * width, 2), packed);
    Buffer on_device(one, packed.size());
    stream.copy(on_device.data(), packed.data(), packed.size());
    const Array a(stream, random_values(2 * width, 1)), b(stream, 2 * width), gamma(stream, random_values(width, 3));
    const WeightLinearSpec::NormBefore rms{NormKind::rms, 1e-6f, false};
    const auto op = WeightLinear::make(*one, {2, weight, false, false, rms}),
               other = WeightLinear::make(*one, {1, weight, false, false, rms});
    for (int i = 0; i < count; ++i) {
      const Array &src = i % 2 ? b : a, &dst = i % 2 ? a : b;
      (i == other_at ? other : op)
          ->forward(stream, {src.f32(), on_device.data(), nullptr, nullptr, nullptr, gamma.f32(), nullptr, dst.f32(), nullptr});
      if (wait) stream.wait();
    }
    return (count % 2 ? b : a).get();
  };
  for (const auto& [count, other_at] : {std::pair(1, -1), {2, -1}, {7, -1}, {8, -1}, {9, -1}, {40, -1}, {21, 10}}) {
    const auto expected = run(count, true, other_at);
    std::vector<std::vector<float>> results(4);
    {
      std::vector<std::jthread> threads;
      for (auto& result : results) threads.emplace_back([&, count = count, other_at = other_at] { result = run(count, false, other_at); });
    }
    for (const auto& result : results) BOOST_TEST((result == expected), count << " linears");
  }
}

BOOST_AUTO_TEST_CASE(embedding_rows_of_a_packed_table) {
  for (const auto& one : devices())
    for (const WeightStorage& storage : storages) {
      if (storage.format == WeightFormat::f32) continue;
      Stream stream(one);
      const PackedWeight table{storage, 11, 45};
      const auto values = random_values(11 * 45, 2), positions = random_values(9 * 45, 3);
      std::vector<std::byte> packed(table.bytes());
      pack(table, values, packed);
      Buffer weight(one, packed.size());
      stream.copy(weight.data(), packed.data(), packed.size());
      const std::int32_t begin = 4;  // the table of a rank that has a part of the vocabulary
      const std::vector<std::int32_t> ids{7, 14, 3, 4, 15, 11};
      const Array numbers(stream, ids), first(stream, std::vector<std::int32_t>{2, 5}), table_of_positions(stream, positions),
          dst(stream, 6 * 45), wide(stream, 11 * 45);
      gather(stream, {table, 2, 3, begin}, numbers.i32(), weight.data(), table_of_positions.f32(), first.i32(), dst.f32());
      widen(stream, table, weight.data(), wide.f32());
      const auto stored = stored_values(table, values);
      check_close("widened", wide.get(), stored, 1e-6);
      std::vector<double> expected;
      for (std::size_t t = 0; t < ids.size(); ++t)
        for (std::size_t i = 0; i < 45; ++i)
          expected.push_back(ids[t] < begin || ids[t] >= begin + 11 ? 0
                                                                    : stored[static_cast<std::size_t>(ids[t] - begin) * 45 + i] +
                                                                          positions[((t < 3 ? 2 : 5) + t % 3) * 45 + i]);
      check_close("gathered", dst.get(), expected, 1e-6);
    }
}

BOOST_AUTO_TEST_CASE(a_part_of_the_inputs_has_the_numbers_of_the_whole) {
  const std::int64_t out = 5, in = 48;
  const auto values = random_values(out * in, 7);
  for (const WeightStorage& storage :
       {WeightStorage{WeightFormat::bf16, 0}, {WeightFormat::int8, 0}, {WeightFormat::int8, 8}, {WeightFormat::int4, 32}}) {
    const PackedWeight whole{storage, out, in};
    std::vector<std::byte> packed(whole.bytes());
    pack(whole, values, packed);
    Stream stream(device());
    const auto widened = [&](const PackedWeight& weight, const std::vector<std::byte>& from) {
      Buffer there(device(), from.size());
      stream.copy(there.data(), from.data(), from.size());
      Array wide(stream, static_cast<std::size_t>(weight.out * weight.in));
      widen(stream, weight, there.data(), wide.f32());
      return wide.get();
    };
    const auto all = widened(whole, packed);
    for (const auto& [begin, count] : {std::pair<std::int64_t, std::int64_t>(0, 24), {24, 24}, {32, 16}}) {
      if (storage.format == WeightFormat::int4 && begin % 32 != 0) continue;
      const PackedWeight part{storage, out, count};
      std::vector<std::byte> taken(part.bytes());
      take_inputs(whole, packed, begin, part, taken);
      std::vector<float> expected;
      for (std::int64_t row = 0; row < out; ++row)
        for (std::int64_t i = 0; i < count; ++i) expected.push_back(all[static_cast<std::size_t>(row * in + begin + i)]);
      BOOST_TEST((widened(part, taken) == expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(outputs_packed_some_at_a_time_equal_all_at_once) {
  const std::int64_t out = 700, in = 75;
  const auto values = random_values(out * in, 9);
  for (const WeightStorage& storage : storages) {
    const PackedWeight weight{storage, out, in};
    std::vector<std::byte> whole(weight.bytes()), parts(weight.bytes());
    pack(weight, values, whole);
    for (std::int64_t first = 0; first < out; first += 301) {
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(301, out - first) * in);
      pack_outputs(weight, first, std::span(values).subspan(static_cast<std::size_t>(first * in), count), parts);
    }
    BOOST_TEST((whole == parts), name_of(storage.format));
  }
}

BOOST_AUTO_TEST_CASE(odd_values_are_packed_without_harm) {
  const PackedWeight weight{{WeightFormat::int8, 0}, 3, 4};
  std::vector<std::byte> packed(weight.bytes());
  pack(weight, std::vector<float>{0, 0, 0, 0, 1e-42f, -1e-42f, 0, 1e-45f, 3e38f, -3e38f, 1.5e38f, 0}, packed);
  const auto* q = reinterpret_cast<const std::int8_t*>(packed.data());
  BOOST_TEST(int(q[0]) == 0);
  BOOST_TEST(int(q[4]) == 0);
  BOOST_TEST(int(q[8]) == 127);
  BOOST_TEST(int(q[9]) == -127);
}

BOOST_AUTO_TEST_SUITE_END()
