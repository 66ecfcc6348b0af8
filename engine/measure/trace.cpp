// Traces as JSON, in the format of chrome://tracing.
#include <ppengine/engine/measure/trace.hpp>

#include <fmt/format.h>

#include <limits>
#include <tuple>
#include <unordered_map>

#include <ppengine/base/file.hpp>

namespace ppengine::engine {
namespace {

using schedules::Action;
using schedules::ActionType;

constexpr const char* lanes[] = {"compute", "send", "receive", "reduction"};

int lane_of(ActionType type) {
  if (schedules::is_send(type)) return 1;
  if (schedules::is_recv(type)) return 2;
  return type == ActionType::reduce_grad || type == ActionType::unshard || type == ActionType::reshard ? 3 : 0;
}

class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& path, const schedules::Plan& plan, int copies, std::int64_t first_step)
      : file_(path), plan_(plan), copies_(copies), first_step_(first_step) {}

  void write(const std::vector<std::vector<TimedAction>>& rows, const std::vector<std::vector<TimedReduction>>& reductions) {
    for (const auto& row : rows)
      if (!row.empty()) zero_ = std::min(zero_, row.front().start);
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (std::size_t rank = 0; rank < rows.size(); ++rank) names(static_cast<int>(rank));
    for (std::size_t rank = 0; rank < rows.size(); ++rank) slices(static_cast<int>(rank), rows[rank]);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) arrows(static_cast<int>(rank), rows[rank]);
    for (std::size_t rank = 0; rank < reductions.size(); ++rank)
      for (const TimedReduction& one : reductions[rank])
        event(
            R"({{"name":"stage {} bucket {}","cat":"reduction","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":3,"args":{{"bytes":{}}}}})",
            one.stage.number(), one.bucket, microseconds(one.start), 1e6 * (one.end - one.start), rank, one.bytes);
    text_ += "\n]}\n";
    file_.write(text_);
    file_.commit();
  }

 private:
  double microseconds(double seconds) const { return 1e6 * (seconds - zero_); }
  std::size_t run_length(int rank) const { return plan_.of(rank / copies_).size(); }

  template <class... Arguments>
  void event(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (!first_) text_ += ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    if (text_.size() > (1u << 20)) {
      file_.write(text_);
      text_.clear();
    }
  }

  void names(int rank) {
    event(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
    event(R"({{"name":"process_sort_index","ph":"M","pid":{0},"args":{{"sort_index":{0}}}}})", rank);
    for (int lane = 0; lane < 4; ++lane) {
      event(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank, lane, lanes[lane]);
      event(R"({{"name":"thread_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", rank, lane, lane);
    }
  }

  void slices(int rank, const std::vector<TimedAction>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const TimedAction& one = row[i];
      const std::size_t run = i / run_length(rank);
      Action cell[2] = {one.action, {}};
      if (one.overlapped && i + 1 < row.size()) cell[1] = row[++i].action;
      event(
          R"({{"name":"{}","cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{"step":{},"stage":{},"microbatch":{}}}}})",
          schedules::cell_text(cell), one.overlapped ? "OVERLAP_F_B" : schedules::type_name(one.action.type), microseconds(one.start),
          1e6 * (one.end - one.start), rank, lane_of(one.action.type), first_step_ + static_cast<std::int64_t>(run), one.action.stage,
          one.action.microbatch);
      // Where arrows end: the first computation of a run that reads what came from another stage.
      for (const Action& part : cell)
        if (part.type == ActionType::forward || schedules::gives_input_gradient(part.type))
          users_[key(rank % copies_, run, part.stage, static_cast<int>(part.microbatch), part.type != ActionType::forward)] = {
              rank, one.start, one.end};
    }
  }

  void arrows(int rank, const std::vector<TimedAction>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Action& action = row[i].action;
      if (!schedules::is_send(action.type)) continue;
      const bool backward = action.type == ActionType::send_backward;
      const auto user = users_.find(
          key(rank % copies_, i / run_length(rank), schedules::peer_stage(action), static_cast<int>(action.microbatch), backward));
      if (user == users_.end()) continue;
      const auto& [to, start, end] = user->second;
      const char* name = backward ? "gradient" : "activation";
      ++arrows_;
      event(R"({{"name":"{}","cat":"message","ph":"s","id":{},"ts":{:.3f},"pid":{},"tid":1}})", name, arrows_, microseconds(row[i].start),
            rank);
      event(R"({{"name":"{}","cat":"message","ph":"f","bp":"e","id":{},"ts":{:.3f},"pid":{},"tid":0}})", name, arrows_,
            microseconds(std::max(start, std::min(row[i].start, end))), to);
    }
  }

  std::uint64_t key(int copy, std::size_t run, int stage, int microbatch, bool backward) const {
    const std::uint64_t place = (static_cast<std::uint64_t>(run) * static_cast<std::uint64_t>(copies_) + static_cast<std::uint64_t>(copy));
    return ((place * static_cast<std::uint64_t>(plan_.stages) + static_cast<std::uint64_t>(stage)) *
                static_cast<std::uint64_t>(plan_.microbatches) +
            static_cast<std::uint64_t>(microbatch)) *
               2 +
           (backward ? 1 : 0);
  }

  AtomicFile file_;
  const schedules::Plan& plan_;
  int copies_;
  std::int64_t first_step_;
  double zero_ = std::numeric_limits<double>::infinity();
  std::string text_;
  bool first_ = true;
  int arrows_ = 0;
  std::unordered_map<std::uint64_t, std::tuple<int, double, double>> users_;  // rank, start, end
};

}  // namespace

void write_trace(const std::filesystem::path& file, const schedules::Plan& plan, int copies,
                 const std::vector<std::vector<TimedAction>>& rows, std::int64_t first_step,
                 const std::vector<std::vector<TimedReduction>>& reductions) {
  TraceWriter(file, plan, copies, first_step).write(rows, reductions);
}

}  // namespace ppengine::engine
