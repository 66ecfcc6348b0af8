// The text of actions, both ways.
#include <ppengine/schedules/action.hpp>

#include <fmt/format.h>

#include <array>

#include <ppengine/base/error.hpp>

namespace ppengine::schedules {
namespace {

constexpr std::array<std::string_view, action_types> names = {"",       "F",      "B",      "I",       "W",       "SEND_F",
                                                              "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};
constexpr std::string_view overlap_name = "OVERLAP_F_B";
constexpr std::string_view expected = "expected [stage][type][microbatch] such as 2F0, 2SEND_B3, 1UNSHARD or (0F7;7B3)OVERLAP_F_B";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes a decimal number without leading zeros off the front of `text`.
std::string take_number(std::string_view& text, long limit, std::string_view what, long& value) {
  std::size_t digits = 0;
  while (digits < text.size() && is_digit(text[digits])) ++digits;
  if (digits == 0) return fmt::format("no {} number; {}", what, expected);
  if (digits > 1 && text[0] == '0') return fmt::format("the {} number has leading zeros", what);
  value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    value = value * 10 + (text[i] - '0');
    if (value >= limit) return fmt::format("the {} number is too large, it must be below {}", what, limit);
  }
  text.remove_prefix(digits);
  return {};
}

std::string parse_single(std::string_view text, Action& action) {
  long stage = 0;
  if (auto reason = take_number(text, max_stages, "stage", stage); !reason.empty()) return reason;
  std::size_t letters = 0;
  while (letters < text.size() && !is_digit(text[letters])) ++letters;
  const std::string_view name = text.substr(0, letters);
  text.remove_prefix(letters);

  int type = 1;
  while (type < action_types && names[static_cast<std::size_t>(type)] != name) ++type;
  if (type == action_types) return fmt::format("unknown type \"{}\"; {}", name, expected);
  action = make_action(static_cast<int>(stage), static_cast<ActionType>(type));

  if (!has_microbatch(action.type)) return text.empty() ? std::string{} : fmt::format("{} takes no microbatch", name);
  long microbatch = 0;
  if (auto reason = take_number(text, max_microbatches, "microbatch", microbatch); !reason.empty()) return reason;
  if (!text.empty()) return fmt::format("\"{}\" left over after the microbatch", text);
  action.microbatch = static_cast<std::uint32_t>(microbatch);
  return {};
}

std::string parse_overlap(std::string_view text, Cell& cell) {
  const auto close = text.find(')');
  if (close == text.npos || text.substr(close + 1) != overlap_name) return fmt::format("expected (F;B){}", overlap_name);
  const std::string_view inside = text.substr(1, close - 1);
  const auto middle = inside.find(';');
  if (middle == inside.npos) return "an overlap has two parts separated by ;";
  if (auto reason = parse_single(inside.substr(0, middle), cell.parts[0]); !reason.empty()) return reason;
  if (auto reason = parse_single(inside.substr(middle + 1), cell.parts[1]); !reason.empty()) return reason;
  if (cell.parts[0].type != ActionType::forward || !gives_input_gradient(cell.parts[1].type))
    return "an overlap is of a forward and a backward, in this order";
  cell.parts[0].joined = true;
  cell.count = 2;
  return {};
}

void append_single(std::string& out, const Action& a) {
  if (a.type == ActionType::idle) return;
  fmt::format_to(std::back_inserter(out), "{}{}", a.stage, type_name(a.type));
  if (has_microbatch(a.type)) fmt::format_to(std::back_inserter(out), "{}", a.microbatch);
}

}  // namespace

std::string_view type_name(ActionType type) { return names[static_cast<std::size_t>(type)]; }

std::string to_text(const Action& action) {
  std::string out;
  append_single(out, action);
  return out;
}

void append_cell(std::string& out, const Action* first) {
  if (!first->joined) return append_single(out, *first);
  out += '(';
  append_single(out, first[0]);
  out += ';';
  append_single(out, first[1]);
  out += ')';
  out += overlap_name;
}

std::string cell_text(const Action* first) {
  std::string out;
  append_cell(out, first);
  return out;
}

std::string parse_cell(std::string_view text, Cell& cell) {
  cell = {};
  if (text.empty()) return {};
  if (text.front() == '(') return parse_overlap(text, cell);
  cell.count = 1;
  return parse_single(text, cell.parts[0]);
}

Action parse_action(std::string_view text) {
  Action action;
  if (auto reason = parse_single(text, action); !reason.empty())
    throw ConfigError(fmt::format("\"{}\" is not an action: {}", text, reason));
  return action;
}

}  // namespace ppengine::schedules
