// Sums of squares: a work-group adds up a chunk of a range, the host the chunks.
#include <ppengine/ops/square_sums.hpp>

#include <algorithm>

#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/device/kernel_table.hpp>

namespace ppengine::ops {
namespace {

constexpr std::size_t chunk = 65536;  // the same on all devices and for all ranges: it decides the order of additions

}  // namespace

SquareSums::SquareSums(const std::shared_ptr<Device>& device, std::span<const Range> ranges, MemoryCounter* counter)
    : sums_(ranges.size()) {
  std::vector<std::int64_t> bounds;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    for (std::size_t done = 0; done < ranges[i].count; done += chunk) {
      bounds.push_back(static_cast<std::int64_t>(ranges[i].begin + done));
      bounds.push_back(static_cast<std::int64_t>(ranges[i].begin + std::min(done + chunk, ranges[i].count)));
      range_of_.push_back(i);
    }
  if (bounds.empty()) return;
  chunks_ = Buffer(device, bounds.size() * sizeof(std::int64_t), counter);
  partials_ = Buffer(device, partial_sums_bytes(range_of_.size()), counter);
  host_.resize(partials_.bytes() / sizeof(float));
  Stream stream(device);
  stream.copy(chunks_.data(), bounds.data(), chunks_.bytes());
  stream.wait();
}

const std::vector<double>& SquareSums::of(Stream& stream, const float* src) {
  std::ranges::fill(sums_, 0.0);
  if (range_of_.empty()) return sums_;
  plain_kernel(stream.device(), PlainKernel::sum_squares_chunks)
      .launch(stream, range_of_.size(), reduction_group(stream.device()), src, chunks_.as<const std::int64_t>(), partials_.as<float>());
  stream.copy(host_.data(), partials_.data(), partials_.bytes());
  stream.wait();
  const std::size_t per_chunk = static_cast<std::size_t>(host_[0]) / range_of_.size();
  const float* pair = host_.data() + 2;
  for (const std::size_t range : range_of_)
    for (std::size_t i = 0; i < per_chunk; ++i, pair += 2) sums_[range] += double(pair[0]) + double(pair[1]);
  return sums_;
}

}  // namespace ppengine::ops
