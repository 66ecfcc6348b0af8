// A launch on the CPU device, with the same work-groups.
#include <algorithm>

#include <ppengine/ops/detail/sycl.hpp>

#include "values.hpp"

namespace ppengine::test {
namespace {

struct Shared {  // memory of the device, freed at the end
  sycl::queue& queue;
  std::vector<std::uint8_t*> buffers;
  ~Shared() {
    for (std::uint8_t* buffer : buffers) sycl::free(buffer, queue);
  }
};

void set(sycl::handler& handler, int index, const Argument& argument, void* buffer) {
  switch (argument.kind) {
    case Argument::Kind::integer32:
      return handler.set_arg(index, static_cast<std::int32_t>(argument.value));
    case Argument::Kind::integer64:
      return handler.set_arg(index, static_cast<std::int64_t>(argument.value));
    case Argument::Kind::number: {
      float value;
      std::memcpy(&value, &argument.value, sizeof value);
      return handler.set_arg(index, value);
    }
    default:
      return handler.set_arg(index, buffer);
  }
}

}  // namespace

Outcome run_on_cpu(const KernelCase& one) {
  static const auto device = ops::Device::open("cpu");
  sycl::queue queue(device->impl().context, device->impl().device);
  const Twin on_cpu = one.twin.value_or(Twin{one.file, one.kernel, one.groups, one.size});
  const ops::Kernel& kernel = device->kernels().get(on_cpu.file, on_cpu.kernel);
  Shared memory{queue, {}};
  for (const Argument& argument : one.arguments) {
    memory.buffers.push_back(argument.bytes.empty() ? nullptr : sycl::malloc_shared<std::uint8_t>(argument.bytes.size(), queue));
    if (!argument.bytes.empty()) std::memcpy(memory.buffers.back(), argument.bytes.data(), argument.bytes.size());
  }
  queue.submit([&](sycl::handler& handler) {
    for (std::size_t a = 0; a < one.arguments.size(); ++a) set(handler, static_cast<int>(a), one.arguments[a], memory.buffers[a]);
    const auto [x, y, z] = on_cpu.size;
    const std::size_t all_x = std::size_t{on_cpu.groups.x} * x, all_y = std::size_t{on_cpu.groups.y} * y;
    if (one.dimensions == 1)
      handler.parallel_for(sycl::nd_range<1>(all_x, x), kernel.kernel);
    else
      handler.parallel_for(sycl::nd_range<2>({all_y, all_x}, {y, x}), kernel.kernel);
  });
  queue.wait_and_throw();
  Outcome outcome(one.arguments.size());
  for (std::size_t a = 0; a < one.arguments.size(); ++a) {
    const Argument& argument = one.arguments[a];
    if (argument.kind != Argument::Kind::buffer) continue;
    const std::uint8_t* const bytes = memory.buffers[a];
    const std::size_t each = element_bytes(argument.element);
    // A buffer that was not written held a pattern.
    outcome[a] = values_of(argument.element, bytes, argument.bytes.size(), [&](std::size_t byte) {
      const std::uint8_t* const first = bytes + byte / each * each;
      return argument.written || std::any_of(first, first + each, [](std::uint8_t one_byte) { return one_byte != 0xaa; });
    });
  }
  return outcome;
}

}  // namespace ppengine::test
