// NCCL found at run time.
#include <ppengine/comm/nccl/api.hpp>

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::nccl {
namespace {

constexpr int oldest = 21800;  // 2.18: bfloat16, non-blocking errors, abort that works

template <class Function>
void find(void* library, const std::string& path, const Api::Vendor& vendor, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw ConfigError(fmt::format("{} has no function {}: install {} 2.18 or newer", path, name, vendor.name));
}

}  // namespace

Api Api::load_from(const std::string& path, const Vendor& vendor) {
  Api api{};
  api.name = vendor.name;
  api.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!api.library) {
    const char* why = dlerror();
    throw ConfigError(fmt::format(
        "{} devices need {}, which does not load: {}; install it ({}) and put its folder on LD_LIBRARY_PATH, or name the file in {}",
        vendor.devices, vendor.name, why ? why : path, vendor.install, vendor.variable));
  }
#define PPENGINE_FIND(name) find(api.library, path, vendor, "nccl" #name, api.name)
  PPENGINE_FIND(GetVersion);
  int version = 0;
  api.GetVersion(&version);
  if (version < oldest)
    throw ConfigError(fmt::format("{} is {} {}.{}: 2.18 or newer is needed", path, vendor.name, version / 10000, version / 100 % 100));
  PPENGINE_FIND(GetUniqueId);
  PPENGINE_FIND(CommInitRank);
  PPENGINE_FIND(CommDestroy);
  PPENGINE_FIND(CommAbort);
  PPENGINE_FIND(CommGetAsyncError);
  PPENGINE_FIND(GetErrorString);
  PPENGINE_FIND(GroupStart);
  PPENGINE_FIND(GroupEnd);
  PPENGINE_FIND(Send);
  PPENGINE_FIND(Recv);
  PPENGINE_FIND(AllReduce);
  PPENGINE_FIND(ReduceScatter);
  PPENGINE_FIND(AllGather);
  PPENGINE_FIND(Broadcast);
#undef PPENGINE_FIND
  return api;
}

const Api& Api::load(const Vendor& vendor) {
  static std::mutex mutex;
  static std::map<std::string, Api> loaded;
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(vendor.name); found != loaded.end()) return found->second;
  const char* named = std::getenv(vendor.variable);
  return loaded.emplace(vendor.name, load_from(named ? named : vendor.file, vendor)).first->second;
}

void Api::check(Result result, const char* what) const {
  if (result != success && result != in_progress) throw Error(fmt::format("{}: {}: {}", name, what, GetErrorString(result)));
}

}  // namespace ppengine::comm::nccl
