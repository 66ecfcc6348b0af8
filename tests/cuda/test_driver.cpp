// The stand-in for NVIDIA's driver: work runs when it is waited for, in an order that the rules allow; devices have memories apart.
#include <boost/test/unit_test.hpp>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "opcodes.hpp"

namespace {

// The functions of libcuda.so.1, loaded as a program would; two devices with 1 MiB.
class Driver {
 public:
  Driver() {
    setenv("STANDIN_CUDA_MEMORY", "1048576", 1);
    library_ = dlopen(PPENGINE_STANDIN_CUDA, RTLD_NOW | RTLD_LOCAL);
    BOOST_TEST_REQUIRE(library_ != nullptr, dlerror());
  }
  template <class... Arguments>
  int operator()(const char* name, Arguments... arguments) const {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    BOOST_TEST_REQUIRE((function != nullptr), name);
    return function(arguments...);
  }

 private:
  void* library_;
};

using Address = std::uint64_t;
constexpr int success = 0, out_of_memory = 2, not_ready = 600, launch_failed = 719;

struct Fixture {
  Driver cuda;
  void* stream = nullptr;
  Fixture() {
    BOOST_TEST(cuda("cuInit", 0u) == success);
    enter(0);
    BOOST_TEST(cuda("cuStreamCreate", &stream, 0u) == success);
  }
  void enter(int device) {
    void* context = nullptr;
    BOOST_TEST(cuda("cuDevicePrimaryCtxRetain", &context, device) == success);
    BOOST_TEST(cuda("cuCtxSetCurrent", context) == success);
  }
  Address allocate(std::size_t bytes) {
    Address address = 0;
    BOOST_TEST(cuda("cuMemAlloc_v2", &address, bytes) == success);
    return address;
  }
  void* kernel(const std::string& file, const std::string& name) {
    const std::string text = ppengine::test::kernel_ptx(file);
    void *module = nullptr, *function = nullptr;
    BOOST_TEST(cuda("cuModuleLoadDataEx", &module, static_cast<const void*>(text.c_str()), 0u, static_cast<void*>(nullptr),
                    static_cast<void**>(nullptr)) == success);
    BOOST_TEST(cuda("cuModuleGetFunction", &function, module, ("__sycl_kernel_" + name).c_str()) == success);
    return function;
  }
  // data[i] *= factor for `count` floats, with kernels/elementwise.cpp.
  int scale(Address data, float factor, std::int64_t count, void* on) {
    std::int64_t chunk = count;
    std::array<void*, 4> arguments{&data, &factor, &count, &chunk};
    return cuda("cuLaunchKernel", kernel("elementwise", "scale_f32"), 1u, 1u, 1u, 32u, 1u, 1u, 0u, on, arguments.data(),
                static_cast<void**>(nullptr));
  }
  std::vector<float> read(Address data, std::size_t count, void* on) {
    std::vector<float> values(count);
    BOOST_TEST(cuda("cuMemcpyDtoHAsync_v2", static_cast<void*>(values.data()), data, count * 4, on) == success);
    return values;
  }
  int upload(Address data, const std::vector<float>& values, void* on) {
    return cuda("cuMemcpyHtoDAsync_v2", data, static_cast<const void*>(values.data()), values.size() * 4, on);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(driver, Fixture, *boost::unit_test::precondition(ppengine::test::has_ptx))

BOOST_AUTO_TEST_CASE(work_runs_when_it_is_waited_for) {
  const Address data = allocate(16);
  float* pinned = nullptr;
  BOOST_TEST(cuda("cuMemHostAlloc", reinterpret_cast<void**>(&pinned), std::size_t{16}, 0u) == success);
  BOOST_TEST(upload(data, {1, 2, 3, 4}, stream) == success);
  BOOST_TEST(scale(data, 2, 4, stream) == success);
  pinned[3] = -1;
  BOOST_TEST(cuda("cuMemcpyDtoHAsync_v2", static_cast<void*>(pinned), data, std::size_t{16}, stream) == success);
  BOOST_TEST(pinned[3] == -1);  // not yet
  BOOST_TEST(cuda("cuStreamQuery", stream) == not_ready);
  BOOST_TEST(cuda("cuStreamSynchronize", stream) == success);
  BOOST_TEST(pinned[3] == 8);
  BOOST_TEST(cuda("cuStreamQuery", stream) == success);
  BOOST_TEST(cuda("cuMemFreeHost", static_cast<void*>(pinned)) == success);
}

BOOST_AUTO_TEST_CASE(streams_are_ordered_by_events_alone) {
  const Address data = allocate(16);
  void *other = nullptr, *event = nullptr;
  BOOST_TEST(cuda("cuStreamCreate", &other, 0u) == success);
  BOOST_TEST(cuda("cuEventCreate", &event, 0u) == success);
  BOOST_TEST(upload(data, {1, 1, 1, 1}, stream) == success);
  BOOST_TEST(cuda("cuStreamSynchronize", stream) == success);
  BOOST_TEST(scale(data, 3, 4, stream) == success);
  // Without an event the other stream does not see it, since nobody has waited for this one.
  BOOST_TEST(read(data, 4, other)[0] == 1);
  BOOST_TEST(cuda("cuEventRecord", event, stream) == success);
  BOOST_TEST(cuda("cuEventQuery", event) == not_ready);
  BOOST_TEST(cuda("cuStreamWaitEvent", other, event, 0u) == success);
  BOOST_TEST(read(data, 4, other)[0] == 3);
  BOOST_TEST(cuda("cuEventQuery", event) == success);
}

BOOST_AUTO_TEST_CASE(memory_is_limited_and_each_devices_own) {
  Address address = 0;
  BOOST_TEST(cuda("cuMemAlloc_v2", &address, std::size_t{2} << 20) == out_of_memory);
  std::size_t before = 0, during = 0, after = 0, total = 0;
  BOOST_TEST(cuda("cuMemGetInfo_v2", &before, &total) == success);
  address = allocate(4096);
  BOOST_TEST(cuda("cuMemGetInfo_v2", &during, &total) == success);
  BOOST_TEST(cuda("cuMemFree_v2", address) == success);
  BOOST_TEST(cuda("cuMemGetInfo_v2", &after, &total) == success);
  BOOST_TEST(before - during == 4096u);
  BOOST_TEST(after == before);
}

// Last: an error stays with its device, as with a real driver.
BOOST_AUTO_TEST_CASE(a_kernel_that_touches_another_devices_memory_fails_and_the_device_with_it) {
  const Address mine = allocate(16);
  BOOST_TEST(upload(mine, {1, 2, 3, 4}, stream) == success);
  BOOST_TEST(cuda("cuCtxSynchronize") == success);
  enter(1);
  void* there = nullptr;
  BOOST_TEST(cuda("cuStreamCreate", &there, 0u) == success);
  BOOST_TEST(scale(mine, 2, 4, there) == success);  // a launch is only submitted
  BOOST_TEST(cuda("cuStreamSynchronize", there) == launch_failed);
  Address more = 0;
  BOOST_TEST(cuda("cuMemAlloc_v2", &more, std::size_t{16}) == launch_failed);
  enter(0);
  BOOST_TEST(read(mine, 4, stream)[1] == 2);
}

BOOST_AUTO_TEST_SUITE_END()
