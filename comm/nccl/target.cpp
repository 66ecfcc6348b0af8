// Where NCCL's calls are put: native commands on a SYCL queue's CUDA or HIP stream; in tests, a stream of the stand-in.
#include <dlfcn.h>
#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/lane.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::comm::nccl {
namespace {

// What makes a device the calling thread's: a CUDA context.
std::function<void()> entrance_cuda(int number) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) throw DeviceError("libcuda.so.1 does not load though there is a CUDA device");
  auto retain = reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
  auto set_current = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
  void* context = nullptr;
  if (!retain || !set_current || retain(&context, number) != 0) throw DeviceError("the CUDA driver gives no context for the device");
  return [=] { set_current(context); };
}

// And HIP's own idea of the current device.
std::function<void()> entrance_hip(int number) {
  void* runtime = dlopen("libamdhip64.so", RTLD_NOW);
  auto set_device = runtime ? reinterpret_cast<int (*)(int)>(dlsym(runtime, "hipSetDevice")) : nullptr;
  if (!set_device) throw DeviceError("libamdhip64.so does not load though there is a HIP device");
  return [=] { set_device(number); };
}

// Native commands on the queue's stream. Not run on hardware yet: there was neither an NVIDIA nor an AMD device where this was written.
template <sycl::backend backend>
class NativeTarget : public Target {
 public:
  NativeTarget(const std::shared_ptr<ops::Device>& device, std::function<void()> (*entrance)(int))
      : stream_(device), enter_(entrance(static_cast<int>(sycl::get_native<backend>(device->impl().device)))) {}
  void enter() override { enter_(); }
  std::function<bool()> run(const std::vector<ops::Event>& after, std::function<void(NativeStream)> submit, ops::Event& end) override {
    for (const ops::Event& event : after) stream_.wait_for(event);
    stream_.impl().submit([&](sycl::handler& handler) {
      handler.ext_codeplay_enqueue_native_command([submit = std::move(submit)](const sycl::interop_handle& interop) {
        submit(reinterpret_cast<NativeStream>(interop.get_native_queue<backend>()));
      });
    });
    end = stream_.record();
    return [event = end] { return event.done(); };
  }

 private:
  ops::Stream stream_;
  std::function<void()> enter_;
};

class StandInTarget : public Target {
 public:
  explicit StandInTarget(void* library) {
    const auto create = reinterpret_cast<void* (*)()>(dlsym(library, "standin_stream_create"));
    mark_ = reinterpret_cast<long (*)(void*)>(dlsym(library, "standin_stream_mark"));
    reached_ = reinterpret_cast<int (*)(void*, long)>(dlsym(library, "standin_stream_reached"));
    if (!create || !mark_ || !reached_) throw DeviceError("NCCL serves CUDA and HIP devices only; this is another: use oneCCL");
    stream_ = create();
  }
  void enter() override {}
  std::function<bool()> run(const std::vector<ops::Event>& after, std::function<void(NativeStream)> submit, ops::Event&) override {
    for (const ops::Event& event : after) event.wait();
    submit(stream_);
    return [stream = stream_, mark = mark_(stream_), reached = reached_] { return reached(stream, mark) != 0; };
  }

 private:
  void* stream_;
  long (*mark_)(void*);
  int (*reached_)(void*, long);
};

}  // namespace

std::unique_ptr<Target> make_target(const Api& api, const std::shared_ptr<ops::Device>& device) {
  if (device && device->info().backend == "cuda")
    return std::make_unique<NativeTarget<sycl::backend::ext_oneapi_cuda>>(device, entrance_cuda);
  if (device && device->info().backend == "hip") return std::make_unique<NativeTarget<sycl::backend::ext_oneapi_hip>>(device, entrance_hip);
  return std::make_unique<StandInTarget>(api.library);
}

}  // namespace ppengine::comm::nccl
