// Methods of strings, lists and dicts, global functions, and tests (`x is string`) of templates.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <ppengine/models/chat/chat_template.hpp>
#include <ppengine/models/chat/evaluator.hpp>
#include <ppengine/models/chat/text.hpp>

namespace ppengine::models::chat {
namespace {

constexpr std::array<std::string_view, 22> string_methods{
    "capitalize", "count",  "endswith", "find",   "isdigit", "isspace",    "isupper",    "join",  "lower",        "lstrip", "removeprefix",
    "replace",    "rsplit", "rfind",    "rstrip", "split",   "splitlines", "startswith", "strip", "removesuffix", "title",  "upper"};
constexpr std::array<std::string_view, 4> dict_methods{"items", "keys", "values", "get"};
constexpr std::array<std::string_view, 2> list_methods{"index", "count"};
constexpr std::array<std::string_view, 5> functions{"range", "namespace", "raise_exception", "strftime_now", "dict"};

// strip(chars): any of these characters (bytes: templates strip ASCII ones).
std::string_view strip_of(std::string_view text, std::string_view characters, bool left, bool right) {
  while (left && !text.empty() && characters.find(text.front()) != characters.npos) text.remove_prefix(1);
  while (right && !text.empty() && characters.find(text.back()) != characters.npos) text.remove_suffix(1);
  return text;
}

std::vector<Value> split(std::string_view text, const Value& separator, std::int64_t most, bool from_right) {
  std::vector<Value> parts;
  const bool blanks = !separator.is_string();
  const std::string by = blanks ? "" : separator.string();
  if (from_right) {
    while (most != 0) {
      const std::size_t at = blanks ? text.npos : text.rfind(by);
      if (at == text.npos) break;
      parts.emplace_back(std::string(text.substr(at + by.size())));
      text = text.substr(0, at);
      --most;
    }
    parts.emplace_back(std::string(text));
    std::ranges::reverse(parts);
    return parts;
  }
  if (blanks) {
    for (text = strip(text, true, false); !text.empty(); text = strip(text, true, false)) {
      if (most-- == 0) {
        parts.emplace_back(std::string(strip(text, false, true)));
        break;
      }
      const std::size_t end = std::min(text.find_first_of(" \t\n\r\f\v"), text.size());
      parts.emplace_back(std::string(text.substr(0, end)));
      text.remove_prefix(end);
    }
    return parts;
  }
  for (std::size_t at = text.find(by); most != 0 && at != text.npos; at = text.find(by), --most) {
    parts.emplace_back(std::string(text.substr(0, at)));
    text.remove_prefix(at + by.size());
  }
  parts.emplace_back(std::string(text));
  return parts;
}

std::string replace(Evaluator& in, const std::string& text, const std::string& from, const std::string& to, std::int64_t most) {
  std::string out;
  if (from.empty()) in.refuse("replace: an empty text cannot be replaced here");
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != text.npos && most != 0; found = text.find(from, at), --most) {
    out.append(text, at, found - at);
    out += to;
    in.allocate(to.size());
    at = found + from.size();
  }
  return out.append(text, at);
}

bool ends_or_starts(Evaluator& in, const std::string& text, const Value& what, bool starts) {
  if (what.is_list())
    return std::ranges::any_of(what.list().items, [&](const Value& each) { return ends_or_starts(in, text, each, starts); });
  if (!what.is_string()) in.refuse("startswith and endswith want a string");
  return starts ? text.starts_with(what.string()) : text.ends_with(what.string());
}

}  // namespace

bool Evaluator::has_function(std::string_view name) { return std::ranges::find(functions, name) != functions.end(); }

bool Evaluator::has_method(const Value& value, std::string_view name) {
  const auto in = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (value.is_string()) return in(string_methods);
  if (value.is_list()) return in(list_methods);
  return value.is_dict() && !value.dict().is_namespace && in(dict_methods);
}

Value Evaluator::method(const Value& self, const std::string& name, const Arguments& given) {
  spend(1 + self.weight());
  if (self.is_dict()) {
    if (name == "items") return filter("items", self, {});
    if (name == "get") {
      const Value* found = self.dict().find(given.get(0, "key", None{}));
      return found ? *found : given.get(1, "default", None{});
    }
    std::vector<Value> out;
    for (const auto& [key, value] : self.dict().items) out.push_back(name == "keys" ? key : value);
    return list(std::move(out));
  }
  if (self.is_list()) {
    const Value wanted = given.get(0, "value", None{});
    const auto& items = self.list().items;
    if (name == "count")
      return static_cast<std::int64_t>(std::ranges::count_if(items, [&](const Value& each) { return equal(each, wanted); }));
    const auto found = std::ranges::find_if(items, [&](const Value& each) { return equal(each, wanted); });
    if (found == items.end()) refuse(fmt::format("{} is not in the list", wanted.repr()));
    return static_cast<std::int64_t>(found - items.begin());
  }
  const std::string& own = self.string();
  const auto argument = [&](std::size_t i) -> std::string {
    const Value* value = given.find(i, "");
    if (!value || !value->is_string()) refuse(fmt::format("'{}' wants a string", name));
    return value->string();
  };
  const auto position = [&](std::size_t byte) -> Value {
    return byte == own.npos ? std::int64_t{-1} : static_cast<std::int64_t>(code_points(std::string_view(own).substr(0, byte)));
  };
  if (name == "upper") return text(to_upper(own));
  if (name == "lower") return text(to_lower(own));
  if (name == "title") return text(titled(own));
  if (name == "capitalize") return text(capitalized(own));
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const bool left = name != "rstrip", right = name != "lstrip";
    const Value characters = given.get(0, "chars", None{});
    return text(std::string(characters.is_string() ? strip_of(own, characters.string(), left, right) : strip(own, left, right)));
  }
  if (name == "startswith" || name == "endswith") return ends_or_starts(*this, own, given.get(0, "", Undefined{}), name == "startswith");
  if (name == "removeprefix") return own.starts_with(argument(0)) ? text(own.substr(argument(0).size())) : self;
  if (name == "removesuffix") return own.ends_with(argument(0)) ? text(own.substr(0, own.size() - argument(0).size())) : self;
  if (name == "find") return position(own.find(argument(0)));
  if (name == "rfind") return position(own.rfind(argument(0)));
  if (name == "join") return filter("join", given.get(0, "", Undefined{}), {{self}, {}});
  if (name == "replace") {
    const Value most = given.get(2, "count", std::int64_t{-1});
    return text(replace(*this, own, argument(0), argument(1), most.is_integer() ? most.integer() : -1));
  }
  if (name == "count") {
    const std::string what = argument(0);
    if (what.empty()) return static_cast<std::int64_t>(code_points(own) + 1);
    std::int64_t count = 0;
    for (std::size_t at = own.find(what); at != own.npos; at = own.find(what, at + what.size())) ++count;
    return count;
  }
  if (name == "isdigit") return !own.empty() && std::ranges::all_of(own, [](char c) { return c >= '0' && c <= '9'; });
  if (name == "isspace") return !own.empty() && strip(own, true, false).empty();
  if (name == "isupper") return to_upper(own) == own && to_lower(own) != own;
  if (name == "splitlines") {
    std::vector<Value> lines = split(own, "\n", -1, false);
    if (lines.back().string().empty()) lines.pop_back();
    for (Value& line : lines)
      if (line.string().ends_with('\r')) line = Value(line.string().substr(0, line.string().size() - 1));
    spend(lines.size());
    return list(std::move(lines));
  }
  // split, rsplit
  const Value separator = given.get(0, "sep", None{}), most = given.get(1, "maxsplit", std::int64_t{-1});
  if (separator.is_string() && separator.string().empty()) refuse("split: the separator is empty");
  if (!separator.is_string() && name == "rsplit") refuse("rsplit without a separator is not supported");
  std::vector<Value> parts = split(own, separator, most.is_integer() ? most.integer() : -1, name == "rsplit");
  allocate(own.size() + parts.size() * 64);
  spend(parts.size());
  return list(std::move(parts));
}

Value Evaluator::function(const std::string& name, const Arguments& given) {
  if (name == "raise_exception") refuse(fmt::format("the template refuses the messages: {}", text_of(given.get(0, "message", ""))));
  if (name == "namespace" || name == "dict") {
    std::vector<std::pair<Value, Value>> items;
    if (!given.positional.empty() && given.positional[0].is_dict()) items = given.positional[0].dict().items;
    for (const auto& [key, value] : given.named) {
      if (name == "namespace" && value.holds_namespace()) refuse("a namespace in an attribute of a namespace is not supported");
      items.emplace_back(Value(key), value);
    }
    allocate(items.size() * 2 * sizeof(Value));
    return Value::dict(std::move(items), name == "namespace");
  }
  if (name == "strftime_now") {
    const std::time_t now = now_ ? *now_ : std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    std::array<char, 512> buffer{};
    const std::string format = text_of(given.get(0, "format", "%Y-%m-%d"));
    return Value(std::string(buffer.data(), std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts)));
  }
  // range
  std::int64_t parts[3] = {0, 0, 1};
  if (given.positional.empty() || given.positional.size() > 3) refuse("range wants one to three integers");
  for (std::size_t i = 0; i < given.positional.size(); ++i) {
    if (!given.positional[i].is_integer()) refuse("range wants integers");
    parts[given.positional.size() == 1 ? 1 : i] =
        std::clamp<std::int64_t>(given.positional[i].integer(), -(std::int64_t{1} << 40), std::int64_t{1} << 40);
  }
  if (parts[2] == 0) refuse("range: the step must not be 0");
  std::vector<Value> out;
  for (std::int64_t i = parts[0]; parts[2] > 0 ? i < parts[1] : i > parts[1]; i += parts[2]) {
    spend(1);
    if (out.size() >= 100'000) refuse("range: more than 100000 numbers");
    out.emplace_back(i);
  }
  return list(std::move(out));
}

bool Evaluator::test(const std::string& name, const Value& value, const Arguments& given) {
  spend(1);
  const auto other = [&]() -> Value {
    if (given.positional.empty()) refuse(fmt::format("the test '{}' wants a value", name));
    return given.positional[0];
  };
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_dict() && !value.dict().is_namespace;
  if (name == "iterable") return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
  if (name == "sequence") return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is_integer();
  if (name == "float") return value.is_float();
  if (name == "boolean") return value.is_bool();
  if (name == "true") return value.is_bool() && value.truth();
  if (name == "false") return value.is_bool() && !value.truth();
  if (name == "callable") return value.is_callable();
  if (name == "lower") return to_lower(text_of(value)) == text_of(value);
  if (name == "upper") return to_upper(text_of(value)) == text_of(value);
  if (name == "in") return contains(other(), value);
  spend(value.weight());
  if (name == "eq" || name == "equalto" || name == "sameas") return equal(value, other());
  if (name == "ne") return !equal(value, other());
  if (name == "lt" || name == "lessthan") return compare(value, other()) < 0;
  if (name == "gt" || name == "greaterthan") return compare(value, other()) > 0;
  if (name == "le") return compare(value, other()) <= 0;
  if (name == "ge") return compare(value, other()) >= 0;
  if (name == "even" || name == "odd" || name == "divisibleby") {
    if (!value.is_integer()) refuse(fmt::format("the test '{}' wants an integer", name));
    const Value by = name == "divisibleby" ? other() : Value(std::int64_t{2});
    if (!by.is_integer() || by.integer() == 0 || by.integer() == -1) refuse("divisibleby wants an integer other than 0 and -1");
    return (value.integer() % by.integer() == 0) == (name != "odd");
  }
  refuse(fmt::format("the test '{}' is not supported in chat templates", name));
}

}  // namespace ppengine::models::chat
