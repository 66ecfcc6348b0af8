// Texts and launches of generated kernels: maps over strided operands, and reductions of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ppengine/ops/device/generated.hpp>

namespace ppengine::engine {

// How a kernel walks over an operand: strides by dimension of the iteration, in elements. Zero: broadcast.
struct Access {
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
  char type = 'f';  // f: float, i: int (32 bits)
};

// A kernel with its numbers. Runs on pointers in the order: inputs, outputs.
class Launch {
 public:
  Launch() = default;
  Launch(std::shared_ptr<ops::GeneratedKernels> kernels, int kernel, std::size_t groups, std::size_t size,
         const ops::KernelNumbers& numbers)
      : kernels_(std::move(kernels)), kernel_(kernel), groups_(groups), size_(size), numbers_(numbers) {}
  void operator()(ops::Stream& stream, std::vector<void*> pointers) const {
    kernels_->launch(stream, kernel_, groups_, size_, pointers, numbers_);
  }
  void operator()(ops::Stream& stream, std::vector<void*> pointers, float scalar) const {
    ops::KernelNumbers numbers = numbers_;
    numbers.f[1] = scalar;
    kernels_->launch(stream, kernel_, groups_, size_, pointers, numbers);
  }
  // Random numbers: q.n[14] is the key, q.n[15] the number of the first.
  void operator()(ops::Stream& stream, std::vector<void*> pointers, std::uint64_t key, std::int64_t first) const {
    ops::KernelNumbers numbers = numbers_;
    numbers.n[14] = static_cast<std::int64_t>(key), numbers.n[15] = first;
    kernels_->launch(stream, kernel_, groups_, size_, pointers, numbers);
  }

 private:
  std::shared_ptr<ops::GeneratedKernels> kernels_;
  int kernel_ = -1;
  std::size_t groups_ = 0, size_ = 0;
  ops::KernelNumbers numbers_;
};

using Kernels = std::shared_ptr<ops::GeneratedKernels>;

// For every point of `dims`: code reads v0, v1, ... and sets r0, r1, ... (declared). `s`: the scalar of the launch.
struct MapSpec {
  std::vector<std::int64_t> dims;
  std::vector<Access> inputs, outputs;
  std::string code;
};
Launch make_map(const Kernels& kernels, MapSpec spec);

// For every point of the kept dimensions: the reduction over all points of the reduced ones of x, which code sets from v0, v1, ...;
// times scale. Strides of inputs: kept dimensions first, then reduced ones. The output is dense.
enum class Reduction { sum, largest, smallest, product };
struct ReduceSpec {
  std::vector<std::int64_t> kept, reduced;
  std::vector<Access> inputs;
  std::string code = "const float x = v0;";
  Reduction what = Reduction::sum;
  float scale = 1.0f;
  char type = 'f';  // of the output
};
Launch make_reduce(const Kernels& kernels, ReduceSpec spec);

// A kernel with one work-item per index in [0, count): body sees `i`, the pointers p0, p1, ... and q.n[16 + k] = numbers[k].
Launch make_loop(const Kernels& kernels, std::int64_t count, int pointers, const std::string& body,
                 const std::vector<std::int64_t>& numbers);

}  // namespace ppengine::engine
