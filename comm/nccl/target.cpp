// Where NCCL's calls are put: native commands on a SYCL queue's CUDA stream; in tests, a stream of the stand-in.
#include <dlfcn.h>
#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/lane.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::comm::nccl {
namespace {

// Not run on hardware yet: there was no NVIDIA device where this was written.
class CudaTarget : public Target {
 public:
  explicit CudaTarget(const std::shared_ptr<ops::Device>& device) : stream_(device) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) throw DeviceError("libcuda.so.1 does not load though there is a CUDA device");
    auto retain = reinterpret_cast<int (*)(void**, int)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    set_current_ = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
    const int number = static_cast<int>(sycl::get_native<sycl::backend::ext_oneapi_cuda>(device->impl().device));
    if (!retain || !set_current_ || retain(&context_, number) != 0) throw DeviceError("the CUDA driver gives no context for the device");
  }
  void enter() override { set_current_(context_); }
  std::function<bool()> run(const std::vector<ops::Event>& after, std::function<void(NativeStream)> submit, ops::Event& end) override {
    for (const ops::Event& event : after) stream_.wait_for(event);
    stream_.impl().submit([&](sycl::handler& handler) {
      handler.ext_codeplay_enqueue_native_command([submit = std::move(submit)](const sycl::interop_handle& interop) {
        submit(reinterpret_cast<NativeStream>(interop.get_native_queue<sycl::backend::ext_oneapi_cuda>()));
      });
    });
    end = stream_.record();
    return [event = end] { return event.done(); };
  }

 private:
  ops::Stream stream_;
  void* context_ = nullptr;
  int (*set_current_)(void*) = nullptr;
};

class StandInTarget : public Target {
 public:
  explicit StandInTarget(void* library) {
    const auto create = reinterpret_cast<void* (*)()>(dlsym(library, "standin_stream_create"));
    mark_ = reinterpret_cast<long (*)(void*)>(dlsym(library, "standin_stream_mark"));
    reached_ = reinterpret_cast<int (*)(void*, long)>(dlsym(library, "standin_stream_reached"));
    if (!create || !mark_ || !reached_) throw DeviceError("NCCL serves CUDA devices only; this is another: use oneCCL");
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
  return std::make_unique<StandInTarget>(api.library);
}

}  // namespace ppengine::comm::nccl
