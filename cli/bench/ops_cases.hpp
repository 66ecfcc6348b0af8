// The ops that `ppengine bench ops` measures, at the shapes of the model presets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::cli {

// One microbatch of a preset.
struct BenchShape {
  const char* name;
  std::int64_t rows, width, heads, length, vocabulary;
};

struct BenchCase {
  std::string op, pass, shape, implementation;
  bool used;     // by the engine; others are measured to compare
  double bytes;  // that must be moved at least; 0: bound by arithmetic
  double flops;  // of a matmul-shaped op
  std::function<void()> run;
};

struct BenchExplained {
  std::string op;
  std::vector<ops::Considered> considered;
};

// Every case whose op is `only` (empty: all). Memory is allocated when a case is first asked for its run().
void for_each_case(ops::Stream& stream, const BenchShape& shape, const std::string& only,
                   const std::function<void(const BenchCase&)>& visit);
std::vector<BenchExplained> explain_ops(const ops::Device& device, const BenchShape& shape, const std::string& only);

}  // namespace ppengine::cli
