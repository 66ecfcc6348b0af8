// Modules of PTX, their kernels, launches.
#include <cstdio>
#include <cstring>
#include <exception>

#include "api.hpp"

namespace {
using namespace ppengine::standin;

int launch(const Function& function, ppengine::ptx::Size3 groups, ppengine::ptx::Size3 size, void* stream, void** arguments) {
  ppengine::ptx::Launch made;
  made.groups = groups;
  made.size = size;
  // Arguments are taken now: the caller may change them at once.
  for (std::size_t i = 0; i < function.kernel->parameters.size(); ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, arguments[i], std::min<std::size_t>(function.kernel->parameters[i].bytes, sizeof value));
    made.arguments.push_back(value);
  }
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().launch(function, std::move(made), stream_of(stream));
}

}  // namespace

STANDIN_API cuModuleLoadDataEx(void** module, const void* image, unsigned, void*, void**) {
  try {
    *module = new Module{ppengine::ptx::Module::parse(static_cast<const char*>(image))};
    return success;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "stand-in CUDA: %s\n", e.what());
    return invalid_ptx;
  }
}
STANDIN_API cuModuleUnload(void*) { return success; }  // launches that are under way still need it
STANDIN_API cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto& functions = static_cast<Module*>(module)->code.functions;
  const auto found = functions.find(std::string_view(name));
  if (found == functions.end() || !found->second->entry) return not_found;
  return *function = new Function{static_cast<Module*>(module), found->second.get()}, success;
}
STANDIN_API cuModuleGetGlobal_v2(std::uint64_t*, std::size_t*, void*, const char*) { return not_found; }
// By CUfunction_attribute: 0 threads of a block at most, 4 registers.
STANDIN_API cuFuncGetAttribute(int* value, int attribute, void*) {
  return *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0, success;
}
STANDIN_API cuFuncSetAttribute(void*, int, int) { return success; }
STANDIN_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, std::size_t) { return *blocks = 1, success; }

STANDIN_API cuLaunchKernel(void* function, unsigned groups_x, unsigned groups_y, unsigned groups_z, unsigned size_x, unsigned size_y,
                           unsigned size_z, unsigned, void* stream, void** arguments, void**) {
  return launch(*static_cast<Function*>(function), {groups_x, groups_y, groups_z}, {size_x, size_y, size_z}, stream, arguments);
}
