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
struct Numbers { long n[112]; float f[4]; };
inline float sign_of(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }
inline float logistic(float x) { return 1.0f / (1.0f + sycl::exp(-x)); }
inline float soft_plus(float x) { return x > 20.0f ? x : sycl::log1p(sycl::exp(x)); }
inline int floor_div(int a, int b) { int q = a / b; return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q; }
inline int floor_mod(int a, int b) { int r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r; }
inline float floor_div(float a, float b) { return sycl::floor(a / b); }
inline float floor_mod(float a, float b) { return a - sycl::floor(a / b) * b; }
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
  stream.impl().submit([&](sycl::handler& handler) {
    int index = 0;
    for (void* pointer : pointers) handler.set_arg(index++, pointer);
    handler.set_arg(index, numbers);
    handler.parallel_for(sycl::nd_range<1>(groups * size, size), one.kernel);
  });
}

}  // namespace ppengine::ops
