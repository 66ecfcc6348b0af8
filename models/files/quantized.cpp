// Weights in 4 bits as GPTQ and AWQ store them, to f32.
#include <ppengine/models/files/quantized.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

constexpr std::int64_t in_word = 8;
constexpr std::array<int, in_word> awq_nibble{0, 4, 1, 5, 2, 6, 3, 7};  // where output i of eight lies in a word

using Shape = std::vector<std::int64_t>;

std::uint32_t word_at(const StoredTensor& tensor, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, tensor.data + index * 4, 4);
  return word;
}

const StoredTensor& part(const WeightFiles& files, const std::string& name, const Shape& shape, bool integers) {
  const StoredTensor& tensor = files.at(name);
  if (tensor.shape != shape)
    throw FileError(fmt::format("{}: tensor '{}' has shape [{}], but config.json and its quantization_config ask for [{}]", tensor.file,
                                name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  const bool is_float = tensor.type == StoredType::f32 || tensor.type == StoredType::f16 || tensor.type == StoredType::bf16;
  if (integers ? tensor.type != StoredType::i32 : !is_float)
    throw FileError(fmt::format("{}: tensor '{}' has type {}; it must be {}", tensor.file, name, tensor.type_name,
                                integers ? "I32" : "F16, BF16 or F32"));
  return tensor;
}

}  // namespace

std::vector<const StoredTensor*> QuantizedWeight::tensors() const {
  std::vector<const StoredTensor*> all{weights, zeros, scales};
  if (order) all.push_back(order);
  return all;
}

void QuantizedWeight::read(bool inputs_first, float* destination) const {
  const bool awq = how.kind == Quantization::Kind::awq;
  const auto nibble = [&](std::int64_t output) {
    return 4 * (awq ? awq_nibble[static_cast<std::size_t>(output % in_word)] : int(output % in_word));
  };
  std::vector<float> steps(scales->elements), zero(scales->elements);
  read_f32(*scales, 0, scales->elements, steps.data());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(zero.size()); ++i) {
    const std::uint32_t stored = word_at(*zeros, i / out * (out / in_word) + i % out / in_word) >> nibble(i % out) & 15u;
    zero[static_cast<std::size_t>(i)] = static_cast<float>(how.kind == Quantization::Kind::gptq ? (stored + 1) & 15u : stored);
  }
  const std::int64_t group = how.group > 0 ? how.group : in;
  // Eight inputs at a time: they are neighbours in the words of the one and in the result of the other.
  const auto outputs = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = 0; first < in; first += in_word)
      for (std::int64_t o = begin; o < end; ++o)
        for (std::int64_t i = first; i < first + in_word; ++i) {
          const std::uint32_t q = (awq ? word_at(*weights, i * (out / in_word) + o / in_word) >> nibble(o)
                                       : word_at(*weights, i / in_word * out + o) >> 4 * (i % in_word)) &
                                  15u;
          const std::int64_t of = order ? static_cast<std::int64_t>(word_at(*order, i)) : i / group;
          const auto at = static_cast<std::size_t>(of * out + o);
          destination[inputs_first ? i * out + o : o * in + i] = steps[at] * (static_cast<float>(q) - zero[at]);
        }
  };
  const std::int64_t threads = in * out < (1 << 18) ? 1 : std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  std::vector<std::jthread> workers;
  for (std::int64_t t = 1; t < threads; ++t) workers.emplace_back(outputs, out * t / threads, out * (t + 1) / threads);
  outputs(0, out / threads);
}

std::optional<QuantizedWeight> find_quantized(const WeightFiles& files, const Quantization& how, const std::string& linear, std::int64_t in,
                                              std::int64_t out) {
  const StoredTensor* const found = files.find(linear + ".qweight");
  if (!found) return {};
  if (in % in_word != 0 || out % in_word != 0)
    throw FileError(fmt::format("{}: tensor '{}.qweight': {} inputs and {} outputs are not multiples of 8, which 4-bit weights must be",
                                found->file, linear, in, out));
  const bool awq = how.kind == Quantization::Kind::awq;
  const std::int64_t group = how.group > 0 ? how.group : in, groups = (in + group - 1) / group;
  QuantizedWeight weight{how, in, out};
  weight.weights = &part(files, linear + ".qweight", awq ? Shape{in, out / in_word} : Shape{in / in_word, out}, true);
  weight.zeros = &part(files, linear + ".qzeros", {groups, out / in_word}, true);
  weight.scales = &part(files, linear + ".scales", {groups, out}, false);
  if (!awq && files.find(linear + ".g_idx")) {
    weight.order = &part(files, linear + ".g_idx", {in}, true);
    for (std::int64_t i = 0; i < in; ++i)
      if (const std::uint32_t of = word_at(*weight.order, i); of >= groups)
        throw FileError(
            fmt::format("{}: tensor '{}.g_idx': input {} is of group {}, there are {} groups", weight.order->file, linear, i, of, groups));
  }
  return weight;
}

}  // namespace ppengine::models
