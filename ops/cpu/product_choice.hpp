// Who computes a product of f32 matrices on this CPU: cpu::gemm or oneDNN's sgemm, whichever is the faster one for the shape. Measured
// once per shape, instruction set, number of threads and model of CPU, and kept in the user's cache: ranks and later runs on this machine
// read the same answer, so that their results have the same bits. A machine that is too busy for two tries to agree gets ours for now, and
// a later run measures again.
#pragma once

#include <ctime>
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
  std::time_t busy_at = 0;                    // when the machine was too busy to say; 0: it was not

  std::string text() const;  // "cpu: 88 GFLOP/s, oneDNN's sgemm 75"
};

// The best of several tries, which others may have disturbed: only when a second one comes near it has the machine shown what it can do.
class BestRate {
 public:
  void add(double rate);
  double best() const { return best_; }
  bool steady() const { return second_ > 0.95 * best_; }

 private:
  double best_ = 0, second_ = 0;
};

// Reads and extends one file, a line per shape, under a lock. Where it cannot be written, nothing is measured and ours is used.
class ProductTable {
 public:
  explicit ProductTable(std::filesystem::path file) : file_(std::move(file)) {}
  static ProductTable& of_this_cpu();

  // Of the product only its sizes and layout count. Small ones are ours: there the cost of a call decides.
  ProductChoice choose(Stream& stream, const Gemm& product);
  const std::filesystem::path& file() const { return file_; }

 private:
  void read();
  bool counts(const ProductChoice& choice) const;           // not one of a busy machine, long ago
  const ProductChoice* find(const std::string& key) const;  // null: to be measured

  std::filesystem::path file_;
  std::time_t started_ = std::time(nullptr);
  std::mutex mutex_;
  std::map<std::string, ProductChoice> known_;
};

// Who computes the three products of a linear layer: "forward", "dX", "dW", each with the choice's text. Measures what is not yet known;
// empty where the layer is none of ops/cpu's.
std::vector<Considered> explain_products(Device& device, const LinearSpec& spec);

void multiply(Stream& stream, const Gemm& product, const ProductChoice& by);

}  // namespace ppengine::ops::cpu
