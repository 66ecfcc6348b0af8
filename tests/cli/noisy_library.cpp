// A library that prints to stdout in every way there is: when it is loaded, before main, and at the end. Preloaded by test_results.cpp.
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace {

constexpr char raw[] = "noise: written to descriptor 1\n";

[[gnu::constructor]] void when_loaded() {
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, raw, sizeof(raw) - 1);
  std::printf("noise: printed\n");
  std::cout << "noise: streamed\n";
}

[[gnu::destructor]] void at_the_end() { std::printf("noise: printed at the end\n"); }

}  // namespace
