// Memory of devices, pinned host memory, copies and fills. Kernels cannot reach host memory here.
#include <cstdlib>

#include "api.hpp"

namespace {
using namespace ppengine::standin;

int free_host(void* memory) {
  const std::lock_guard lock(Machine::get().mutex);
  if (Machine::get().pinned.erase(reinterpret_cast<std::uint64_t>(memory)) == 0) return invalid_value;
  std::free(memory);
  return success;
}
int copy(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream, bool blocking) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().copy(to, from, bytes, stream_of(stream), blocking);
}
int fill(std::uint64_t to, std::uint64_t pattern, std::size_t bytes, std::size_t count, void* stream) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().fill(to, pattern, bytes, count, stream_of(stream));
}
std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }
}  // namespace

STANDIN_API cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  if (current_device < 0) return invalid_context;
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().allocate(current_device, bytes, *address);
}
STANDIN_API cuMemFree_v2(std::uint64_t address) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().release(address);
}
STANDIN_API cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*memory) return out_of_memory;
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().pinned[number(*memory)] = bytes;
  return success;
}
STANDIN_API cuMemFreeHost(void* memory) { return free_host(memory); }
STANDIN_API cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  if (current_device < 0) return invalid_context;
  const std::lock_guard lock(Machine::get().mutex);
  *total = Machine::get().memory_limit;
  *free_bytes = *total - Machine::get().devices[static_cast<std::size_t>(current_device)].used;
  return success;
}

// By CUpointer_attribute: 1 context, 2 memory type (1 host, 2 device), 8 managed, 9 device, 11 start, 12 size.
STANDIN_API cuPointerGetAttribute(void* data, int attribute, std::uint64_t address) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const int device = machine.device_of(address);
  if (device < 0 && !machine.is_pinned(reinterpret_cast<const void*>(address))) return invalid_value;
  const auto& all = device < 0 ? machine.pinned : machine.devices[static_cast<std::size_t>(device)].allocations;
  const auto next = all.upper_bound(address);
  if (next == all.begin()) return invalid_value;
  const auto [start, size] = *std::prev(next);
  switch (attribute) {
    case 1:
      return *static_cast<std::uint64_t*>(data) = static_cast<std::uint64_t>(std::max(device, 0)) + 1, success;
    case 2:
      return *static_cast<unsigned*>(data) = device < 0 ? 1 : 2, success;
    case 8:
      return *static_cast<unsigned*>(data) = 0, success;
    case 9:
      return *static_cast<int*>(data) = std::max(device, 0), success;
    case 11:
      return *static_cast<std::uint64_t*>(data) = start, success;
    case 12:
      return *static_cast<std::size_t*>(data) = size, success;
    default:
      return invalid_value;
  }
}

STANDIN_API cuMemcpy(std::uint64_t to, std::uint64_t from, std::size_t bytes) { return copy(to, from, bytes, nullptr, true); }
STANDIN_API cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) { return copy(to, number(from), bytes, nullptr, true); }
STANDIN_API cuMemcpyAsync(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  return copy(to, from, bytes, stream, false);
}
STANDIN_API cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  return copy(to, from, bytes, stream, false);
}
STANDIN_API cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  return copy(to, number(from), bytes, stream, false);
}
STANDIN_API cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  return copy(number(to), from, bytes, stream, false);
}
STANDIN_API cuMemsetD8Async(std::uint64_t to, unsigned char value, std::size_t count, void* stream) {
  return fill(to, value, 1, count, stream);
}
STANDIN_API cuMemsetD16Async(std::uint64_t to, unsigned short value, std::size_t count, void* stream) {
  return fill(to, value, 2, count, stream);
}
STANDIN_API cuMemsetD32Async(std::uint64_t to, unsigned value, std::size_t count, void* stream) {
  return fill(to, value, 4, count, stream);
}
STANDIN_API cuMemHostRegister_v2(void*, std::size_t, unsigned) { return success; }
STANDIN_API cuMemHostUnregister(void*) { return success; }
