// The page of a training run.
#include "output/dashboard.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/schedules/charts/chart.hpp>

#include "output/plural.hpp"
#include "output/progress.hpp"
#include "output/timeline_files.hpp"

namespace ppengine::cli {
namespace {

using schedules::escape_xml;
using Points = std::vector<std::pair<double, double>>;

constexpr int refresh_seconds = 2;
constexpr std::size_t most_notices = 20, most_actions = 4000;  // of a timeline that is drawn again and again

constexpr const char* style = R"(<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { margin: 0; font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; background: #f6f7f9; color: #1b2130; }
header { display: flex; gap: 1.2rem; align-items: baseline; padding: .7rem 1.2rem; background: #1b2130; color: #fff; }
header h1 { font-size: 1.05rem; margin: 0; font-weight: 600; }
header span { color: #b9c1d1; font-size: .9rem; }
progress { width: calc(100% - 2.4rem); margin: .8rem 1.2rem 0; height: .6rem; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1rem; margin: 1rem 1.2rem; }
section { background: #fff; border-radius: 8px; box-shadow: 0 1px 4px #0002; padding: .8rem 1rem; overflow-x: auto; }
section.wide { grid-column: 1 / -1; }
h2 { font-size: .95rem; margin: 0 0 .4rem; font-weight: 600; }
h2 b { float: right; font-variant-numeric: tabular-nums; }
.plot { width: 100%; height: auto; }
.plot text { font-size: 14px; fill: #4a5366; }
.plot line { stroke: #d4d8e0; }
.plot polyline { fill: none; stroke: #2f6fde; stroke-width: 1.6; }
.plot polyline.second { stroke: #d9822b; }
.plot circle.second { fill: #d9822b; }
.plot .second-name { fill: #b5651d; }
section > svg { max-width: 100%; height: auto; }
td, th { text-align: right; padding: .15rem .8rem .15rem 0; font-variant-numeric: tabular-nums; font-weight: 400; }
td.bar { width: 60%; padding: 0; }
td.bar div { background: #2f6fde; height: .8rem; border-radius: 2px; }
li { font-size: .9rem; }
</style>
)";

// A number in few characters.
std::string brief(double value) {
  const double size = std::abs(value);
  return size != 0 && (size >= 1e5 || size < 1e-3) ? fmt::format("{:.2e}", value) : fmt::format("{:.4g}", value);
}

// One or two curves over the steps, with the range of the values at the left.
std::string plot(const Points& first, const Points& second = {}, const std::string& second_name = "") {
  constexpr double width = 560, height = 200, left = 78, right = 8, top = 10, bottom = 24;
  Points all = first;
  all.insert(all.end(), second.begin(), second.end());
  std::string out = fmt::format("<svg class=\"plot\" viewBox=\"0 0 {} {}\">", width, height);
  if (all.empty()) return out + "</svg>";
  const auto [step_low, step_high] = std::ranges::minmax(all, {}, &std::pair<double, double>::first);
  const auto [low_point, high_point] = std::ranges::minmax(all, {}, &std::pair<double, double>::second);
  double low = low_point.second, high = high_point.second;
  if (high - low < 1e-9 * std::max(1e-300, std::abs(high))) low -= 0.05 * std::abs(low) + 1e-12, high += 0.05 * std::abs(high) + 1e-12;
  const double steps = std::max(1.0, step_high.first - step_low.first);
  const auto x = [&](double step) { return left + (step - step_low.first) / steps * (width - left - right); };
  const auto y = [&](double value) { return top + (high - value) / (high - low) * (height - top - bottom); };
  for (int i = 0; i <= 4; ++i) {
    const double value = low + (high - low) * i / 4;
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>", left,
        width - right, y(value), left - 6, y(value) + 4, brief(value));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\">step {:.0f}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0f}</text>", left,
                     height - 5, step_low.first, width - right, height - 5, step_high.first);
  const auto line = [&](const Points& points, const char* look) {
    out += fmt::format("<polyline class=\"{}\" points=\"", look);
    for (const auto& [step, value] : points) out += fmt::format("{:.1f},{:.1f} ", x(step), y(value));
    out += "\"/>";
  };
  line(first, "first");
  if (!second.empty()) {
    line(second, "second");
    for (const auto& [step, value] : second)
      out += fmt::format("<circle class=\"second\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>", x(step), y(value));
    out += fmt::format("<text class=\"second-name\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", width - right, top + 10, second_name);
  }
  return out + "</svg>\n";
}

std::string panel(const std::string& name, const std::string& now, const std::string& content, bool wide = false) {
  return fmt::format("<section{}><h2>{}<b>{}</b></h2>\n{}</section>\n", wide ? " class=\"wide\"" : "", name, now, content);
}

std::string memory_table(const runs::TrainingResult& ranks) {
  std::string out = "<table><tr><th>rank</th><th>MiB</th><th>idle</th></tr>\n";
  const double most = double(std::ranges::max(ranks.peak_bytes));
  for (std::size_t i = 0; i < ranks.peak_bytes.size(); ++i)
    out += fmt::format("<tr><td>{}</td><td>{:.0f}</td><td>{:.1f} %</td><td class=\"bar\"><div style=\"width:{:.1f}%\"></div></td></tr>\n",
                       i, double(ranks.peak_bytes[i]) / (1 << 20), i < ranks.idle_share.size() ? 100 * ranks.idle_share[i] : 0.0,
                       100 * double(ranks.peak_bytes[i]) / std::max(1.0, most));
  return out + "</table>\n";
}

}  // namespace

void Curve::add(double step, double value) {
  if (!std::isfinite(value)) return;
  sum_.first += step;
  sum_.second += value;
  if (++added_ < each_) return;
  points_.emplace_back(sum_.first / added_, sum_.second / added_);
  sum_ = {0, 0};
  added_ = 0;
  if (points_.size() < most) return;
  for (std::size_t i = 0; i < most / 2; ++i)
    points_[i] = {(points_[2 * i].first + points_[2 * i + 1].first) / 2, (points_[2 * i].second + points_[2 * i + 1].second) / 2};
  points_.resize(most / 2);
  each_ *= 2;
}

void Dashboard::stepped(const engine::StepResult& result) {
  last_ = result;
  const auto step = double(result.step);
  loss_.add(step, result.loss);
  norm_.add(step, result.grad_norm);
  rate_.add(step, result.lr);
  speed_.add(step, double(result.tokens) / result.seconds);
}

void Dashboard::noticed(const std::string& text) {
  notices_.push_back(text);
  if (notices_.size() > most_notices) notices_.erase(notices_.begin());
}

std::string Dashboard::last_step(const runs::TrainingResult& ranks) const {
  if (ranks.timelines.empty()) return "";
  const auto charts = TimelineFiles(ranks, copies_, schedule_).charts();
  std::size_t actions = 0;
  for (const auto& row : charts.front().rows) actions += row.compute.size();
  if (actions == 0 || actions > most_actions) return "";
  return panel("The last step", fmt::format("{:.1f} ms", 1000 * last_.seconds), schedules::chart_svg(charts), true);
}

std::string Dashboard::page(const runs::TrainingResult& ranks, bool live) const {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const auto done = std::max<std::int64_t>(1, last_.step - info_.first_step + 1), left = info_.steps - last_.step;
  const std::string title = fmt::format("step {} of {}", last_.step, info_.steps);
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" + title + "</title>\n";
  if (live) out += fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", refresh_seconds);
  out += style;
  out += fmt::format("</head>\n<body>\n<header><h1>ppengine train: {}</h1><span>{}</span><span>{}</span></header>\n", title,
                     live ? fmt::format("{} left; as of {:%H:%M:%S}", duration_text(elapsed / double(done) * double(left)),
                                        fmt::localtime(std::time(nullptr)))
                          : fmt::format("over after {}", duration_text(elapsed)),
                     escape_xml(fmt::format("{}, {:.1f} M parameters on {} of {}, {} of {} a step", info_.data,
                                            double(info_.parameters) / 1e6, plural(info_.ranks, "rank"), info_.device,
                                            plural(info_.batch_size, "sequence"), plural(info_.sequence_length, "token"))));
  out += fmt::format("<progress max=\"{}\" value=\"{}\"></progress>\n<main>\n", info_.steps, last_.step);
  out += panel("Loss", brief(last_.loss), plot(loss_.points(), evaluation_.points(), "evaluation"));
  out += panel("Norm of the gradients", brief(last_.grad_norm), plot(norm_.points()));
  out += panel("Tokens per second", brief(double(last_.tokens) / last_.seconds), plot(speed_.points()));
  out += panel("Learning rate", brief(last_.lr), plot(rate_.points()));
  out += last_step(ranks);
  if (!ranks.peak_bytes.empty()) out += panel("Peak memory", "", memory_table(ranks), true);
  if (!notices_.empty()) {
    std::string list = "<ul>\n";
    for (const std::string& one : notices_) list += "<li>" + escape_xml(one) + "</li>\n";
    out += panel("Noticed", "", list + "</ul>\n", true);
  }
  return out + "</main>\n</body>\n</html>\n";
}

void Dashboard::write(const runs::TrainingResult& ranks, bool live) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    write_file_atomically(file_, page(ranks, live));
  } catch (const std::exception& error) {  // a run is worth more than its page
    log::warning(fmt::format("--dashboard: {}", error.what()));
  }
  const auto end = std::chrono::steady_clock::now();
  next_ = end + std::max<std::chrono::steady_clock::duration>(std::chrono::seconds(refresh_seconds), 50 * (end - begin));
}

}  // namespace ppengine::cli
