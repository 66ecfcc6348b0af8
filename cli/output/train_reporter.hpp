// What a training run prints: steps as JSON lines, or a progress line with a summary at the end; its TensorBoard file and its
// page.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include <ppengine/runs/training.hpp>
#include <ppengine/runs/training/tensorboard.hpp>

#include "output/dashboard.hpp"
#include "output/progress.hpp"

namespace ppengine::cli {

class TrainReporter final : public runs::TrainingListener {
 public:
  // tensorboard: folder; empty: none. dashboard: none: no page.
  TrainReporter(bool json, std::string tensorboard, std::optional<Dashboard> dashboard, std::function<bool()> stop_requested)
      : json_(json), tensorboard_(std::move(tensorboard)), dashboard_(std::move(dashboard)), stop_requested_(std::move(stop_requested)) {}

  void started(const runs::RunInfo& info) override;
  void stepped(const engine::StepResult& result, std::size_t peak_bytes) override;
  void evaluated(std::int64_t step, double loss) override;
  void saved(const std::string& folder, std::int64_t step) override;
  void planned(const runs::DryRun& run) override;
  void noticed(const std::string& text) override;
  bool wants_ranks() override { return dashboard_ && dashboard_->due(); }
  void ranks_gathered(const runs::TrainingResult& ranks) override { dashboard_->write(ranks, true); }
  bool stop_requested() override { return stop_requested_(); }
  void stopping() override;

  std::int64_t first_step() const { return info_.first_step; }
  void finish(const runs::TrainingResult& result);

 private:
  bool json_;
  std::string tensorboard_;
  std::optional<Dashboard> dashboard_;
  std::function<bool()> stop_requested_;
  std::optional<runs::TensorBoardFile> events_;
  runs::RunInfo info_;
  std::pair<std::int64_t, double> evaluated_{0, 0.0};  // step and loss of the last evaluation
  std::string saved_in_;
  Progress progress_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace ppengine::cli
