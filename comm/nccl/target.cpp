// Where NCCL's calls are put: native commands on a SYCL queue's CUDA or HIP stream; in tests, a stream of the stand-in.
#include <dlfcn.h>
#include <fmt/core.h>
#include <sycl/ext/oneapi/backend/hip.hpp>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/lane.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::comm::nccl {
namespace {

// Work of a library's own on a SYCL queue, between what comes before and behind it. Not run on hardware yet: there was no device of NVIDIA
// or AMD where this was written.
template <sycl::backend backend>
class NativeTarget : public Target {
 public:
  explicit NativeTarget(const std::shared_ptr<ops::Device>& device) : stream_(device) {}
  std::function<bool()> run(const std::vector<ops::Event>& after, std::function<void(NativeStream)> submit, ops::Event& end) override {
    for (const ops::Event& event : after) stream_.wait_for(event);
    enqueue([submit = std::move(submit)](const sycl::interop_handle& interop) {
      submit(reinterpret_cast<NativeStream>(interop.template get_native_queue<backend>()));
    });
    end = stream_.record();
    return [event = end] { return event.done(); };
  }

 protected:
  template <class Body>
  void enqueue(Body body) {
    stream_.impl().submit([&](sycl::handler& handler) { handler.ext_codeplay_enqueue_native_command(std::move(body)); });
  }
  ops::Stream stream_;
};

class CudaTarget : public NativeTarget<sycl::backend::ext_oneapi_cuda> {
 public:
  explicit CudaTarget(const std::shared_ptr<ops::Device>& device) : NativeTarget(device) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) throw DeviceError("libcuda.so.1 does not load though there is a CUDA device");
    auto retain = reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    set_current_ = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
    const int number = static_cast<int>(sycl::get_native<sycl::backend::ext_oneapi_cuda>(device->impl().device));
    if (!retain || !set_current_ || retain(&context_, number) != 0) throw DeviceError("the CUDA driver gives no context for the device");
  }
  void enter() override { set_current_(context_); }

 private:
  void* context_ = nullptr;
  int (*set_current_)(void*) = nullptr;
};

// The wheels' headers know HIP's types, but no way from a device to its number outside of a queue's work.
class HipTarget : public NativeTarget<sycl::backend::ext_oneapi_hip> {
 public:
  explicit HipTarget(const std::shared_ptr<ops::Device>& device) : NativeTarget(device) {
    void* runtime = nullptr;
    for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"})
      if (!runtime) runtime = dlopen(name, RTLD_NOW);
    if (!runtime) throw DeviceError("libamdhip64.so does not load though there is an AMD device");
    set_device_ = reinterpret_cast<int (*)(int)>(dlsym(runtime, "hipSetDevice"));
    if (!set_device_) throw DeviceError("libamdhip64.so has no hipSetDevice");
    enqueue([this](const sycl::interop_handle& interop) {
      number_ = static_cast<int>(interop.get_native_device<sycl::backend::ext_oneapi_hip>());
    });
    stream_.wait();
  }
  void enter() override { set_device_(number_); }

 private:
  int number_ = 0;
  int (*set_device_)(int) = nullptr;
};

class StandInTarget : public Target {
 public:
  explicit StandInTarget(void* library) {
    const auto create = reinterpret_cast<void* (*)()>(dlsym(library, "standin_stream_create"));
    mark_ = reinterpret_cast<long (*)(void*)>(dlsym(library, "standin_stream_mark"));
    reached_ = reinterpret_cast<int (*)(void*, long)>(dlsym(library, "standin_stream_reached"));
    if (!create || !mark_ || !reached_) throw DeviceError("NCCL and RCCL serve devices of NVIDIA and AMD; this is another: use oneCCL");
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
  if (device && device->info().backend == "cuda") return std::make_unique<CudaTarget>(device);
  if (device && device->info().backend == "hip") return std::make_unique<HipTarget>(device);
  return std::make_unique<StandInTarget>(api.library);
}

}  // namespace ppengine::comm::nccl
