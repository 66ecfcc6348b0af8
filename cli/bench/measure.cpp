// Timing for the bench subcommands.
#include "bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace ppengine::cli {

Measured measure(const std::function<void()>& run, const std::function<void()>& wait, int samples) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](int times) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) run();
    wait();
    return std::chrono::duration<double>(Clock::now() - begin).count() / times;
  };
  time(2);  // warm-up
  const int times = std::clamp(static_cast<int>(0.005 / std::max(time(1), 1e-7)), 1, 500);
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(samples));
  for (int i = 0; i < samples; ++i) seconds.push_back(time(times));
  std::ranges::sort(seconds);
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(std::lround(share * static_cast<double>(seconds.size() - 1)))];
  };
  return {at(0.5), seconds.front(), (at(0.9) - at(0.1)) / at(0.5)};
}

}  // namespace ppengine::cli
