// Devices and memory of the stand-in driver.
#include "machine.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ppengine::standin {
namespace {

std::uint64_t setting(const char* name, std::uint64_t standard) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 0) : standard;
}

}  // namespace

Machine& Machine::get() {
  static auto& machine = *new Machine;  // never destroyed: the SYCL runtime releases things while the process ends
  return machine;
}

Machine::Machine()
    : memory_limit(setting("STANDIN_CUDA_MEMORY", std::uint64_t(1) << 30)),
      random(setting("STANDIN_CUDA_SEED", 1)),
      lose_at_(setting("STANDIN_CUDA_LOSE", 0)) {
  const auto count = static_cast<int>(setting("STANDIN_CUDA_DEVICES", 2));
  for (int i = 0; i < count; ++i) {
    devices.emplace_back(i);
    devices.back().streams.push_back(std::make_unique<Stream>());  // the default stream
    devices.back().streams.back()->device = i;
  }
}

int Machine::device_of(std::uint64_t address) const {
  const std::uint64_t window = address >> 40;
  return window >= 1 && window <= devices.size() ? static_cast<int>(window) - 1 : -1;
}

bool Machine::is_pinned(const void* address) const {
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const auto next = pinned.upper_bound(at);
  return next != pinned.begin() && at < std::prev(next)->first + std::prev(next)->second;
}

Result Machine::allocate(int device, std::size_t bytes, std::uint64_t& address) {
  Device& at = devices[static_cast<std::size_t>(device)];
  if (at.error != success) return at.error;
  if (bytes == 0) return invalid_value;
  if (bytes > memory_limit - at.used) return out_of_memory;
  address = at.memory.allocate(bytes, fmt::format("memory of device {}", device));
  at.allocations[address] = bytes;
  at.used += bytes;
  return success;
}

// What is under way may still use it: a real driver waits for the device.
Result Machine::release(std::uint64_t address) {
  const int device = device_of(address);
  if (device < 0) return invalid_value;
  Device& at = devices[static_cast<std::size_t>(device)];
  const auto found = at.allocations.find(address);
  if (found == at.allocations.end()) return invalid_value;
  finish_all(device);
  at.used -= found->second;
  at.allocations.erase(found);
  at.memory.release(address);
  return success;
}

void Machine::read(std::uint64_t from, void* to, std::size_t bytes) {
  const int device = device_of(from);
  if (device < 0) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return;
  }
  const ptx::Region& region = devices[static_cast<std::size_t>(device)].memory.region(from);
  std::memcpy(to, region.data() + region.check(from, static_cast<unsigned>(bytes), 1, "copies"), bytes);
}

void Machine::write(std::uint64_t to, const void* from, std::size_t bytes) {
  const int device = device_of(to);
  if (device < 0) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return;
  }
  ptx::Region& region = devices[static_cast<std::size_t>(device)].memory.region(to);
  region.copy_in(region.check(to, static_cast<unsigned>(bytes), 1, "copies to"), from, bytes);
}

void Machine::fail(int device, Result error, const std::string& why) {
  std::fprintf(stderr, "stand-in CUDA device %d: %s\n", device, why.c_str());
  devices[static_cast<std::size_t>(device)].error = error;
}

// From pageable host memory the bytes are taken at once, from pinned memory when the copy runs; to pageable memory it is waited for.
Result Machine::copy(std::uint64_t to, std::uint64_t from, std::size_t bytes, Stream& stream, bool blocking) {
  const bool pageable_source = device_of(from) < 0 && !is_pinned(reinterpret_cast<const void*>(from));
  const bool pageable_target = device_of(to) < 0 && !is_pinned(reinterpret_cast<const void*>(to));
  auto staged = std::make_shared<std::vector<std::uint8_t>>(bytes);
  if (pageable_source) read(from, staged->data(), bytes);
  submit(stream, [this, to, from, staged, pageable_source, device = stream.device] {
    try {
      if (!pageable_source) read(from, staged->data(), staged->size());
      write(to, staged->data(), staged->size());
    } catch (const ptx::Fault& fault) {
      fail(device, launch_failed, fault.what());
    }
  });
  if (blocking || pageable_target) finish(stream);
  return devices[static_cast<std::size_t>(stream.device)].error;
}

Result Machine::fill(std::uint64_t to, std::uint64_t pattern, std::size_t pattern_bytes, std::size_t count, Stream& stream) {
  submit(stream, [=, this, device = stream.device] {
    std::vector<std::uint8_t> bytes(pattern_bytes * count);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * pattern_bytes, &pattern, pattern_bytes);
    try {
      write(to, bytes.data(), bytes.size());
    } catch (const ptx::Fault& fault) {
      fail(device, launch_failed, fault.what());
    }
  });
  return devices[static_cast<std::size_t>(stream.device)].error;
}

Result Machine::launch(const Function& function, ptx::Launch launch, Stream& stream) {
  Device& device = devices[static_cast<std::size_t>(stream.device)];
  if (device.error != success) return device.error;
  if (lose_at_ > 0 && &device == &devices.back() && ++device.launches >= lose_at_) {
    fail(stream.device, device_unavailable, "lost (STANDIN_CUDA_LOSE)");
    return device.error;
  }
  launch.seed = random();
  submit(stream, [this, &function, launch = std::move(launch), number = stream.device, &device] {
    try {
      ptx::run(function.module->code, *function.kernel, device.memory, launch);
    } catch (const ptx::Fault& fault) {
      fail(number, launch_failed, fault.what());
    }
  });
  return success;
}

}  // namespace ppengine::standin
