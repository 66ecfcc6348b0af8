// The chart for the terminal: a line per rank, time from left to right, cut into bands where it is wider than the
// screen.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/charts/chart_parts.hpp>
#include <ppengine/schedules/charts/chart_style.hpp>

namespace ppengine::schedules {
namespace {

constexpr int max_text_ranks = 128;

// One character of the chart with its colours.
struct Glyph {
  char text = ' ';
  bool filled = false;
  Color fill{0, 0, 0};
};

class TextDrawing {
 public:
  TextDrawing(const Timeline& timeline, const TextChart& options) : timeline_(timeline), options_(options) {
    label_width_ = static_cast<int>(std::to_string(timeline.rows.empty() ? 0 : timeline.rows.back().rank).size()) + 6;
    several_stages_ =
        std::any_of(timeline.rows.begin(), timeline.rows.end(), [&](const auto& row) { return timeline.stages_of(row).size() > 1; });
    names_stages_ = options.labels == CellLabels::stage || (options.labels == CellLabels::automatic && several_stages_);
    const int room = std::max(20, options.width - label_width_);
    columns_ = room;
    // As wide as the labels ask for, if that does not take too many bands; otherwise everything on one band without
    // labels.
    const double wanted = timeline.end * scale_for_labels();
    labelled_ = wanted > 0 && wanted <= static_cast<double>(room) * options.bands;
    scale_ = labelled_ ? wanted / timeline.end : timeline.end > 0 ? room / timeline.end : 1;
    total_ = labelled_ ? static_cast<int>(std::ceil(wanted - 1e-9)) : room;
    // Ticks at round times, and bands that begin at one.
    tick_ = nice_step(12 / scale_);
    if (labelled_ && total_ > room && tick_ * scale_ <= room)
      columns_ = static_cast<int>(std::lround(std::floor(room / (tick_ * scale_)) * tick_ * scale_));
  }

  std::string draw() {
    std::string out = wrapped(timeline_.title) + wrapped(timeline_.subtitle);
    const std::size_t shown = std::min<std::size_t>(timeline_.rows.size(), max_text_ranks);
    for (int begin = 0; begin < std::max(total_, 1); begin += columns_) {
      const int end = std::min(begin + columns_, total_);
      out += '\n' + axis(begin, end);
      for (std::size_t r = 0; r < shown; ++r) {
        out += fmt::format("{:<{}}", fmt::format("rank {}", timeline_.rows[r].rank), label_width_);
        out += paint(timeline_.rows[r], begin, end) + '\n';
      }
      if (shown < timeline_.rows.size()) out += fmt::format("... and {} more ranks\n", timeline_.rows.size() - shown);
    }
    return out + legend() + table(shown);
  }

 private:
  std::string label(const TimelineEvent& e) const {
    auto one = [&](const Action& a) { return names_stages_ ? to_text(a) : std::string(type_name(a.type)) + std::to_string(a.microbatch); };
    return e.overlap() ? one(e.action) + "&" + one(e.partner) : one(e.action);
  }

  // Columns per unit of time so that most labels fit with a blank between two blocks.
  double scale_for_labels() const {
    double scale = 0;
    for (const auto& row : timeline_.rows)
      for (const auto& e : row.compute)
        if (e.end > e.start && is_compute(e.action.type))
          scale = std::max(scale, static_cast<double>(label(e).size() + 1) / (e.end - e.start));
    return scale;
  }

  std::string axis(int begin, int end) const {
    std::string line(static_cast<std::size_t>(label_width_ + end - begin), ' ');
    line.replace(0, 4, "time");
    for (int i = static_cast<int>(std::ceil(begin / (tick_ * scale_) - 1e-9)); std::lround(i * tick_ * scale_) < end; ++i) {
      const std::string at = fmt::format("|{:.6g}", i * tick_);
      const auto place = static_cast<std::size_t>(label_width_ + std::lround(i * tick_ * scale_) - begin);
      if (place + at.size() <= line.size()) line.replace(place, at.size(), at);
    }
    return line + '\n';
  }

  std::string paint(const TimelineRow& row, int begin, int end) const {
    std::vector<Glyph> glyphs(static_cast<std::size_t>(end - begin), Glyph{options_.color ? ' ' : '.', false, {0, 0, 0}});
    for (const auto& e : row.compute) {
      const int from = static_cast<int>(std::lround(e.start * scale_)), to = static_cast<int>(std::lround(e.end * scale_));
      if (to <= begin || from >= end || to == from) continue;
      const std::string text = labelled_ ? label(e) : std::string(type_name(e.action.type)).substr(0, 1);
      const Color first = fill_of(e.action), second = e.overlap() ? fill_of(e.partner) : first;
      for (int c = std::max(from, begin); c < std::min(to, end); ++c) {
        Glyph& g = glyphs[static_cast<std::size_t>(c - begin)];
        const auto i = static_cast<std::size_t>(c - from);
        const bool gap = labelled_ && !options_.color && c == to - 1;
        g.text = !labelled_ ? text[0] : i < text.size() ? text[i] : gap ? ' ' : options_.color ? ' ' : '-';
        g.filled = !(labelled_ && c == to - 1);
        g.fill = c < (from + to) / 2 ? first : second;
        if (gap && i >= text.size()) g.text = ' ';
      }
    }
    return encode(glyphs);
  }

  std::string encode(const std::vector<Glyph>& glyphs) const {
    std::string out;
    bool painting = false;
    Color last{-1, -1, -1};
    for (const Glyph& g : glyphs) {
      if (options_.color && g.filled && (!painting || g.fill.hex() != last.hex())) {
        const Color ink = ink_on(g.fill);
        out += fmt::format("\x1b[48;2;{};{};{}m\x1b[38;2;{};{};{}m", g.fill.red, g.fill.green, g.fill.blue, ink.red, ink.green, ink.blue);
        painting = true;
        last = g.fill;
      } else if (options_.color && !g.filled && painting) {
        out += "\x1b[0m";
        painting = false;
      }
      out += g.text;
    }
    if (painting) out += "\x1b[0m";
    return out;
  }

  std::string legend() const {
    return '\n' + wrapped(fmt::format("F forward, B backward, I backward for the input, W for the weights{}; {}",
                                      names_stages_ && labelled_ ? ", with stage in front and microbatch behind" : "",
                                      options_.color ? "blank is idle" : ". is idle"));
  }

  // Words on as many lines as they take.
  std::string wrapped(const std::string& text) const {
    const auto width = static_cast<std::size_t>(std::max(20, options_.width));
    std::string out;
    std::size_t begin = 0;
    while (text.size() - begin > width) {
      const std::size_t blank = text.rfind(' ', begin + width);
      const std::size_t end = blank == text.npos || blank <= begin ? begin + width : blank;
      out += text.substr(begin, end - begin) + '\n';
      begin = end + (end == blank ? 1 : 0);
    }
    return out + text.substr(begin) + '\n';
  }

  std::string table(std::size_t shown) const {
    std::string out = fmt::format("\n{:<8}{:>8}{:>22}\n", "", "idle", "live microbatches");
    for (std::size_t r = 0; r < shown; ++r) {
      const auto& row = timeline_.rows[r];
      out += fmt::format("{:<8}{:>7.2f}%{:>22}\n", fmt::format("rank {}", row.rank), 100 * row.idle_share, row.peak_live_microbatches);
    }
    return out;
  }

  const Timeline& timeline_;
  TextChart options_;
  int label_width_ = 0, columns_ = 0, total_ = 0;
  bool several_stages_ = false, names_stages_ = false, labelled_ = false;
  double scale_ = 1, tick_ = 1;
};

}  // namespace

std::string chart_text(const Timeline& timeline, const TextChart& options) { return TextDrawing(timeline, options).draw(); }

}  // namespace ppengine::schedules
