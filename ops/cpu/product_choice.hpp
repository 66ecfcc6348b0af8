// Who computes a product of f32 matrices on this CPU: cpu::gemm or oneDNN's sgemm, whichever is the faster one for the shape. Measured
// once per shape, instruction set, number of threads and model of CPU, and kept in the user's cache: ranks and later runs on this machine
// read the same answer, so that their results have the same bits.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <ppengine/ops/cpu/gemm.hpp>
#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/linear.hpp>

namespace ppengine::ops::cpu {

struct ProductChoice {
  bool ours = true;
  double ours_gflops = 0, onednn_gflops = 0;  // zero: not measured

  std::string text() const;  // "cpu: 88 GFLOP/s, oneDNN's sgemm 75"
};

// Reads and extends one file, a line per shape, under a lock. Where it cannot be written, nothing is measured and ours is used.
class ProductTable {
 public:
  explicit ProductTable(std::filesystem::path file) : file_(std::move(file)) {}
  static ProductTable& of_this_cpu();

  // Of the product only its sizes and layout count. Small ones are ours: there the cost of a call decides.
  ProductChoice choose(Stream& stream, const Gemm& product);

 private:
  void read();

  std::filesystem::path file_;
  std::mutex mutex_;
  std::map<std::string, ProductChoice> known_;
};

// Who computes the three products of a linear layer: "forward", "dX", "dW", each with the choice's text. Measures what is not yet known;
// empty where the layer is none of ops/cpu's.
std::vector<Considered> explain_products(Device& device, const LinearSpec& spec);

void multiply(Stream& stream, const Gemm& product, const ProductChoice& by);

}  // namespace ppengine::ops::cpu
