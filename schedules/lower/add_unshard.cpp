// unshard/reshard: gather the parameters of the next few distinct stages ahead of their use, free the others to make
// room.
#include <fmt/format.h>

#include <algorithm>

#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/lower/active_stages.hpp>

namespace ppengine::schedules {
namespace {

// A row's stages in the order of their next use, kept up to date while the row is walked: no action looks ahead over
// the whole rest of the row, so the pass stays linear.
class NextUses {
 public:
  NextUses(const std::vector<Action>& row, int stages) : row_(row), again_(row.size()) {
    std::vector<std::size_t> next(static_cast<std::size_t>(stages), never);
    for (std::size_t i = row.size(); i-- > 0;) {
      again_[i] = next[row[i].stage];
      next[row[i].stage] = i;
    }
    for (int s = 0; s < stages; ++s)
      if (next[static_cast<std::size_t>(s)] != never) uses_.push_back(next[static_cast<std::size_t>(s)]);
    std::sort(uses_.begin(), uses_.end());
  }

  // The next `count` distinct stages. An overlap brings both of its stages, even where only one more has room.
  void wanted(std::size_t count, std::vector<int>& stages) const {
    stages.clear();
    std::size_t n = std::min(count, uses_.size());
    if (n > 0 && n < uses_.size() && row_[uses_[n - 1]].joined && uses_[n] == uses_[n - 1] + 1) ++n;
    for (std::size_t k = 0; k < n; ++k) stages.push_back(row_[uses_[k]].stage);
  }

  // Action `i` has run: its stage moves back to its next use. Actions pass in order, so it is the first one.
  void pass(std::size_t i) {
    uses_.erase(uses_.begin());
    if (again_[i] != never) uses_.insert(std::lower_bound(uses_.begin(), uses_.end(), again_[i]), again_[i]);
  }

 private:
  static constexpr std::size_t never = static_cast<std::size_t>(-1);
  const std::vector<Action>& row_;
  std::vector<std::size_t> again_;  // the next action of the same stage
  std::vector<std::size_t> uses_;   // the next action of every stage that is still to come, ascending
};

std::vector<Action> lower_row(const std::vector<Action>& row, int stages, std::size_t max_active) {
  NextUses next(row, stages);
  ActiveStages active;
  std::vector<int> wanted;
  std::vector<Action> out;
  out.reserve(row.size() + 16);
  auto is_wanted = [&](int stage) { return std::find(wanted.begin(), wanted.end(), stage) != wanted.end(); };

  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool second_part = i > 0 && row[i - 1].joined;
    if (!second_part) {
      next.wanted(max_active, wanted);
      // 1. Free what is not needed soon.
      for (const int stage : active.in_order()) {
        if (is_wanted(stage)) continue;
        active.remove(stage);
        out.push_back(make_action(stage, ActionType::reshard));
      }
      // 2. Gather what is, in the order of its use.
      for (const int stage : wanted) {
        if (active.contains(stage)) continue;
        active.add(stage);
        out.push_back(make_action(stage, ActionType::unshard));
      }
    }
    // 3. The action itself.
    out.push_back(row[i]);
    next.pass(i);
  }
  for (const int stage : active.in_order()) out.push_back(make_action(stage, ActionType::reshard));
  return out;
}

}  // namespace

Plan add_unshard(Plan plan, int max_active_stages) {
  if (max_active_stages < 1) throw ConfigError(fmt::format("at least one stage must be active, not {}", max_active_stages));
  for (auto& row : plan.actions) {
    std::erase_if(row, [](const Action& a) { return a.type == ActionType::idle; });
    row = lower_row(row, plan.stages, static_cast<std::size_t>(max_active_stages));
    row.shrink_to_fit();
  }
  plan.format = PlanFormat::compute_comms;
  return plan;
}

}  // namespace ppengine::schedules
