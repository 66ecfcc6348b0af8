// A stand-in libnvidia-ml.so.1: it starts, and knows nothing of any device.
#define STANDIN_NVML extern "C" [[gnu::visibility("default")]] int
namespace {
constexpr int not_supported = 3;
}
STANDIN_NVML nvmlInit_v2() { return 0; }
STANDIN_NVML nvmlShutdown() { return 0; }
STANDIN_NVML nvmlDeviceGetHandleByIndex_v2() { return not_supported; }
STANDIN_NVML nvmlDeviceGetCurrentClocksEventReasons() { return not_supported; }
STANDIN_NVML nvmlDeviceGetFanSpeed() { return not_supported; }
STANDIN_NVML nvmlDeviceGetPowerManagementLimit() { return not_supported; }
STANDIN_NVML nvmlDeviceGetPowerManagementLimitConstraints() { return not_supported; }
extern "C" [[gnu::visibility("default")]] const char* nvmlErrorString(int) { return "not supported by the stand-in"; }
