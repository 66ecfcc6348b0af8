// A page that shows a training run while it goes on: curves, the last step's timeline, memory. The browser loads it again every few
// seconds; the last version stays as the run's report.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <ppengine/runs/training.hpp>

namespace ppengine::cli {

// Values over steps, in bounded memory: of long runs each point is the mean of several steps.
class Curve {
 public:
  void add(double step, double value);  // a value that is not finite is left out
  const std::vector<std::pair<double, double>>& points() const { return points_; }

 private:
  static constexpr std::size_t most = 1024;
  std::vector<std::pair<double, double>> points_;
  std::pair<double, double> sum_{0, 0};
  int each_ = 1, added_ = 0;  // steps in a point; in the sum
};

class Dashboard {
 public:
  // schedule and copies: as for TimelineFiles.
  Dashboard(std::string file, std::string schedule, int copies) : file_(std::move(file)), schedule_(std::move(schedule)), copies_(copies) {}

  void started(const runs::RunInfo& info) { info_ = info; }
  void stepped(const engine::StepResult& result);
  void evaluated(std::int64_t step, double loss) { evaluation_.add(double(step), loss); }
  void noticed(const std::string& text);
  // Time for another version: writing takes no more than a fiftieth of the run.
  bool due() const { return std::chrono::steady_clock::now() >= next_; }
  void write(const runs::TrainingResult& ranks, bool live);

 private:
  std::string last_step(const runs::TrainingResult& ranks) const;
  std::string page(const runs::TrainingResult& ranks, bool live) const;

  std::string file_, schedule_;
  int copies_;
  runs::RunInfo info_;
  engine::StepResult last_;
  Curve loss_, evaluation_, norm_, rate_, speed_;
  std::vector<std::string> notices_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), next_{};
};

}  // namespace ppengine::cli
