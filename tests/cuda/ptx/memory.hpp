// Memory that knows what was written to it: reads of anything else, accesses out of bounds or misaligned are faults.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ppengine::ptx {

// An access that a device would not carry out, or whose result is nothing to rely on. The text says what; whoever runs the thread adds
// where.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Region {
 public:
  Region() = default;
  Region(std::string name, std::uint64_t base, std::size_t bytes) : name_(std::move(name)), base_(base), bytes_(bytes), written_(bytes) {}

  std::uint64_t base() const { return base_; }
  std::size_t size() const { return bytes_.size(); }
  std::uint64_t load(std::uint64_t address, unsigned bytes) const;
  void store(std::uint64_t address, unsigned bytes, std::uint64_t value);
  // Throws where this is not inside, or `address` is no multiple of `alignment`.
  std::size_t check(std::uint64_t address, unsigned bytes, unsigned alignment, const char* what) const;
  void copy_in(std::size_t offset, const void* from, std::size_t bytes);
  void grow(std::size_t bytes);                        // at least so many
  void forget(std::size_t offset, std::size_t bytes);  // as never written
  const std::uint8_t* data() const { return bytes_.data(); }
  bool written(std::size_t offset) const { return written_[offset] != 0; }

 private:
  std::string name_;
  std::uint64_t base_ = 0;
  std::vector<std::uint8_t> bytes_, written_;
};

// A device's memory: allocations with gaps between them, none of which is ever reused.
class GlobalMemory {
 public:
  explicit GlobalMemory(std::uint64_t first = 0x10'0000'0000) : next_(first) {}
  // 256-byte aligned, never written; `name` is for messages.
  std::uint64_t allocate(std::size_t bytes, const std::string& name);
  void release(std::uint64_t address);    // of an allocation
  Region& region(std::uint64_t address);  // Fault where there is no allocation

 private:
  std::map<std::uint64_t, Region> regions_;
  std::uint64_t next_;
  Region* last_ = nullptr;
};

}  // namespace ppengine::ptx
