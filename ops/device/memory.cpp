// Device memory: buffers with an owner, counted.
#include <ppengine/ops/device/memory.hpp>

#include <fmt/core.h>
#include <sys/mman.h>

#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops {

void MemoryCounter::add(std::size_t bytes) {
  const std::size_t now = bytes_ += bytes;
  for (std::size_t seen = peak_; now > seen && !peak_.compare_exchange_weak(seen, now);) {
  }
  ++allocations_;
  if (parent_) parent_->add(bytes);
}

void MemoryCounter::remove(std::size_t bytes) {
  bytes_ -= bytes;
  if (parent_) parent_->remove(bytes);
}

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

// Weights are read with long strides, where small pages cost a page walk every few lines. Whole huge pages only, before the first touch;
// where the system has none, this does nothing.
void want_huge_pages(void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t before = align_up(address, huge_page) - address;
  if (before + huge_page > bytes) return;
  madvise(static_cast<std::byte*>(data) + before, (bytes - before) / huge_page * huge_page, MADV_HUGEPAGE);
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Device> device, std::size_t bytes, MemoryCounter* counter)
    : device_(std::move(device)), bytes_(bytes), counter_(counter) {
  if (bytes == 0) return;
  const auto& impl = device_->impl();
  data_ = sycl::aligned_alloc_device(buffer_alignment, bytes, impl.device, impl.context);
  if (!data_)
    throw Error(
        fmt::format("{}: cannot allocate {:.1f} MiB, {:.1f} MiB are in use; use more ranks, more stages, smaller or fewer "
                    "microbatches, or --recompute",
                    device_->info().name, double(bytes) / (1 << 20), double(device_->memory().bytes()) / (1 << 20)));
  if (device_->info().is_cpu) want_huge_pages(data_, bytes);
  device_->memory().add(bytes);
  if (counter_) counter_->add(bytes);
}

Buffer::~Buffer() {
  if (!data_) return;
  sycl::free(data_, device_->impl().context);
  device_->memory().remove(bytes_);
  if (counter_) counter_->remove(bytes_);
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(counter_, other.counter_);
}

}  // namespace ppengine::ops
