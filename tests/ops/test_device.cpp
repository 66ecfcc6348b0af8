// Devices, streams and memory: order of submission holds, bytes are counted, an unknown device is refused.
#include <boost/test/unit_test.hpp>

#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/stream.hpp>

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

BOOST_AUTO_TEST_CASE(copies_happen_in_order_and_memory_is_counted) {
  auto device = Device::open("cpu");
  Stream stream(device);
  const size_t before = device->memory().bytes();
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

BOOST_AUTO_TEST_SUITE_END()
