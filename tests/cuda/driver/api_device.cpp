// cuInit, devices, contexts, errors.
#include <cstdio>
#include <cstring>

#include "api.hpp"

namespace {
using namespace ppengine::standin;
bool known(int device) { return device >= 0 && device < static_cast<int>(Machine::get().devices.size()); }
}  // namespace

STANDIN_API cuInit(unsigned) { return Machine::get().devices.empty() ? no_device : success; }
STANDIN_API cuDriverGetVersion(int* version) { return *version = 13000, success; }
STANDIN_API cuDeviceGetCount(int* count) { return *count = static_cast<int>(Machine::get().devices.size()), success; }
STANDIN_API cuDeviceGet(int* device, int number) { return known(number) ? (*device = number, success) : invalid_device; }
STANDIN_API cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<std::size_t>(size), "Stand-in CUDA device %d", device);
  return success;
}
STANDIN_API cuDeviceGetUuid_v2(char* uuid, int device) {
  std::memset(uuid, 0, 16);
  uuid[0] = static_cast<char>(device + 1);
  return success;
}
STANDIN_API cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = Machine::get().memory_limit, success; }
STANDIN_API cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device + 1));
  return success;
}
STANDIN_API cuDeviceGetP2PAttribute(int* value, int, int, int) { return *value = 0, success; }

// By CUdevice_attribute: a device of sm_80 with two multiprocessors. What is not here is 0.
STANDIN_API cuDeviceGetAttribute(int* value, int attribute, int device) {
  static const std::map<int, int> values{{1, 1024},  {2, 1024},     {3, 1024},   {4, 64},       {5, 0x7fffffff}, {6, 65535}, {7, 65535},
                                         {8, 49152}, {9, 65536},    {10, 32},    {12, 65536},   {13, 1000000},   {14, 512},  {16, 2},
                                         {34, 1},    {36, 1000000}, {37, 256},   {38, 4 << 20}, {39, 2048},      {41, 1},    {75, 8},
                                         {76, 0},    {81, 102400},  {82, 65536}, {83, 1},       {89, 1},         {97, 49152}};
  if (!known(device)) return invalid_device;
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return success;
}

STANDIN_API cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!known(device)) return invalid_device;
  *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(device) + 1);
  return success;
}
STANDIN_API cuDevicePrimaryCtxRelease_v2(int) { return success; }
STANDIN_API cuCtxSetCurrent(void* context) {
  return current_device = static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1, success;
}
STANDIN_API cuCtxGetCurrent(void** context) {
  return *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(current_device + 1)), success;
}
STANDIN_API cuCtxGetDevice(int* device) { return current_device < 0 ? invalid_context : (*device = current_device, success); }
STANDIN_API cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, success; }
STANDIN_API cuCtxSynchronize() {
  if (!known(current_device)) return invalid_context;
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().finish_all(current_device);
  return Machine::get().devices[static_cast<std::size_t>(current_device)].error;
}

STANDIN_API cuGetErrorName(int error, const char** text) {
  static const std::map<int, const char*> names{{success, "CUDA_SUCCESS"},
                                                {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                {device_unavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                                                {invalid_ptx, "CUDA_ERROR_INVALID_PTX"},
                                                {not_ready, "CUDA_ERROR_NOT_READY"},
                                                {launch_failed, "CUDA_ERROR_LAUNCH_FAILED"},
                                                {not_supported, "CUDA_ERROR_NOT_SUPPORTED"}};
  const auto found = names.find(error);
  *text = found == names.end() ? "CUDA_ERROR_INVALID_VALUE" : found->second;
  return success;
}
STANDIN_API cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }
