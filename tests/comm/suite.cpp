// What the cases share: checks that throw, memory with contents.
#include "suite.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <stdexcept>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::suite {

void fail(const char* condition, int line, const std::string& detail) {
  throw std::logic_error(fmt::format("line {}: {} does not hold: {}", line, condition, detail));
}

CommError expect_comm_error(const std::function<void()>& action, int line) {
  try {
    action();
  } catch (const CommError& error) {
    return error;
  }
  fail("a CommError is thrown", line, "nothing was thrown");
}

void* map_memory(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  SUITE_CHECK(memory != MAP_FAILED, "no memory");
  return memory;
}

Memory::Memory(const Place& place, std::size_t bytes) : place_(place) {
  if (place.device) buffer_ = ops::Buffer(place.device, bytes);
  host_.resize(bytes);
}

void Memory::fill(const std::vector<std::uint8_t>& contents) {
  host_ = contents;
  if (place_.stream) place_.stream->copy(buffer_.data(), host_.data(), host_.size());
}

std::vector<std::uint8_t> Memory::read() {
  if (!place_.stream) return host_;
  std::vector<std::uint8_t> contents(host_.size());
  place_.stream->copy(contents.data(), buffer_.data(), contents.size());
  place_.stream->wait();
  return contents;
}

std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::uint8_t> contents(bytes);
  std::uint32_t x = seed * 2654435761u + 1;
  for (auto& byte : contents) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(x >> 24);
  }
  return contents;
}

}  // namespace ppengine::comm::suite
