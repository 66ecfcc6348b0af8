// HostMemory: memory of the host that a GPU copies from and to by itself.
#include <ppengine/ops/device/host_memory.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops {

HostMemory::HostMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}

HostMemory::~HostMemory() {
  for (const Block& block : blocks_) sycl::free(block.data, device_->impl().context);
}

std::byte* HostMemory::take(std::size_t bytes) {
  constexpr std::size_t smallest = std::size_t{1} << 16;
  bytes = align_up(bytes);
  auto block = std::ranges::find_if(blocks_, [&](const Block& one) { return one.bytes - one.used >= bytes; });
  if (block == blocks_.end()) {
    const std::size_t size = std::max(bytes, smallest);
    void* data = sycl::aligned_alloc_host(buffer_alignment, size, device_->impl().context);
    if (!data) throw Error(fmt::format("{}: cannot pin {:.1f} MiB of the host's memory", device_->info().name, double(size) / (1 << 20)));
    blocks_.push_back({static_cast<std::byte*>(data), size, 0});
    block = blocks_.end() - 1;
  }
  std::byte* const taken = block->data + block->used;
  block->used += bytes;
  return taken;
}

void HostMemory::take_back() {
  for (Block& block : blocks_) block.used = 0;
}

}  // namespace ppengine::ops
