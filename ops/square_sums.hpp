// Sums of squares of many ranges of one buffer, in one launch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

class SquareSums {
 public:
  struct Range {
    std::size_t begin, count;
  };
  SquareSums(const std::shared_ptr<Device>& device, std::span<const Range> ranges, MemoryCounter* counter = nullptr);

  // One sum per range, as exact as sum_squares. It depends on the range's values alone: not on what lies beside it, nor on how many ranges
  // there are. Blocks.
  const std::vector<double>& of(Stream& stream, const float* src);

 private:
  std::vector<std::size_t> range_of_;  // by chunk: a range takes several when it is long
  Buffer chunks_, partials_;
  std::vector<float> host_;
  std::vector<double> sums_;
};

}  // namespace ppengine::ops
