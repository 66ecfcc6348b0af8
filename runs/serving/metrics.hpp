// Counters and histograms of a server, in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include <ppengine/runs/generator.hpp>

namespace ppengine::runs::serving {

class Histogram {
 public:
  void add(double seconds);
  std::string text(const std::string& name, const std::string& help) const;

 private:
  static constexpr std::array<double, 14> bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};
  std::array<std::uint64_t, bounds.size() + 1> counts_{};
  double sum_ = 0;
};

class Metrics {
 public:
  void answered(const std::string& route, int status);
  void first_token(double seconds);
  void finished(double queue_seconds, const Generated& result);
  std::string text(const GeneratorStats& now, std::size_t connections, std::size_t cache_bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> answers_;
  Histogram first_token_, per_token_, queue_, generation_;
  std::map<std::string, std::uint64_t> finishes_;
  std::uint64_t prompt_tokens_ = 0, generated_tokens_ = 0;
};

}  // namespace ppengine::runs::serving
