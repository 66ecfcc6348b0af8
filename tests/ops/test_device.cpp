// Devices, streams and memory: order of submission holds, bytes are counted, an unknown device is refused.
#include <boost/test/unit_test.hpp>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/ops/device/kernel_library.hpp>
#include <ppengine/ops/device/nvidia.hpp>
#include <ppengine/ops/device/precision.hpp>
#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/elementwise.hpp>

using namespace ppengine;
using namespace ppengine::ops;

BOOST_AUTO_TEST_SUITE(device)

BOOST_AUTO_TEST_CASE(the_cpu_is_found_without_any_environment_variable) {
  const auto all = list_devices();
  BOOST_REQUIRE(!all.empty());
  BOOST_TEST(Device::open("cpu")->info().is_cpu);
}

BOOST_AUTO_TEST_CASE(an_unknown_device_is_refused_with_exit_code_3) {
  try {
    Device::open("quantum:7");
    BOOST_FAIL("opened");
  } catch (const DeviceError& e) {
    BOOST_CHECK(e.exit_code() == ExitCode::no_device);
    BOOST_CHECK(std::string(e.what()).find("quantum:7") != std::string::npos);
  }
}

// Devices of a kind that no machine of ours has: the CPU in the place of three GPUs.
struct ThreeGpus {
  ThreeGpus() { setenv("PPENGINE_STANDIN_GPUS", "3", 1); }
  ~ThreeGpus() { unsetenv("PPENGINE_STANDIN_GPUS"); }
};

BOOST_FIXTURE_TEST_CASE(a_word_stands_for_all_gpus_of_a_kind_and_a_number_for_one, ThreeGpus) {
  using Names = std::vector<std::string>;
  const Names three{"standin:0", "standin:1", "standin:2"};
  BOOST_TEST(find_devices("standin") == three, boost::test_tools::per_element());
  BOOST_TEST(find_devices("standin:1") == Names{"standin:1"}, boost::test_tools::per_element());
  BOOST_TEST(find_devices("standin:2,standin:0") == (Names{"standin:2", "standin:0"}), boost::test_tools::per_element());
  BOOST_TEST(find_devices("cpu") == Names{"cpu:0"}, boost::test_tools::per_element());
  for (const char* wrong : {"standin:3", "standin:0,cpu:0", "standin:0,", ",standin:0", "standin:-1", "standin:0x0"})
    BOOST_CHECK_THROW(find_devices(wrong), DeviceError);
  BOOST_TEST(!Device::open("standin:1")->info().is_cpu);
}

BOOST_FIXTURE_TEST_CASE(an_event_is_behind_all_that_was_submitted_before_it_and_another_stream_waits_for_it, ThreeGpus) {
  const auto device = Device::open("standin:0");
  Stream first(device), second(device);
  constexpr std::size_t count = 1 << 22;
  const Buffer a(device, count * sizeof(float)), b(device, count * sizeof(float)), c(device, count * sizeof(float));
  std::vector<float> in(count), out(count);
  for (int round = 1; round <= 5; ++round) {
    std::ranges::fill(in, static_cast<float>(round));
    first.copy(a.data(), in.data(), a.bytes());
    first.copy(b.data(), a.data(), a.bytes());
    const Event event = first.record();
    second.wait_for(event);
    second.copy(c.data(), b.data(), a.bytes());
    second.copy(out.data(), c.data(), a.bytes());
    second.wait();
    BOOST_TEST(event.done());
    BOOST_TEST(std::ranges::count(out, static_cast<float>(round)) == static_cast<std::ptrdiff_t>(count));
  }
}

BOOST_AUTO_TEST_CASE(stand_ins_are_there_only_where_they_are_asked_for) {
  for (const DeviceInfo& one : list_devices()) BOOST_TEST(one.backend != "standin");
  BOOST_CHECK_THROW(find_devices("standin"), DeviceError);
  for (const char* wrong : {"x", "-1", "65", "1x", "1e9"}) {
    setenv("PPENGINE_STANDIN_GPUS", wrong, 1);
    BOOST_CHECK_THROW(list_devices(), ConfigError);
  }
  unsetenv("PPENGINE_STANDIN_GPUS");
}

// Matrix units for bf16 by the vendors' tables: NVIDIA's compute capabilities, AMD's list of instruction sets.
BOOST_AUTO_TEST_CASE(gpus_with_units_for_bf16_compute_in_it_unless_told_otherwise) {
  DeviceInfo device;
  device.is_cpu = true, device.native_bf16 = true;
  BOOST_CHECK(default_type(device) == Type::f32);
  device.is_cpu = false;
  BOOST_CHECK(default_type(device) == Type::bf16);
  device.native_bf16 = false;
  BOOST_CHECK(default_type(device) == Type::f32);
  for (const int has : {80, 86, 89, 90, 100, 120}) BOOST_TEST(has_bf16_units("cuda", has));
  for (const int none : {0, 60, 70, 75}) BOOST_TEST(!has_bf16_units("cuda", none));
  for (const int has : {0x908, 0x90a, 0x940, 0x942, 0x950, 0x1100, 0x1201}) BOOST_TEST(has_bf16_units("hip", has));
  for (const int none : {0, 0x900, 0x906, 0x909, 0x90c, 0x1010, 0x1030}) BOOST_TEST(!has_bf16_units("hip", none));
  BOOST_TEST(!has_bf16_units("level_zero", 90));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these have an allocator of their own, which mallinfo does not know
// The OpenCL runtime kept 40 bytes for each copy until the memory was freed: 400 KB here.
BOOST_AUTO_TEST_CASE(copies_leave_no_memory_behind) {
  const auto device = Device::open("cpu");
  Stream stream(device);
  const Buffer a(device, 4096), b(device, 4096);
  const auto copy_often = [&](int times) {
    for (int i = 0; i < times; ++i) {
      stream.zero(a.data(), a.bytes());
      stream.copy(b.data(), a.data(), a.bytes());
      stream.wait();
    }
  };
  copy_often(1000);
  const std::size_t before = mallinfo2().uordblks;
  copy_often(10000);
  BOOST_TEST(mallinfo2().uordblks < before + 50000);
}
#endif
// The PTX ISA's table of targets.
BOOST_AUTO_TEST_CASE(the_compiler_for_nvidia_is_told_the_first_ptx_that_has_the_architecture) {
  BOOST_TEST(ptx_feature(75) == "+ptx63");
  BOOST_TEST(ptx_feature(80) == "+ptx70");
  BOOST_TEST(ptx_feature(86) == "+ptx71");
  BOOST_TEST(ptx_feature(89) == "+ptx78");
  BOOST_TEST(ptx_feature(90) == "+ptx78");
  BOOST_TEST(ptx_feature(100) == "+ptx86");
  BOOST_TEST(ptx_feature(120) == "+ptx87");
}

BOOST_AUTO_TEST_CASE(copies_happen_in_order_and_memory_is_counted) {
  auto device = Device::open("cpu");
  Stream stream(device);
  const std::size_t before = device->memory().bytes();
  {
    Buffer a(device, 400), b(device, 400);
    BOOST_TEST(device->memory().bytes() == before + 800);
    std::vector<float> in(100, 2.5f), out(100);
    for (int i = 0; i < 50; ++i) {
      stream.copy(a.data(), in.data(), 400);
      stream.copy(b.data(), a.data(), 400);
      stream.zero(a.data(), 400);
    }
    stream.copy(out.data(), b.data(), 400);
    stream.wait();
    BOOST_TEST(out[99] == 2.5f);
  }
  BOOST_TEST(device->memory().bytes() == before);
  BOOST_TEST(device->memory().peak() >= before + 800);
}

namespace {

// PPENGINE_CACHE for as long as it lives: a folder of its own.
struct OwnCache {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("ppengine_test_cache_" + std::to_string(::getpid()));
  std::string before = std::getenv("PPENGINE_CACHE") ? std::getenv("PPENGINE_CACHE") : "";
  // shipped: whether kernels that were compiled with the library count (PPENGINE_SHIPPED_KERNELS).
  explicit OwnCache(const char* shipped) {
    setenv("PPENGINE_CACHE", folder.c_str(), 1);
    setenv("PPENGINE_SHIPPED_KERNELS", shipped, 1);
  }
  ~OwnCache() {
    unsetenv("PPENGINE_SHIPPED_KERNELS");
    before.empty() ? unsetenv("PPENGINE_CACHE") : setenv("PPENGINE_CACHE", before.c_str(), 1);
    std::filesystem::remove_all(folder);
  }
  std::vector<std::filesystem::path> programs() const {
    std::vector<std::filesystem::path> found;
    if (std::filesystem::exists(folder / "programs"))
      for (const auto& entry : std::filesystem::directory_iterator(folder / "programs")) found.push_back(entry.path());
    return found;
  }
};

float twice_five() {  // by a kernel of ours, on a device that has compiled nothing yet
  const auto device = Device::open("cpu");
  Stream stream(device);
  Buffer values(device, 400);
  fill(stream, Type::f32, values.as<float>(), 5.0f, 100);
  add(stream, Type::f32, values.data(), values.data(), values.data(), 100);
  float last = 0;
  stream.copy(&last, values.as<float>() + 99, sizeof last);
  stream.wait();
  return last;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

// A compiled file is kept, taken again, and compiled anew where it is cut off or changed.
BOOST_AUTO_TEST_CASE(compiled_kernels_are_kept_and_damaged_ones_are_not_used) {
  const OwnCache cache("off");
  BOOST_TEST(twice_five() == 10.0f);
  BOOST_REQUIRE_EQUAL(cache.programs().size(), 1u);
  const std::filesystem::path kept = cache.programs().front();
  const std::string good = contents(kept);
  const auto written = std::filesystem::last_write_time(kept);
  BOOST_TEST(twice_five() == 10.0f);
  BOOST_CHECK(std::filesystem::last_write_time(kept) == written);  // nothing was compiled
  std::string changed = good;
  changed[good.size() / 2] = static_cast<char>(changed[good.size() / 2] ^ 1);
  for (const std::string& bad : {changed, good.substr(0, good.size() / 2), good.substr(0, 10), std::string()}) {
    std::ofstream(kept, std::ios::binary) << bad;
    BOOST_TEST(twice_five() == 10.0f);
    BOOST_CHECK(contents(kept) != bad);  // compiled and kept again
  }
}

// Only where kernels were compiled with the library (the target ppengine_kernels), and not for fewer instructions than this CPU has.
bool has_shipped_kernels() {
  const bool shipped =
      !std::getenv("PPENGINE_ISA") && std::filesystem::exists(std::filesystem::path(environment::own_folder()) / "kernels" / "weights.cpu");
  if (!shipped) BOOST_TEST_MESSAGE("skipped: no kernels were compiled with this library for this CPU");
  return shipped;
}

// The key of every file in lib/ppengine/kernels fits the sources in the library and this CPU: nothing is compiled and so nothing kept.
BOOST_AUTO_TEST_CASE(kernels_compiled_with_the_library_are_used_as_they_are) {
  if (!has_shipped_kernels()) return;
  const OwnCache cache("all");
  BOOST_TEST(twice_five() == 10.0f);
  const auto device = Device::open("cpu");
  device->kernels().prepare();
  BOOST_TEST(cache.programs().empty());
}

// As on a CPU of another kind.
BOOST_AUTO_TEST_CASE(kernels_in_spirv_serve_other_cpus) {
  if (!has_shipped_kernels()) return;
  const OwnCache cache("spirv");
  BOOST_TEST(twice_five() == 10.0f);
  BOOST_REQUIRE_EQUAL(cache.programs().size(), 1u);  // compiled for this CPU, and kept
  BOOST_TEST(twice_five() == 10.0f);
}

BOOST_AUTO_TEST_SUITE_END()
