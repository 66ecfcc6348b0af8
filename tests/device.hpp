// The device that tests compute on: the CPU, or what PPENGINE_TEST_DEVICE names.
#pragma once

#include <cstdlib>
#include <string>

namespace ppengine::test {

inline std::string device_name() {
  const char* named = std::getenv("PPENGINE_TEST_DEVICE");
  return named ? named : "cpu";
}

}  // namespace ppengine::test
