// Dim: a size that grows with the microbatch: square * B² + batch * B + fixed. Shapes of programs are made of these; numbers follow when a
// stage is compiled for B samples. Squares come from losses that compare each sample with every other one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ppengine::engine {

struct Dim {
  std::int64_t batch = 0, fixed = 0, square = 0;

  Dim() = default;
  Dim(std::int64_t size) : fixed(size) {}  // NOLINT: a number is a size
  Dim(std::int64_t per_sample, std::int64_t constant, std::int64_t per_pair = 0) : batch(per_sample), fixed(constant), square(per_pair) {}

  std::int64_t at(std::int64_t samples) const { return (square * samples + batch) * samples + fixed; }
  bool constant() const { return batch == 0 && square == 0; }
  bool is(std::int64_t size) const { return constant() && fixed == size; }
  std::string text() const;  // "8", "B", "12*B", "B*B"
  friend bool operator==(const Dim&, const Dim&) = default;
};

Dim operator+(const Dim& a, const Dim& b);
Dim operator-(const Dim& a, const Dim& b);
// ConfigError where it grows faster than the square of the batch: such values are not supported.
Dim operator*(const Dim& a, const Dim& b);
// Exact; ConfigError where it does not divide.
Dim operator/(const Dim& a, const Dim& b);

using Dims = std::vector<Dim>;
Dim count_of(const Dims& dims);
Dims dense_strides(const Dims& dims);
std::vector<std::int64_t> at(const Dims& dims, std::int64_t samples);
std::string text_of(const Dims& dims);
// As NumPy and PyTorch broadcast; ConfigError names both shapes.
Dims broadcast(const Dims& a, const Dims& b);

}  // namespace ppengine::engine
