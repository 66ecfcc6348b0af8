// A launch over the interpreter.
#include "../ptx/launch.hpp"
#include "values.hpp"

namespace ppengine::test {

Outcome run_on_interpreter(const KernelCase& one, const ptx::Module& module, std::uint64_t seed) {
  ptx::GlobalMemory memory;
  ptx::Launch launch{one.groups, one.size, {}, seed};
  for (std::size_t a = 0; a < one.arguments.size(); ++a) {
    const Argument& argument = one.arguments[a];
    if (argument.kind != Argument::Kind::buffer) {
      launch.arguments.push_back(argument.value);
      continue;
    }
    const std::uint64_t at = memory.allocate(argument.bytes.size(), "argument " + std::to_string(a));
    if (argument.written) memory.region(at).copy_in(0, argument.bytes.data(), argument.bytes.size());
    launch.arguments.push_back(at);
  }
  ptx::run(module, module.kernel(one.kernel), memory, launch);
  Outcome outcome(one.arguments.size());
  for (std::size_t a = 0; a < one.arguments.size(); ++a) {
    if (one.arguments[a].kind != Argument::Kind::buffer) continue;
    const ptx::Region& region = memory.region(launch.arguments[a]);
    outcome[a] = values_of(one.arguments[a].element, region.data(), region.size(), [&](std::size_t byte) { return region.written(byte); });
  }
  return outcome;
}

}  // namespace ppengine::test
