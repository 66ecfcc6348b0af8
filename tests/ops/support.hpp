// What the op tests share: devices, arrays on them, random values, comparison, finite differences in double.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ppengine/ops/device/kernel_library.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>

#include "../compare.hpp"
#include "../device.hpp"

namespace ppengine::ops::support {

// The device of the tests, opened once with oneDNN (where it is there and allowed) and once without: kernels are compiled once for all
// tests. Never closed: at exit SYCL's own globals may be gone before ours.
inline std::shared_ptr<Device> device() {
  static const auto& one = *new auto(Device::open(ppengine::test::device_name()));
  return one;
}
inline std::shared_ptr<Device> device_without_onednn() {
  static const auto& one = *new auto(Device::open(ppengine::test::device_name(), false));
  return one;
}
inline std::vector<std::shared_ptr<Device>> devices() {
  if (!device()->onednn()) return {device_without_onednn()};
  return {device(), device_without_onednn()};
}

inline std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bf16(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t(value) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

// Values on a device, given and read back as float whatever their type there.
class Array {
 public:
  Array(Stream& stream, std::size_t count, Type type = Type::f32)
      : stream_(&stream), count_(count), type_(type), buffer_(stream.device_ptr(), std::max<std::size_t>(count * size_of(type), 4)) {
    stream.zero(buffer_.data(), buffer_.bytes());
  }
  Array(Stream& stream, const std::vector<float>& values, Type type = Type::f32) : Array(stream, values.size(), type) { set(values); }
  Array(Stream& stream, const std::vector<std::int32_t>& values) : Array(stream, values.size(), Type::i32) {
    stream.copy(buffer_.data(), values.data(), values.size() * 4);
    stream.wait();
  }

  void set(const std::vector<float>& values) {
    if (values.size() != count_) throw std::invalid_argument("Array::set: another number of values");  // not a check: threads set some
    if (type_ == Type::f32) {
      stream_->copy(buffer_.data(), values.data(), count_ * 4);
      stream_->wait();
    } else {
      std::vector<std::uint16_t> packed(count_);
      for (std::size_t i = 0; i < count_; ++i) packed[i] = to_bf16(values[i]);
      stream_->copy(buffer_.data(), packed.data(), count_ * 2);
      stream_->wait();
    }
  }
  std::vector<float> get() const {
    std::vector<float> values(count_);
    std::vector<std::uint16_t> packed(type_ == Type::bf16 ? count_ : 0);
    stream_->copy(type_ == Type::f32 ? static_cast<void*>(values.data()) : packed.data(), buffer_.data(), count_ * size_of(type_));
    stream_->wait();
    for (std::size_t i = 0; i < packed.size(); ++i) values[i] = from_bf16(packed[i]);
    return values;
  }
  void* data() const { return buffer_.data(); }
  float* f32() const { return buffer_.as<float>(); }
  std::int32_t* i32() const { return buffer_.as<std::int32_t>(); }
  std::size_t count() const { return count_; }

 private:
  Stream* stream_;
  std::size_t count_;
  Type type_;
  Buffer buffer_;
};

// Uniform in [-scale, scale], the same for the same seed everywhere.
inline std::vector<float> random_values(std::size_t count, std::uint64_t seed, float scale = 1.0f) {
  std::vector<float> values(count);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull;
  for (float& value : values) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    value = (static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f) * scale;
  }
  return values;
}
// The values as the type can hold them, so that a reference starts from the same numbers.
inline std::vector<float> rounded(std::vector<float> values, Type type) {
  if (type == Type::bf16)
    for (float& value : values) value = from_bf16(to_bf16(value));
  return values;
}
inline std::vector<double> as_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// |actual - expected| <= tolerance · max(1, largest |expected|), reporting the largest difference and where it is.
template <class Expected>
void check_close(const std::string& what, const std::vector<float>& actual, const Expected& expected, double tolerance) {
  BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
  const auto [largest, of_expected, where] = ppengine::test::largest_distance(actual, expected);
  const double magnitude = std::max(1.0, of_expected);
  const bool close = largest <= tolerance * magnitude && std::isfinite(largest);
  BOOST_CHECK_MESSAGE(close, what << ": largest difference " << largest << " at " << where << " of " << actual.size() << " (got "
                                  << (actual.empty() ? 0.f : actual[where]) << ", expected "
                                  << (actual.empty() ? 0.0 : double(expected[where])) << "), allowed " << tolerance * magnitude);
}

// The gradient of loss at x by central differences in double.
inline std::vector<double> numeric_gradient(const std::function<double(const std::vector<double>&)>& loss, std::vector<double> x,
                                            double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = loss(x);
    x[i] = at - step;
    const double below = loss(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace ppengine::ops::support
