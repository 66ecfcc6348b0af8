// Parts of an op's work, dealt out to the threads that oneDNN and the OpenCL runtime use too.
#pragma once

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>

#include <ppengine/ops/detail/divide_up.hpp>

namespace ppengine::ops::cpu {

// body(begin, end) for parts of [0, total) of `size` each.
template <class Body>
void for_parts(std::int64_t total, std::int64_t size, const Body& body) {
  if (total <= size) return total > 0 ? body(std::int64_t{0}, total) : void();
  oneapi::tbb::parallel_for(
      std::int64_t{0}, divide_up(total, size), [&](std::int64_t part) { body(part * size, std::min((part + 1) * size, total)); },
      oneapi::tbb::simple_partitioner{});
}

}  // namespace ppengine::ops::cpu
