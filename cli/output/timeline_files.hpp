// What a training run did, as files and in the terminal: a trace for Perfetto, a page with the measured and the simulated timeline.
#pragma once

#include <string>
#include <vector>

#include <ppengine/runs/training.hpp>
#include <ppengine/schedules/timeline.hpp>

namespace ppengine::cli {

class TimelineFiles {
 public:
  // schedule: its name, for titles. copies: ranks that run one place of the plan (data- and tensor-parallel ones); pictures show
  // the first of them, the trace all.
  TimelineFiles(const runs::TrainingResult& result, int copies, const std::string& schedule);

  // As measured and as simulated, on one scale; empty where no step was run.
  std::vector<schedules::Timeline> charts() const;
  void write_trace(const std::string& file, std::int64_t first_step) const;
  void write_page(const std::string& file) const;
  // Both charts on stdout.
  void print() const;

 private:
  const runs::TrainingResult& result_;
  int copies_;
  schedules::Timeline measured_, simulated_;
};

// FileError before a long run, not after it, where a file could not be written. An empty name is fine.
void check_writable(const std::string& file);

}  // namespace ppengine::cli
