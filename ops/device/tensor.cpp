// Tensor: shape, type and strides of a view on memory.
#include <ppengine/ops/device/tensor.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::ops {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > max_rank) throw ConfigError(fmt::format("a tensor has at most {} dimensions, not {}", max_rank, dims.size()));
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::count() const {
  std::int64_t product = 1;
  for (std::int64_t dim : dims()) product *= dim;
  return product;
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(dims(), ",")); }

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

Shape dense_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  PPENGINE_ASSERT(dim >= 0 && dim < shape.rank() && 0 <= begin && begin <= end && end <= shape[dim]);
  Tensor part = *this;
  part.data = static_cast<char*>(data) + begin * strides[dim] * static_cast<std::int64_t>(size_of(type));
  part.shape[dim] = end - begin;
  return part;
}

}  // namespace ppengine::ops
