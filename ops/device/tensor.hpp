// Tensor: shape, type and strides of a view on memory that somebody else owns.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <ppengine/ops/device/type.hpp>

namespace ppengine::ops {

// A short list of dimensions, without allocation.
class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return dims_[static_cast<std::size_t>(rank_ - 1)]; }
  // The product of all dimensions; 1 for a scalar.
  std::int64_t count() const;
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  // "[8,128,768]"
  std::string text() const;
  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

// Strides of a dense row-major tensor.
Shape dense_strides(const Shape& shape);

struct Tensor {
  void* data = nullptr;
  Type type = Type::f32;
  Shape shape;
  Shape strides;  // in elements

  Tensor() = default;
  Tensor(void* memory, Type element, const Shape& dims) : data(memory), type(element), shape(dims), strides(dense_strides(dims)) {}

  bool dense() const { return strides == dense_strides(shape); }
  std::int64_t count() const { return shape.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(type); }  // of a dense tensor
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // The part [begin, end) of dimension `dim`, still a view on the same memory.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;
};

}  // namespace ppengine::ops
