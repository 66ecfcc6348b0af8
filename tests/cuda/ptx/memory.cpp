// Memory that knows what was written to it.
#include "memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace ppengine::ptx {

std::size_t Region::check(std::uint64_t address, unsigned bytes, unsigned alignment, const char* what) const {
  if (address % alignment != 0) throw Fault(fmt::format("{} {} bytes at {:#x}, misaligned in {}", what, bytes, address, name_));
  const std::uint64_t offset = address - base_;
  if (address < base_ || offset + bytes > bytes_.size())
    throw Fault(
        fmt::format("{} {} bytes at byte {} of {}, which has {}", what, bytes, static_cast<std::int64_t>(offset), name_, bytes_.size()));
  return offset;
}

std::uint64_t Region::load(std::uint64_t address, unsigned bytes) const {
  const std::size_t offset = check(address, bytes, bytes, "reads");
  for (unsigned i = 0; i < bytes; ++i)
    if (!written_[offset + i]) throw Fault(fmt::format("reads {} bytes at byte {} of {}, never written", bytes, offset, name_));
  std::uint64_t value = 0;
  std::memcpy(&value, bytes_.data() + offset, bytes);
  return value;
}

void Region::store(std::uint64_t address, unsigned bytes, std::uint64_t value) {
  const std::size_t offset = check(address, bytes, bytes, "writes");
  copy_in(offset, &value, bytes);
}

void Region::copy_in(std::size_t offset, const void* from, std::size_t bytes) {
  std::memcpy(bytes_.data() + offset, from, bytes);
  std::memset(written_.data() + offset, 1, bytes);
}

void Region::grow(std::size_t bytes) {
  if (bytes <= bytes_.size()) return;
  bytes_.resize(bytes);
  written_.resize(bytes);
}

void Region::forget(std::size_t offset, std::size_t bytes) {
  std::fill_n(written_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, 0);
}

std::uint64_t GlobalMemory::allocate(std::size_t bytes, const std::string& name) {
  const std::uint64_t base = next_;
  regions_.emplace(base, Region(name, base, bytes));
  next_ += (bytes + 255) / 256 * 256 + 4096;
  return base;
}

void GlobalMemory::release(std::uint64_t address) {
  regions_.erase(address);
  last_ = nullptr;
}

Region& GlobalMemory::region(std::uint64_t address) {
  if (last_ && address - last_->base() < last_->size()) return *last_;
  auto next = regions_.upper_bound(address);
  if (next == regions_.begin()) throw Fault(fmt::format("accesses {:#x}, where nothing is allocated", address));
  return *(last_ = &std::prev(next)->second);
}

}  // namespace ppengine::ptx
