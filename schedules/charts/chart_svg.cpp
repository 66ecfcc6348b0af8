// The chart as SVG: a row per rank, time to the right, memory below.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/charts/chart_parts.hpp>
#include <ppengine/schedules/charts/chart_style.hpp>

namespace ppengine::schedules {
namespace {

constexpr double left = 74, right = 104, top = 122, memory_height = 130;
// Wide enough that the shortest actions can show their microbatch, within what a page can hold.
constexpr double narrowest = 1500, widest = 2600, label_width = 10.8;
constexpr int names_per_row = 8;

class SvgDrawing {
 public:
  SvgDrawing(const Timeline& timeline, CellLabels labels) : t_(timeline), names_stages_(labels == CellLabels::stage) {
    std::size_t events = 0;
    for (const auto& row : t_.rows) events += row.compute.size();
    if (events > max_drawn_events)
      throw ConfigError(
          fmt::format("{} actions are too many for a picture (at most {}); draw fewer microbatches, or use "
                      "--format text or json",
                      events, max_drawn_events));
    const auto rows = static_cast<double>(std::max<std::size_t>(t_.rows.size(), 1));
    row_height_ = std::clamp(std::floor(560 / rows), 5.0, 38.0);
    gap_ = row_height_ > 12 ? 4 : 1;
    double shortest = t_.end;
    for (const auto& row : t_.rows)
      for (const auto& e : row.compute)
        if (is_compute(e.action.type) && e.end > e.start) shortest = std::min(shortest, e.end - e.start);
    plot_width_ = shortest > 0 ? std::clamp(std::ceil(label_width * t_.end / shortest), narrowest, widest) : narrowest;
    scale_ = t_.end > 0 ? plot_width_ / t_.end : 1;
    rows_bottom_ = top + rows * (row_height_ + gap_);
  }

  double width() const { return left + plot_width_ + right; }
  double height() const { return rows_bottom_ + 44 + memory_height + 48 + 18 * curve_rows(); }

  // y: where it begins in a picture around it.
  std::string draw(double y = 0) {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" y=\"{5:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" data-left=\"{2}\" data-width=\"{3}\" data-end=\"{4}\">\n",
        width(), height(), left, plot_width_, t_.end, y);
    out_ += svg_style();
    out_ += "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
    out_ += svg_text(left, 36, "title", t_.title) + svg_text(left, 60, "subtitle", t_.subtitle);
    legend();
    for (std::size_t r = 0; r < t_.rows.size(); ++r) row(t_.rows[r], top + static_cast<double>(r) * (row_height_ + gap_));
    axis(rows_bottom_ + 4);
    memory(rows_bottom_ + 56);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  double x(double time) const { return left + time * scale_; }
  // Of many ranks only some have a curve; their names stand in rows that fit any window.
  int curve_stride() const { return std::max(1, (static_cast<int>(t_.rows.size()) + 15) / 16); }
  int curve_rows() const {
    return ((static_cast<int>(t_.rows.size()) + curve_stride() - 1) / curve_stride() + names_per_row - 1) / names_per_row;
  }

  // Blocks with their patterns.
  void legend() {
    std::vector<LegendEntry> entries{{ActionType::forward, "F forward"}};
    auto uses = [&](ActionType type) {
      return std::any_of(t_.rows.begin(), t_.rows.end(), [&](const auto& row) {
        return std::any_of(row.compute.begin(), row.compute.end(),
                           [&](const auto& e) { return e.action.type == type || e.partner.type == type; });
      });
    };
    if (uses(ActionType::backward)) entries.push_back({ActionType::backward, "B backward"});
    if (uses(ActionType::backward_input)) entries.push_back({ActionType::backward_input, "I backward, input"});
    if (uses(ActionType::backward_weight)) entries.push_back({ActionType::backward_weight, "W backward, weights"});
    entries.push_back({ActionType::idle, "idle"});
    double at = left;
    for (const auto& entry : entries) {
      out_ += svg_legend_block(at, 76, entry) + svg_text(at + 30, 89, "legend", entry.text);
      at += 6.4 * static_cast<double>(entry.text.size()) + 52;
    }
    const bool several = std::any_of(t_.rows.begin(), t_.rows.end(), [&](const auto& row) { return t_.stages_of(row).size() > 1; });
    out_ += svg_text(left, 112, "hint",
                     several ? "shade: microbatch; bar at the foot: the rank's second, third, ... stage" : "shade: microbatch");
  }

  void row(const TimelineRow& row, double y) {
    const auto stages = t_.stages_of(row);
    out_ += fmt::format("<rect class=\"idle\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"/>\n", left, y, plot_width_, row_height_);
    if (row_height_ >= 9) {
      out_ += svg_text(left - 10, y + row_height_ / 2 + 4, "rank", fmt::format("rank {}", row.rank));
      out_ += svg_text(left + plot_width_ + 10, y + row_height_ / 2 + 4, "share", fmt::format("idle {:.1f} %", 100 * row.idle_share));
    }
    out_ += "<g class=\"blocks\">\n";
    for (const auto& e : row.compute) block(e, row.rank, y, stages);
    out_ += "</g>\n";
  }

  void block(const TimelineEvent& e, int rank, double y, const std::vector<int>& stages) {
    out_ += fmt::format("<g class=\"block\" data-s=\"{:.10g}\" data-e=\"{:.10g}\"><title>{}\nrank {}\n{:.6g} to {:.6g}{}</title>", e.start,
                        e.end, e.text(), rank, e.start, e.end, t_.unit);
    if (e.overlap()) {
      part(e.action, e, y, row_height_ / 2, stages);
      part(e.partner, e, y + row_height_ / 2, row_height_ / 2, stages);
    } else {
      part(e.action, e, y, row_height_, stages);
    }
    out_ += "</g>\n";
  }

  // One action's rectangle: colour and shade, pattern of its type, a bar for the rank's further stages, and its label.
  void part(const Action& a, const TimelineEvent& e, double y, double height, const std::vector<int>& stages) {
    const double from = x(e.start), width = std::max(0.4, (e.end - e.start) * scale_ - 0.6);
    const Color fill = fill_of(a);
    auto rect = [&](double at, double h, const std::string& look) {
      out_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" {}/>", from, at, width, h, look);
    };
    rect(y, height, fmt::format("fill=\"{}\"", fill.hex()));
    if (const auto pattern = pattern_of(a.type); !pattern.empty()) rect(y, height, fmt::format("fill=\"url(#{})\"", pattern));
    const auto chunk = std::find(stages.begin(), stages.end(), a.stage) - stages.begin();
    if (chunk > 0) {
      const double bar = std::min(height / 3, 2.5 * static_cast<double>(chunk));
      rect(y + height - bar, bar, "fill=\"#10151f\" fill-opacity=\"0.72\"");
    }
    if (height < 12 || !is_compute(a.type)) return;
    const bool two_lines = height >= 26;
    const std::string letter = (names_stages_ ? std::to_string(a.stage) : "") + std::string(type_name(a.type)),
                      number = std::to_string(a.microbatch);
    const std::string ink = ink_on(fill).red > 128 ? "light" : "dark";
    const double needed = two_lines
                              ? std::max<double>(7 * static_cast<double>(letter.size()), 4.8 * static_cast<double>(number.size()) + 0.5)
                              : 6.2 * static_cast<double>(letter.size() + number.size()) + 2;
    const char* shown = width >= needed ? "" : " display=\"none\"";
    const double middle = from + width / 2;
    if (two_lines) {
      out_ += fmt::format("<text class=\"l {}\" data-n=\"{:.1f}\" x=\"{:.2f}\" y=\"{:.1f}\"{}>{}</text>", ink, needed, middle,
                          y + height / 2 - 2, shown, letter);
      out_ += fmt::format("<text class=\"n {}\" data-n=\"{:.1f}\" x=\"{:.2f}\" y=\"{:.1f}\"{}>{}</text>", ink, needed, middle,
                          y + height / 2 + 10, shown, number);
    } else {
      out_ += fmt::format("<text class=\"n {}\" data-n=\"{:.1f}\" x=\"{:.2f}\" y=\"{:.1f}\"{}>{}{}</text>", ink, needed, middle,
                          y + height / 2 + 3.5, shown, letter, number);
    }
  }

  void axis(double y) {
    const double step = nice_step(t_.end / 15);
    out_ += fmt::format("<g class=\"axis\"><line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>", left, y, left + plot_width_, y);
    for (int i = 0; i * step <= t_.end * 1.0001; ++i) {
      const double at = x(i * step);
      out_ += fmt::format("<g class=\"tick\" data-s=\"{:.10g}\"><line x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\"/>{}</g>",
                          i * step, at, y, at, y + 5, svg_text(at, y + 19, "number", fmt::format("{:.6g}", i * step)));
    }
    out_ += "</g>\n" + svg_text(left + plot_width_ + 10, y + 19, "share", t_.unit.empty() ? "time" : "time, " + t_.unit);
  }

  // Live microbatches over time: a line per rank; of many ranks only some.
  void memory(double y) {
    int peak = 1;
    bool any = false;
    for (const auto& row : t_.rows) {
      peak = std::max(peak, row.peak_live_microbatches);
      any = any || row.memory.size() > 1;
    }
    if (!any) return;
    const double bottom = y + memory_height;
    auto level = [&](int live) { return bottom - live * memory_height / (peak * 1.04); };
    out_ += svg_text(left, y - 8, "panel", "live microbatches by rank");
    out_ +=
        fmt::format("<rect class=\"idle\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"/>\n", left, y, plot_width_, memory_height);
    const double step = std::max(1.0, nice_step(peak / 4.0));
    for (int i = 0; i * step <= peak; ++i) {
      const double at = level(static_cast<int>(i * step));
      out_ += fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>", left, at, left + plot_width_, at);
      out_ += svg_text(left - 10, at + 4, "rank", fmt::format("{:.0f}", i * step));
    }
    const auto ranks = static_cast<int>(t_.rows.size());
    int shown = 0;
    for (int r = 0; r < ranks; r += curve_stride(), ++shown) {
      const auto& row = t_.rows[static_cast<std::size_t>(r)];
      const std::string color = rank_color(r, ranks).hex();
      std::string path, times;
      double last = bottom;
      for (const auto& point : row.memory) {
        path += fmt::format("{}{:.2f} {:.1f}L{:.2f} {:.1f}", path.empty() ? "M" : "L", x(point.time), last, x(point.time),
                            level(point.microbatches));
        times += fmt::format("{:.10g},{:.1f},{:.1f};", point.time, last, level(point.microbatches));
        last = level(point.microbatches);
      }
      out_ += fmt::format(
          "<path class=\"curve\" stroke=\"{}\" d=\"{}\" data-p=\"{}\"><title>rank {}: at most {} live "
          "microbatches</title></path>\n",
          color, path, times, row.rank, row.peak_live_microbatches);
      const double entry = left + shown % names_per_row * 92.0, line = bottom + 18 * (1 + shown / names_per_row);
      out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"4\" fill=\"{}\"/>", entry, line, color);
      out_ += svg_text(entry + 18, line + 6, "legend", fmt::format("rank {}: {}", row.rank, row.peak_live_microbatches));
    }
  }

  const Timeline& t_;
  bool names_stages_;
  std::string out_;
  double row_height_ = 0, gap_ = 0, plot_width_ = narrowest, scale_ = 1, rows_bottom_ = 0;
};

}  // namespace

std::string chart_svg(const Timeline& timeline, CellLabels labels) { return SvgDrawing(timeline, labels).draw(); }

std::string chart_svg(const std::vector<Timeline>& timelines, CellLabels labels) {
  double width = 0, height = 0;
  std::string charts;
  for (const Timeline& timeline : timelines) {
    SvgDrawing drawing(timeline, labels);
    charts += drawing.draw(height);
    width = std::max(width, drawing.width());
    height += drawing.height();
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\">\n{2}</svg>\n", width,
      height, charts);
}

}  // namespace ppengine::schedules
