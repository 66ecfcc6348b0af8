// Sizes that grow with the microbatch.
#include <ppengine/engine/tensor/dim.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

std::string Dim::text() const {
  std::string text;
  const auto term = [&](std::int64_t times, const char* what) {
    if (times == 0) return;
    if (!text.empty() && times > 0) text += '+';
    text += times == 1 ? what : fmt::format("{}*{}", times, what);
  };
  term(square, "B*B"), term(batch, "B");
  if (text.empty()) return std::to_string(fixed);
  return fixed == 0 ? text : fmt::format("{}{:+}", text, fixed);
}

namespace {

// No tensor of this size fits anywhere; below it, sums, and products with the samples of a batch, do not overflow.
constexpr std::int64_t most = std::int64_t{1} << 38, most_square = std::int64_t{1} << 20;
Dim checked(__int128 batch, __int128 fixed, __int128 square) {
  if (batch > most || batch < -most || fixed > most || fixed < -most || square > most_square || square < -most_square)
    throw ConfigError("a size of more than 2^38 elements: such values are not supported");
  return {static_cast<std::int64_t>(batch), static_cast<std::int64_t>(fixed), static_cast<std::int64_t>(square)};
}

__int128 wide(std::int64_t value) { return value; }

// (a.square · B² + a.batch · B + a.fixed) / (b.batch · B + b.fixed), where nothing is left.
std::optional<Dim> divided_by_line(const Dim& a, const Dim& b) {
  if (b.batch == 0 || b.square != 0 || a.square % b.batch != 0) return {};
  const std::int64_t slope = a.square / b.batch;
  const __int128 rest = a.batch - wide(slope) * b.fixed;
  if (rest % b.batch != 0 || rest / b.batch * b.fixed != a.fixed) return {};
  return checked(slope, rest / b.batch, 0);
}

}  // namespace

Dim operator+(const Dim& a, const Dim& b) { return checked(wide(a.batch) + b.batch, wide(a.fixed) + b.fixed, wide(a.square) + b.square); }
Dim operator-(const Dim& a, const Dim& b) { return checked(wide(a.batch) - b.batch, wide(a.fixed) - b.fixed, wide(a.square) - b.square); }

Dim operator*(const Dim& a, const Dim& b) {
  if ((a.square != 0 && !b.constant()) || (b.square != 0 && !a.constant()))
    throw ConfigError(
        fmt::format("a size of ({}) * ({}) grows faster than the square of the batch: such values are not supported", a.text(), b.text()));
  return checked(wide(a.batch) * b.fixed + wide(a.fixed) * b.batch, wide(a.fixed) * b.fixed,
                 wide(a.square) * b.fixed + wide(a.fixed) * b.square + wide(a.batch) * b.batch);
}

Dim operator/(const Dim& a, const Dim& b) {
  if (b.constant() && b.fixed != 0 && a.batch % b.fixed == 0 && a.fixed % b.fixed == 0 && a.square % b.fixed == 0)
    return {a.batch / b.fixed, a.fixed / b.fixed, a.square / b.fixed};
  if (const auto found = divided_by_line(a, b)) return *found;
  if (b.square != 0 && a.square % b.square == 0 && a == b * Dim(a.square / b.square)) return {a.square / b.square};
  if (a == b) return {1};
  throw ConfigError(fmt::format("{} elements cannot be divided by {}", a.text(), b.text()));
}

Dim count_of(const Dims& dims) {
  Dim count = 1;
  for (const Dim& one : dims) count = count * one;
  return count;
}

Dims dense_strides(const Dims& dims) {
  Dims strides(dims.size());
  Dim stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    if (i > 0) stride = stride * dims[i];
  }
  return strides;
}

std::vector<std::int64_t> at(const Dims& dims, std::int64_t samples) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(dims.size());
  for (const Dim& one : dims) sizes.push_back(one.at(samples));
  return sizes;
}

std::string text_of(const Dims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    text += dims[i].text();
  }
  text += ']';
  return text;
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), Dim(1));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Dim x = i < a.size() ? a[a.size() - 1 - i] : Dim(1), y = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
    if (!(x == y) && !x.is(1) && !y.is(1)) throw ConfigError(fmt::format("shapes {} and {} do not fit together", text_of(a), text_of(b)));
    out[out.size() - 1 - i] = x.is(1) ? y : x;
  }
  return out;
}

}  // namespace ppengine::engine
