// Costs from text and files.
#include <ppengine/schedules/costs.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include <ppengine/base/error.hpp>

namespace ppengine::schedules {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto comma = text.find(',');
    parts.push_back(trimmed(text.substr(0, comma)));
    if (comma == text.npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

bool parse_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(value) && value >= 0;
}

}  // namespace

double Costs::compute(const Action& action) const {
  switch (action.type) {
    case ActionType::forward:
      return of(action.stage).forward;
    case ActionType::backward:
      return of(action.stage).backward_input + of(action.stage).backward_weight;
    case ActionType::backward_input:
      return of(action.stage).backward_input;
    case ActionType::backward_weight:
      return of(action.stage).backward_weight;
    case ActionType::unshard:
      return unshard;
    case ActionType::reduce_grad:
      return reduce_grad;
    default:
      return 0;
  }
}

double Costs::cell(const Action* first) const {
  if (!first->joined) return compute(*first);
  const double forward = compute(first[0]), backward = compute(first[1]);
  return std::max({forward, backward, overlap_factor * (forward + backward)});
}

void parse_costs(std::string_view text, Costs& costs) {
  for (const std::string_view part : split_commas(text)) {
    const auto equals = part.find('=');
    const std::string_view key = trimmed(part.substr(0, equals));
    double value = 0;
    if (equals == part.npos || !parse_number(trimmed(part.substr(equals + 1)), value))
      throw ConfigError(
          fmt::format("costs: \"{}\" is not KEY=NUMBER with a number of 0 or more; "
                      "write them as F=1,I=1,W=1,comm=0",
                      part));
    auto set_all = [&](double StageCosts::* field) {
      for (auto& stage : costs.stages) stage.*field = value;
    };
    if (key == "F")
      set_all(&StageCosts::forward);
    else if (key == "I")
      set_all(&StageCosts::backward_input);
    else if (key == "W")
      set_all(&StageCosts::backward_weight);
    else if (key == "activation")
      set_all(&StageCosts::activation_bytes);
    else if (key == "comm")
      costs.communication = value;
    else if (key == "latency")
      costs.latency = value;
    else if (key == "bandwidth")
      costs.bandwidth = value;
    else if (key == "bytes")
      costs.message_bytes = value;
    else if (key == "unshard")
      costs.unshard = value;
    else if (key == "reduce")
      costs.reduce_grad = value;
    else if (key == "B")
      throw ConfigError("costs: B always costs I + W; give I and W");
    else
      throw ConfigError(
          fmt::format("costs: unknown key \"{}\"; the keys are F, I, W, comm, latency, bandwidth, bytes, "
                      "activation, unshard and reduce",
                      key));
  }
}

void load_stage_costs(const std::string& path, Costs& costs) {
  std::ifstream file(path);
  if (!file) throw FileError(fmt::format("{}: cannot be opened; give a file with a line F,I,W per stage", path));
  std::vector<StageCosts> stages;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto parts = split_commas(line);
    if (parts.size() == 1 && parts[0].empty()) continue;
    StageCosts stage;
    double* const fields[] = {&stage.forward, &stage.backward_input, &stage.backward_weight, &stage.activation_bytes};
    bool good = parts.size() == 3 || parts.size() == 4;
    for (std::size_t i = 0; good && i < parts.size(); ++i) good = parse_number(parts[i], *fields[i]);
    if (!good && number == 1 && !parts[0].empty() && parts[0].front() == 'F') continue;  // the header
    if (!good)
      throw FileError(fmt::format("{}: line {} \"{}\" is not F,I,W or F,I,W,activation_bytes in numbers of 0 or more", path, number, line));
    if (static_cast<int>(stages.size()) >= max_stages) throw FileError(fmt::format("{}: too many stages", path));
    stages.push_back(stage);
  }
  if (stages.empty()) throw FileError(fmt::format("{}: no stages in it; give a line F,I,W per stage", path));
  costs.stages = std::move(stages);
}

void check_costs(const Costs& costs, int stages) {
  auto bad = [](double x) { return !std::isfinite(x) || x < 0; };
  for (const auto& s : costs.stages)
    if (bad(s.forward) || bad(s.backward_input) || bad(s.backward_weight) || bad(s.activation_bytes))
      throw ConfigError("costs must be finite and not negative");
  if (bad(costs.message()) || bad(costs.unshard) || bad(costs.reduce_grad)) throw ConfigError("costs must be finite and not negative");
  if (!(costs.overlap_factor > 0 && costs.overlap_factor <= 1))
    throw ConfigError(fmt::format("the overlap factor must be above 0 and at most 1, not {}", costs.overlap_factor));
  if (costs.stages.size() != 1 && costs.stages.size() != static_cast<std::size_t>(stages))
    throw ConfigError(
        fmt::format("costs for {} stages were given, but the plan has {}; give one line per stage", costs.stages.size(), stages));
}

}  // namespace ppengine::schedules
