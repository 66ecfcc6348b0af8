// Notices about a training run.
#include <ppengine/runs/training/watch.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ppengine::runs {

std::optional<std::string> Watch::loss(const engine::StepResult& step) {
  constexpr std::size_t window = 20;
  std::optional<std::string> notice;
  if (recent_.size() == window) {
    double mean = 0, spread = 0;
    for (double one : recent_) mean += one / double(window);
    for (double one : recent_) spread += (one - mean) * (one - mean) / double(window);
    const double limit = mean + std::max(6.0 * std::sqrt(spread), 0.25 * std::abs(mean));
    if (step.loss > limit)
      notice =
          fmt::format("step {}: the loss jumped to {:.4f}; the mean of the last {} steps is {:.4f}", step.step, step.loss, window, mean);
    recent_.erase(recent_.begin());
  }
  recent_.push_back(step.loss);
  return notice;
}

std::optional<std::string> Watch::ranks(const std::vector<double>& seconds, std::int64_t step) {
  constexpr double much = 1.5, least = 0.05;  // times the median; seconds, below which it is the machine's noise
  if (seconds.size() < 2) return {};
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];  // of two the faster one
  const auto slowest = std::ranges::max_element(seconds);
  if (*slowest < much * median || *slowest - median < least) return {};
  return fmt::format(
      "step {}: rank {} worked {:.2f} s in the last steps, most others {:.2f} s; a slower device, or stages that are not balanced", step,
      slowest - seconds.begin(), *slowest, median);
}

}  // namespace ppengine::runs
