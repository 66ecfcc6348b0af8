// Reading and writing plan files.
#include <ppengine/schedules/csv.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <ppengine/schedules/check/validate.hpp>

namespace ppengine::schedules {
namespace {

constexpr std::uintmax_t max_file_bytes = std::uintmax_t{1} << 31;

// Text from files may be anything: what goes into a message is short and printable.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c < 127 ? c : '?';
  if (text.size() > 60) out += "...";
  return out;
}

// A row's cells one after the other. Quotes are the CSV kind: Python's writer puts a lone empty cell in them.
std::string_view next_cell(std::string_view& row, bool& more) {
  const auto comma = row.find(',');
  std::string_view cell = row.substr(0, comma);
  more = comma != row.npos;
  row.remove_prefix(more ? comma + 1 : row.size());
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
  return cell;
}

std::vector<Action> parse_row(std::string_view row, int rank) {
  std::vector<Action> actions;
  if (row.empty()) return actions;
  actions.reserve(static_cast<std::size_t>(std::count(row.begin(), row.end(), ',')) + 1);
  bool more = true;
  for (int column = 0; more; ++column) {
    const std::string_view text = next_cell(row, more);
    Cell cell;
    if (const auto reason = parse_cell(text, cell); !reason.empty()) throw PlanError(rank, column, shown(text), reason);
    if (cell.count == 0) actions.push_back({});
    for (int i = 0; i < cell.count; ++i) actions.push_back(cell.parts[i]);
  }
  return actions;
}

// Stages, microbatches and placement follow from the actions; the first rank that names a stage has it.
void infer_shape(Plan& plan) {
  int last_microbatch = -1;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (const Action& a : plan.of(rank)) {
      if (a.type == ActionType::idle) continue;
      plan.stages = std::max(plan.stages, a.stage + 1);
      last_microbatch = std::max(last_microbatch, static_cast<int>(a.microbatch));
      if (!is_compute(a.type)) plan.format = PlanFormat::compute_comms;
      plan.stage_rank.resize(static_cast<std::size_t>(plan.stages), -1);
      int& owner = plan.stage_rank[a.stage];
      if (owner < 0) owner = rank;
    }
  }
  if (plan.stages == 0) throw PlanError("the plan has no actions; each row is one rank's actions such as 0F0,0B0");
  if (plan.microbatches == 0) plan.microbatches = last_microbatch + 1;
}

}  // namespace

std::string to_csv(const Plan& plan) {
  std::string out;
  for (const auto& row : plan.actions) {
    const std::size_t begin = out.size();
    for (std::size_t i = 0; i < row.size(); i += row[i].joined ? 2 : 1) {
      if (i > 0) out += ',';
      append_cell(out, &row[i]);
    }
    if (out.size() == begin && !row.empty()) out += "\"\"";
    out += "\r\n";
  }
  return out;
}

Plan parse_csv(std::string_view text, int microbatches) {
  Plan plan;
  plan.microbatches = microbatches;
  while (!text.empty()) {
    const auto newline = text.find('\n');
    std::string_view row = text.substr(0, newline);
    text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    if (plan.ranks == max_ranks) throw PlanError(fmt::format("more than {} rows", max_ranks));
    plan.actions.push_back(parse_row(row, plan.ranks));
    ++plan.ranks;
  }
  infer_shape(plan);
  return plan;
}

Plan load_plan(const std::string& path, int microbatches) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw FileError(fmt::format("{}: cannot be read ({}); give a plan file in CSV", path, error.message()));
  if (bytes > max_file_bytes) throw FileError(fmt::format("{}: {} bytes is too large for a plan file", path, bytes));
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  if (!file || !file.read(text.data(), static_cast<std::streamsize>(text.size()))) throw FileError(fmt::format("{}: cannot be read", path));
  try {
    Plan plan = parse_csv(text, microbatches);
    validate(plan);
    return plan;
  } catch (const ConfigError& e) {
    throw FileError(fmt::format("{}: {}", path, e.what()));
  }
}

}  // namespace ppengine::schedules
