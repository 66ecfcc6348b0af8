// Filters of templates.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include <ppengine/models/chat/chat_template.hpp>
#include <ppengine/models/chat/evaluator.hpp>
#include <ppengine/models/chat/text.hpp>

namespace ppengine::models::chat {
namespace {

using Filter = std::function<Value(Evaluator&, const Value&, const Arguments&)>;

Value default_of(Evaluator&, const Value& value, const Arguments& given) {
  const bool empty_too = given.get(1, "boolean", false).truth();
  return value.is_undefined() || (empty_too && !value.truth()) ? given.get(0, "default_value", "") : value;
}

// What `attribute="a.b"` names in each value.
Value path(Evaluator& in, Value value, const Value& name) {
  if (name.is_integer()) return in.item(value, name);
  const std::string whole = in.text_of(name);
  for (std::size_t begin = 0; begin <= whole.size();) {
    const std::size_t end = std::min(whole.find('.', begin), whole.size());
    value = in.item(value, Value(whole.substr(begin, end - begin)));
    begin = end + 1;
  }
  return value;
}

Value join(Evaluator& in, const Value& value, const Arguments& given) {
  const std::string separator = in.text_of(given.get(0, "d", ""));
  const Value* attribute = given.find(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& each : in.elements(value)) {
    if (!first) out += separator;
    first = false;
    out += in.text_of(attribute ? path(in, each, *attribute) : each);
    in.allocate(separator.size());
  }
  return in.text(std::move(out));
}

Value map(Evaluator& in, const Value& value, const Arguments& given) {
  std::vector<Value> out;
  const Value* attribute = given.find(given.positional.size(), "attribute");
  const Value otherwise = given.get(given.positional.size(), "default", Undefined{"map"});
  if (!attribute && given.positional.empty()) in.refuse("map() wants a filter's name or attribute=");
  for (const Value& each : in.elements(value)) {
    if (attribute) {
      Value found = path(in, each, *attribute);
      out.push_back(found.is_undefined() ? otherwise : std::move(found));
    } else {
      Arguments rest;
      rest.positional.assign(given.positional.begin() + 1, given.positional.end());
      rest.named = given.named;
      out.push_back(in.filter(in.text_of(given.positional[0]), each, rest));
    }
  }
  return in.list(std::move(out));
}

// select, reject, selectattr, rejectattr.
Value select(Evaluator& in, const Value& value, const Arguments& given, bool keeps, bool of_attribute) {
  std::vector<Value> out;
  const std::size_t skip = of_attribute ? 1 : 0;
  if (of_attribute && given.positional.empty()) in.refuse("selectattr() and rejectattr() want an attribute's name");
  Arguments rest;
  if (given.positional.size() > skip + 1)
    rest.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(skip) + 1, given.positional.end());
  for (const Value& each : in.elements(value)) {
    const Value tested = of_attribute ? path(in, each, given.positional[0]) : each;
    const bool holds = given.positional.size() > skip ? in.test(in.text_of(given.positional[skip]), tested, rest) : tested.truth();
    if (holds == keeps) out.push_back(each);
  }
  return in.list(std::move(out));
}

Value items(Evaluator& in, const Value& value, const Arguments&) {
  if (value.is_undefined()) return in.list({});
  if (!value.is_dict()) in.refuse(fmt::format("items wants a dict, not {}", value.type_name()));
  std::vector<Value> out;
  for (const auto& [key, item] : value.dict().items) out.push_back(Value::list({key, item}, true));
  return in.list(std::move(out));
}

Value length(Evaluator& in, const Value& value, const Arguments&) {
  if (value.is_undefined()) return std::int64_t{0};
  if (value.is_string()) return in.spend(value.weight()), static_cast<std::int64_t>(code_points(value.string()));
  if (value.is_list()) return static_cast<std::int64_t>(value.list().items.size());
  if (value.is_dict()) return static_cast<std::int64_t>(value.dict().items.size());
  in.refuse(fmt::format("a value of type {} has no length", value.type_name()));
}

Value sort(Evaluator& in, const Value& value, const Arguments& given) {
  std::vector<Value> all = in.elements(value);
  const bool reverse = given.get(0, "reverse", false).truth(), exact = given.get(1, "case_sensitive", false).truth();
  const Value* attribute = given.find(2, "attribute");
  const auto key = [&](const Value& each) {
    Value found = attribute ? path(in, each, *attribute) : each;
    return found.is_string() && !exact ? Value(to_lower(found.string())) : found;
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : all) keyed.emplace_back(key(each), each);
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    in.spend(2);
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  std::vector<Value> out;
  for (auto& each : keyed) out.push_back(std::move(each.second));
  return in.list(std::move(out));
}

Value dictsort(Evaluator& in, const Value& value, const Arguments& given) {
  return sort(in, items(in, value, {}), {{given.get(2, "reverse", false), false, std::int64_t{0}}, {}});
}

Value extreme(Evaluator& in, const Value& value, const Arguments& given, bool largest) {
  const Value* attribute = given.find(1, "attribute");
  Value best = Undefined{"an element of an empty list"}, best_key;
  for (const Value& each : in.elements(value)) {
    Value key = attribute ? path(in, each, *attribute) : each;
    if (best.is_undefined() || (largest ? compare(key, best_key) > 0 : compare(key, best_key) < 0)) best = each, best_key = key;
  }
  return best;
}

Value unique(Evaluator& in, const Value& value, const Arguments&) {
  std::vector<Value> out;
  for (const Value& each : in.elements(value)) {
    in.spend(out.size() + each.weight());
    if (std::ranges::none_of(out, [&](const Value& old) { return equal(old, each); })) out.push_back(each);
  }
  return in.list(std::move(out));
}

Value sum(Evaluator& in, const Value& value, const Arguments& given) {
  const Value* attribute = given.find(0, "attribute");
  double total = 0;
  bool is_float = false;
  for (const Value& each : in.elements(value)) {
    const Value part = attribute ? path(in, each, *attribute) : each;
    if (!part.is_number()) in.refuse(fmt::format("sum of a value of type {}", part.type_name()));
    is_float |= part.is_float();
    total += part.number();
  }
  return is_float ? Value(total) : Value(static_cast<std::int64_t>(total));
}

Value to_integer(Evaluator& in, const Value& value, const Arguments& given) {
  const Value otherwise = given.get(0, "default", std::int64_t{0});
  if (value.is_integer() || value.is_bool()) return value.integer();
  const auto whole = [&](double number) -> Value { return std::abs(number) < 9e18 ? Value(static_cast<std::int64_t>(number)) : otherwise; };
  if (value.is_float()) return whole(value.number());
  if (!value.is_string()) return otherwise;
  const std::string text(strip(in.text_of(value), true, true));
  std::int64_t number = 0;
  double real = 0;
  if (const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
      end.ec == std::errc() && end.ptr == text.data() + text.size())
    return number;
  if (const auto end = std::from_chars(text.data(), text.data() + text.size(), real);
      end.ec == std::errc() && end.ptr == text.data() + text.size())
    return whole(real);
  return otherwise;
}

Value to_float(Evaluator& in, const Value& value, const Arguments& given) {
  if (value.is_number()) return value.number();
  const std::string text(strip(in.text_of(value), true, true));
  double real = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), real);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && !text.empty() ? Value(real) : given.get(0, "default", 0.0);
}

Value tojson(Evaluator& in, const Value& value, const Arguments& given) {
  in.spend(value.weight());
  JsonStyle style;
  if (const Value* ascii = given.find(given.positional.size(), "ensure_ascii")) style.ensure_ascii = ascii->truth();
  if (const Value* indent = given.find(0, "indent"); indent && indent->is_integer())
    style.indent = static_cast<int>(std::clamp<std::int64_t>(indent->integer(), 0, 16));
  if (const Value* sorted = given.find(given.positional.size(), "sort_keys")) style.sort_keys = sorted->truth();
  if (const Value* both = given.find(given.positional.size(), "separators"); both && both->is_list() && both->list().items.size() == 2) {
    style.item = in.text_of(both->list().items[0]);
    style.key = in.text_of(both->list().items[1]);
    in.spend((style.item.size() + style.key.size()) * value.weight() / 64);
  }
  return in.text(to_json(value, style));
}

Value indent(Evaluator& in, const Value& value, const Arguments& given) {
  const Value width = given.get(0, "width", std::int64_t{4});
  const bool first = given.get(1, "first", false).truth(), blank = given.get(2, "blank", false).truth();
  const std::string by = width.is_string() ? width.string()
                                           : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                             width.is_number() ? static_cast<std::int64_t>(width.number()) : 4, 0, 1000)),
                                                         ' ');
  const std::string text = in.text_of(value);
  std::string out = first ? by : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] != '\n') continue;
    if (blank || (i + 1 < text.size() && text[i + 1] != '\n')) out += by, in.allocate(by.size());
  }
  return in.text(std::move(out));
}

Value round(Evaluator& in, const Value& value, const Arguments& given) {
  if (!value.is_number()) in.refuse(fmt::format("round of a value of type {}", value.type_name()));
  const Value digits = given.get(0, "precision", std::int64_t{0});
  const double scale = std::pow(10.0, digits.is_number() ? std::clamp(digits.number(), -15.0, 15.0) : 0);
  const std::string how = in.text_of(given.get(1, "method", "common"));
  const double scaled = value.number() * scale;
  return (how == "ceil" ? std::ceil(scaled) : how == "floor" ? std::floor(scaled) : std::nearbyint(scaled)) / scale;
}

Value escape(Evaluator& in, const Value& value, const Arguments&) {
  std::string out;
  for (const char c : in.text_of(value))
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&#34;" : c == '\'' ? "&#39;" : std::string(1, c);
  return in.text(std::move(out));
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const auto* table = new std::map<std::string, Filter, std::less<>>{
      {"abs",
       [](Evaluator& in, const Value& v, const Arguments&) -> Value {
         if (!v.is_number()) in.refuse("abs wants a number");
         if (v.is_float()) return std::abs(v.number());
         return v.integer() < 0 ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(v.integer())) : v.integer();
       }},
      {"attr", [](Evaluator& in, const Value& v, const Arguments& a) { return in.attribute(v, in.text_of(a.get(0, "name", ""))); }},
      {"capitalize", [](Evaluator& in, const Value& v, const Arguments&) { return in.text(capitalized(in.text_of(v))); }},
      {"count", length},
      {"d", default_of},
      {"default", default_of},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first",
       [](Evaluator& in, const Value& v, const Arguments&) {
         const auto all = in.elements(v);
         return all.empty() ? Value(Undefined{"the first element of an empty list"}) : all.front();
       }},
      {"float", to_float},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last",
       [](Evaluator& in, const Value& v, const Arguments&) {
         const auto all = in.elements(v);
         return all.empty() ? Value(Undefined{"the last element of an empty list"}) : all.back();
       }},
      {"length", length},
      {"list", [](Evaluator& in, const Value& v, const Arguments&) { return in.list(in.elements(v)); }},
      {"lower", [](Evaluator& in, const Value& v, const Arguments&) { return in.text(to_lower(in.text_of(v))); }},
      {"map", map},
      {"max", [](Evaluator& in, const Value& v, const Arguments& a) { return extreme(in, v, a, true); }},
      {"min", [](Evaluator& in, const Value& v, const Arguments& a) { return extreme(in, v, a, false); }},
      {"reject", [](Evaluator& in, const Value& v, const Arguments& a) { return select(in, v, a, false, false); }},
      {"rejectattr", [](Evaluator& in, const Value& v, const Arguments& a) { return select(in, v, a, false, true); }},
      {"replace", [](Evaluator& in, const Value& v, const Arguments& a) { return in.method(Value(in.text_of(v)), "replace", a); }},
      {"reverse",
       [](Evaluator& in, const Value& v, const Arguments&) {
         auto all = in.elements(v);
         std::ranges::reverse(all);
         if (!v.is_string()) return in.list(std::move(all));
         std::string out;
         for (const Value& each : all) out += each.string();
         return in.text(std::move(out));
       }},
      {"round", round},
      {"safe", [](Evaluator&, const Value& v, const Arguments&) { return v; }},
      {"select", [](Evaluator& in, const Value& v, const Arguments& a) { return select(in, v, a, true, false); }},
      {"selectattr", [](Evaluator& in, const Value& v, const Arguments& a) { return select(in, v, a, true, true); }},
      {"sort", sort},
      {"string", [](Evaluator& in, const Value& v, const Arguments&) { return v.is_string() ? v : in.text(in.text_of(v)); }},
      {"sum", sum},
      {"title", [](Evaluator& in, const Value& v, const Arguments&) { return in.text(titled(in.text_of(v))); }},
      {"tojson", tojson},
      {"trim", [](Evaluator& in, const Value& v, const Arguments& a) { return in.method(Value(in.text_of(v)), "strip", a); }},
      {"unique", unique},
      {"upper", [](Evaluator& in, const Value& v, const Arguments&) { return in.text(to_upper(in.text_of(v))); }},
  };
  return *table;
}

}  // namespace

Value Evaluator::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  spend(2);
  const auto found = filters().find(name);
  if (found == filters().end()) refuse(fmt::format("the filter '{}' is not supported in chat templates", name));
  return found->second(*this, value, arguments);
}

}  // namespace ppengine::models::chat
