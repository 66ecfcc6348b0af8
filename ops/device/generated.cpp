// Generated kernels: one bundle per stage.
#include <ppengine/ops/device/generated.hpp>

#include <fmt/core.h>

#include <chrono>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops {
namespace {

constexpr const char* prelude = R"(#include "common.hpp"
#include "philox.hpp"
struct Numbers { long n[112]; float f[4]; };
inline float sign_of(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }
inline float logistic(float x) { return 1.0f / (1.0f + sycl::exp(-x)); }
inline float soft_plus(float x) { return x > 20.0f ? x : sycl::log1p(sycl::exp(x)); }
inline int floor_div(int a, int b) { int q = a / b; return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q; }
inline int floor_mod(int a, int b) { int r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r; }
inline float floor_div(float a, float b) { return sycl::floor(a / b); }
inline float floor_mod(float a, float b) { return a - sycl::floor(a / b) * b; }
// From Giles, "Approximating the erfinv function", in single precision.
inline float inverse_erf(float x) {
  float w = -sycl::log((1.0f - x) * (1.0f + x)), p;
  if (w < 5.0f) {
    w -= 2.5f; p = 2.81022636e-08f; p = 3.43273939e-07f + p * w; p = -3.5233877e-06f + p * w; p = -4.39150654e-06f + p * w;
    p = 0.00021858087f + p * w; p = -0.00125372503f + p * w; p = -0.00417768164f + p * w; p = 0.246640727f + p * w; p = 1.50140941f + p * w;
  } else {
    w = sycl::sqrt(w) - 3.0f; p = -0.000200214257f; p = 0.000100950558f + p * w; p = 0.00134934322f + p * w; p = -0.00367342844f + p * w;
    p = 0.00573950773f + p * w; p = -0.0076224613f + p * w; p = 0.00943887047f + p * w; p = 1.00167406f + p * w; p = 2.83297682f + p * w;
  }
  return p * x;
}
// Recurrence up to where the asymptotic series is exact enough; below zero by reflection.
inline float digamma_of(float x) {
  float sum = 0.0f;
  if (x < 0.0f) { sum = -3.14159265f / sycl::tan(3.14159265f * x); x = 1.0f - x; }
  for (; x < 8.0f; x += 1.0f) sum -= 1.0f / x;
  const float r = 1.0f / (x * x);
  return sum + sycl::log(x) - 0.5f / x - r * (0.0833333333f - r * (0.00833333333f - r * (0.00396825397f - r * 0.00416666667f)));
}
inline float trigamma_of(float x) {
  float sum = 0.0f;
  for (; x < 8.0f; x += 1.0f) sum += 1.0f / (x * x);
  const float r = 1.0f / (x * x);
  return sum + 1.0f / x + 0.5f * r + r / x * (0.166666667f - r * (0.0333333333f - r * (0.0238095238f - r * 0.0333333333f)));
}
// A coordinate thrown back at low and low + span until it lies between them, and the sign of its slope.
inline float reflected(float x, float low, float span) {
  const float away = sycl::fabs(x - low), turns = sycl::floor(away / span), rest = away - turns * span;
  return ((int)turns & 1) ? span - rest + low : rest + low;
}
inline float reflected_slope(float x, float low, float span) {
  return ((int)sycl::floor(sycl::fabs(x - low) / span) & 1 ? -1.0f : 1.0f) * (x < low ? -1.0f : 1.0f);
}
// Cubic convolution with a = -0.75, and its slope.
inline float cubic(float x) {
  const float d = sycl::fabs(x);
  return d <= 1.0f ? (1.25f * d - 2.25f) * d * d + 1.0f : ((-0.75f * d + 3.75f) * d - 6.0f) * d + 3.0f;
}
inline float cubic_slope(float x) {
  const float d = sycl::fabs(x);
  return sign_of(x) * (d <= 1.0f ? (3.75f * d - 4.5f) * d : (-2.25f * d + 7.5f) * d - 6.0f);
}
inline int int_power(int a, int b) { int r = 1; for (int i = 0; i < b; ++i) r *= a; return r; }
)";

}  // namespace

int GeneratedKernels::add(const std::string& text) {
  const auto [found, fresh] = index_.try_emplace(text, static_cast<int>(texts_.size()));
  if (fresh) texts_.push_back(text);
  return found->second;
}

void GeneratedKernels::build() {
  if (kernels_.size() == texts_.size()) return;
  std::string source = prelude;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    std::string text = texts_[i];
    const std::size_t at = text.find("NAME");
    PPENGINE_ASSERT(at != std::string::npos);
    source += text.replace(at, 4, fmt::format("generated_{}", i)) + "\n";
  }
  const auto begin = std::chrono::steady_clock::now();
  KernelLibrary& library = device_.kernels();
  kernels_.clear();
  for (std::size_t i = 0; i < texts_.size(); ++i) kernels_.push_back(&library.get(source, fmt::format("generated_{}", i)));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (took.count() > 1.0) log::info(fmt::format("{} generated kernels compiled in {:.1f} s", texts_.size(), took.count()));
}

void GeneratedKernels::launch(Stream& stream, int kernel, std::size_t groups, std::size_t size, std::span<void* const> pointers,
                              const KernelNumbers& numbers) const {
  if (groups == 0) return;
  const Kernel& one = *kernels_[static_cast<std::size_t>(kernel)];
  ++stream.device().impl().launches;
  stream.impl().submit([&](sycl::handler& handler) {
    int index = 0;
    for (void* pointer : pointers) handler.set_arg(index++, pointer);
    handler.set_arg(index, numbers);
    handler.parallel_for(sycl::nd_range<1>(groups * size, size), one.kernel);
  });
}

}  // namespace ppengine::ops
