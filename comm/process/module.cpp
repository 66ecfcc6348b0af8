// Loads communicators from their shared modules.
#include <ppengine/comm/process/module.hpp>

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include <ppengine/base/error.hpp>

namespace ppengine::comm {

std::string module_path(const std::string& kind) {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&module_path), &info);
  std::string file = "ppengine_comm_" + kind + ".so";
  std::ranges::replace(file, '-', '_');
  return (std::filesystem::path(info.dli_fname ? info.dli_fname : "").parent_path() / "ppengine" / file).string();
}

namespace {

void* open_module(const std::string& kind) {
  const std::string path = module_path(kind);
  if (!std::filesystem::exists(path))
    throw ConfigError(fmt::format(
        "this ppengine was built without the {} communicator ({} is missing): use --launch threads, or build with it", kind, path));
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) {
    const char* why = dlerror();
    throw ConfigError(fmt::format("the {} communicator does not load: {}; use --launch threads, or install what is missing", kind,
                                  why ? why : "unknown reason"));
  }
  return module;  // stays loaded for the life of the process
}

}  // namespace

MakeCommunicator load_module(const std::string& kind) {
  auto* make = reinterpret_cast<MakeCommunicator>(dlsym(open_module(kind), "ppengine_make_communicator"));
  if (!make) throw ConfigError(fmt::format("{} is not a communicator of ppengine", module_path(kind)));
  return make;
}

void check_module(const std::string& kind) {
  load_module(kind);
  const auto why_not = reinterpret_cast<const char* (*)()>(dlsym(open_module(kind), "ppengine_why_not"));
  if (const char* reason = why_not ? why_not() : nullptr) throw ConfigError(reason);
}

}  // namespace ppengine::comm
