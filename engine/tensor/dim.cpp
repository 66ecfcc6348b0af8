// Sizes that grow with the microbatch.
#include <ppengine/engine/tensor/dim.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

std::string Dim::text() const {
  if (batch == 0) return std::to_string(fixed);
  std::string text = batch == 1 ? "B" : fmt::format("{}*B", batch);
  return fixed == 0 ? text : fmt::format("{}{:+}", text, fixed);
}

namespace {

// No tensor of this size fits anywhere; below it, sums, and products with the samples of a batch, do not overflow.
constexpr std::int64_t most = std::int64_t{1} << 38;
Dim checked(__int128 batch, __int128 fixed) {
  if (batch > most || batch < -most || fixed > most || fixed < -most)
    throw ConfigError("a size of more than 2^38 elements: such values are not supported");
  return {static_cast<std::int64_t>(batch), static_cast<std::int64_t>(fixed)};
}

}  // namespace

Dim operator+(const Dim& a, const Dim& b) {
  return checked(static_cast<__int128>(a.batch) + b.batch, static_cast<__int128>(a.fixed) + b.fixed);
}
Dim operator-(const Dim& a, const Dim& b) {
  return checked(static_cast<__int128>(a.batch) - b.batch, static_cast<__int128>(a.fixed) - b.fixed);
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.batch != 0 && b.batch != 0)
    throw ConfigError(
        fmt::format("a size of ({}) * ({}) grows with the square of the batch: such values are not supported", a.text(), b.text()));
  return checked(static_cast<__int128>(a.batch) * b.fixed + static_cast<__int128>(a.fixed) * b.batch,
                 static_cast<__int128>(a.fixed) * b.fixed);
}

Dim operator/(const Dim& a, const Dim& b) {
  if (b.batch == 0 && b.fixed != 0 && a.batch % b.fixed == 0 && a.fixed % b.fixed == 0) return {a.batch / b.fixed, a.fixed / b.fixed};
  if (b.batch != 0 && b.fixed == 0 && a.fixed == 0 && a.batch % b.batch == 0) return {a.batch / b.batch};
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
