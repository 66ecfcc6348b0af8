// NCCL found at run time.
#include <ppengine/comm/nccl/api.hpp>

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::nccl {
namespace {

constexpr int oldest = 21800;  // 2.18: bfloat16, non-blocking errors, abort that works

template <class Function>
void find(void* library, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw ConfigError(fmt::format("{} has no function {}: install NCCL 2.18 or newer", path, name));
}

}  // namespace

Api Api::load_from(const std::string& path) {
  Api api{};
  api.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!api.library) {
    const char* why = dlerror();
    throw ConfigError(
        fmt::format("NVIDIA devices need NCCL, which does not load: {}; install it (pip install nvidia-nccl-cu13) and put its folder on "
                    "LD_LIBRARY_PATH, or name the file in PPENGINE_NCCL",
                    why ? why : path));
  }
#define PPENGINE_FIND(name) find(api.library, path, "nccl" #name, api.name)
  PPENGINE_FIND(GetVersion);
  int version = 0;
  api.GetVersion(&version);
  if (version < oldest)
    throw ConfigError(fmt::format("{} is NCCL {}.{}: 2.18 or newer is needed", path, version / 10000, version / 100 % 100));
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

const Api& Api::load() {
  static const Api api = [] {
    const char* named = std::getenv("PPENGINE_NCCL");
    return load_from(named ? named : "libnccl.so.2");
  }();
  return api;
}

void Api::check(Result result, const char* what) const {
  if (result != success && result != in_progress) throw Error(fmt::format("{}: {}: {}", name, what, GetErrorString(result)));
}

}  // namespace ppengine::comm::nccl
