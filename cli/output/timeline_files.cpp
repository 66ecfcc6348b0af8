// A training run as pictures.
#include "output/timeline_files.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/results.hpp>
#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/engine/measure/trace.hpp>
#include <ppengine/schedules/charts/chart.hpp>

#include "output/plural.hpp"
#include "output/results.hpp"
#include "output/terminal.hpp"

namespace ppengine::cli {

TimelineFiles::TimelineFiles(const runs::TrainingResult& result, int copies, const std::string& schedule)
    : result_(result), copies_(copies) {
  const schedules::Plan& plan = result.plan;
  std::vector<std::vector<engine::TimedAction>> rows;
  for (std::size_t rank = 0; rank < result.timelines.size(); rank += static_cast<std::size_t>(copies))
    rows.push_back(result.timelines[rank]);
  if (rows.size() < static_cast<std::size_t>(plan.ranks) || rows.front().empty()) return;  // no step was run
  const auto run = engine::last_run(plan, rows);
  const std::string what = fmt::format("{}: {}, {}, {}", schedule, plural(plan.ranks, "rank"), plural(plan.stages, "stage"),
                                       plural(plan.microbatches, "microbatch", "microbatches"));
  measured_ = engine::measured_timeline(run, fmt::format("Step {} as measured, {}", result.last.step, what));
  simulated_ = engine::simulated_timeline(plan, engine::measured_costs(plan, run), "The same step simulated with the measured mean times");
}

void TimelineFiles::write_trace(const std::string& file, std::int64_t first_step) const {
  engine::write_trace(file, result_.plan, copies_, result_.timelines, first_step, result_.reductions);
}

std::vector<schedules::Timeline> TimelineFiles::charts() const {
  std::vector<schedules::Timeline> both{measured_, simulated_};
  both[0].end = both[1].end = std::max(measured_.end, simulated_.end);
  return both;
}

void TimelineFiles::write_page(const std::string& file) const {
  write_file_atomically(file, file.ends_with(".svg") ? schedules::chart_svg(charts()) : schedules::chart_html(charts(), "ppengine train"));
}

void TimelineFiles::print() const {
  schedules::TextChart look;
  look.width = terminal_width(results::descriptor(), look.width);
  look.color = shows_colors(results::descriptor());
  look.bands = 3;
  print_result("\n{}\n{}", schedules::chart_text(measured_, look), schedules::chart_text(simulated_, look));
}

void check_writable(const std::string& file) {
  if (!file.empty()) check_can_write(file);
}

}  // namespace ppengine::cli
