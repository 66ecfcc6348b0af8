// How the bench subcommands time one thing.
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace ppengine::cli {

Measured measure(const std::function<void()>& run, const std::function<void()>& wait, int samples) {
  using clock = std::chrono::steady_clock;
  const auto time = [&](int times) {
    const auto begin = clock::now();
    for (int i = 0; i < times; ++i) run();
    wait();
    return std::chrono::duration<double>(clock::now() - begin).count() / times;
  };
  time(2);  // warm-up
  const int times = std::clamp(static_cast<int>(0.005 / std::max(time(1), 1e-7)), 1, 500);
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(time(times));
  std::ranges::sort(seconds);
  const auto at = [&](double share) { return seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1) + 0.5)]; };
  return {at(0.5), (at(0.9) - at(0.1)) / at(0.5)};
}

}  // namespace ppengine::cli
