// The gradient of max pooling on CPUs: each output's gradient goes where its largest element was found.
#include <ppengine/ops/pooling.hpp>

#include <algorithm>

#include <ppengine/ops/cpu/parallel.hpp>

namespace ppengine::ops {

void scatter_planes(Stream& stream, const float* diff_dst, const std::int32_t* where, float* diff_src, std::int64_t planes,
                    std::int64_t outputs, std::int64_t places) {
  stream.wait();
  cpu::for_parts(planes, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(places, 1)), [=](std::int64_t begin, std::int64_t end) {
    std::fill_n(diff_src + begin * places, (end - begin) * places, 0.0f);
    for (std::int64_t plane = begin; plane < end; ++plane) {
      float* const to = diff_src + plane * places;
      for (std::int64_t o = plane * outputs; o < (plane + 1) * outputs; ++o)
        if (where[o] >= 0) to[where[o]] += diff_dst[o];
    }
  });
}

}  // namespace ppengine::ops
