// Values of the template language.
#include <ppengine/models/chat/value.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <ppengine/models/chat/chat_template.hpp>

namespace ppengine::models::chat {
namespace {

constexpr int deepest = 128;
constexpr std::size_t heaviest = 4'000'000;

void check(int depth, std::size_t weight) {
  if (depth > deepest) throw TemplateError(fmt::format("values nested deeper than {} levels", deepest));
  if (weight > heaviest) throw TemplateError(fmt::format("a list of more than {} values", heaviest));
}

bool python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Text is valid UTF-8 or at least safe to walk: a lead byte without its rest counts as one character.
std::size_t length_at(std::string_view text, std::size_t at) {
  const auto c = static_cast<unsigned char>(text[at]);
  const std::size_t length = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
  return std::min(length, text.size() - at);
}

char32_t decode(std::string_view bytes) {
  const auto c = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1) return c;
  char32_t value = c & (0xffu >> (bytes.size() + 1));
  for (std::size_t i = 1; i < bytes.size(); ++i) value = value << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3f);
  return value;
}

std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\\' || c == quote)
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 32 || c == 127)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + quote;
}

std::string json_string(const std::string& text, bool ascii) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = length_at(text, i);
    const char c = text[i];
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\b')
      out += "\\b";
    else if (c == '\f')
      out += "\\f";
    else if (static_cast<unsigned char>(c) < 32)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else if (ascii && length > 1) {
      const char32_t point = decode(std::string_view(text).substr(i, length));
      if (point > 0xffff)
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((static_cast<unsigned>(point) - 0x10000) >> 10),
                           0xdc00 + ((static_cast<unsigned>(point) - 0x10000) & 0x3ff));
      else
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(point));
    } else {
      out.append(text, i, length);
    }
    i += length;
  }
  return out + '"';
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  for (const auto& [k, v] : items)
    if (equal(k, key)) return &v;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : items)
    if (k.is_string() && k.string() == key) return &v;
  return nullptr;
}

Value Value::list(std::vector<Value> items, bool tuple) {
  auto made = std::make_shared<List>();
  made->tuple = tuple;
  for (const Value& item : items) {
    made->depth = std::max(made->depth, item.depth() + 1);
    made->weight += item.weight();
    made->holds_namespace |= item.holds_namespace();
  }
  check(made->depth, made->weight);
  made->items = std::move(items);
  Value value;
  value.data_ = std::move(made);
  return value;
}

Value Value::dict(std::vector<std::pair<Value, Value>> items, bool is_namespace) {
  auto made = std::make_shared<Dict>();
  made->is_namespace = made->holds_namespace = is_namespace;
  for (const auto& [key, item] : items) {
    made->depth = std::max({made->depth, item.depth() + 1, key.depth() + 1});
    made->weight += key.weight() + item.weight();
    made->holds_namespace |= item.holds_namespace();
  }
  check(made->depth, made->weight);
  made->items = std::move(items);
  Value value;
  value.data_ = std::move(made);
  return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const auto& item : json) items.push_back(from_json(item));
    return list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, item] : json.items()) items.emplace_back(Value(key), from_json(item));
  return dict(std::move(items));
}

std::int64_t Value::integer() const { return is_bool() ? std::int64_t{std::get<bool>(data_)} : std::get<std::int64_t>(data_); }
double Value::number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_integer() || is_bool()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().items.empty();
  if (is_dict()) return dict().is_namespace || !dict().items.empty();
  return true;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return list().tuple ? "tuple" : "list";
  if (is_dict()) return dict().is_namespace ? "Namespace" : "dict";
  return "function";
}

std::string Value::text() const { return is_string() ? string() : is_undefined() ? "" : repr(); }

std::string Value::repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return integer() != 0 ? "True" : "False";
  if (is_integer()) return fmt::format("{}", integer());
  if (is_float()) return python_float(number());
  if (is_string()) return quoted(string());
  if (is_callable()) return fmt::format("<{}>", callable().name);
  std::string out;
  if (is_list()) {
    for (const Value& item : list().items) out += (out.empty() ? "" : ", ") + item.repr();
    if (list().tuple) return "(" + out + (list().items.size() == 1 ? ",)" : ")");
    return "[" + out + "]";
  }
  for (const auto& [key, item] : dict().items) out += (out.empty() ? "" : ", ") + key.repr() + ": " + item.repr();
  return dict().is_namespace ? "<Namespace {" + out + "}>" : "{" + out + "}";
}

int Value::depth() const { return is_list() ? list().depth : is_dict() ? dict().depth : 0; }
std::size_t Value::weight() const {
  return is_list() ? list().weight : is_dict() ? dict().weight : is_string() ? 1 + string().size() / 64 : 1;
}
bool Value::holds_namespace() const { return is_list() ? list().holds_namespace : is_dict() && dict().holds_namespace; }

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.is_float() || b.is_float() ? a.number() == b.number() : a.integer() == b.integer();
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_list() && b.is_list()) return a.list().tuple == b.list().tuple && std::ranges::equal(a.list().items, b.list().items, equal);
  if (a.is_dict() && b.is_dict()) {
    if (&a.dict() == &b.dict()) return true;
    if (a.dict().items.size() != b.dict().items.size() || a.dict().is_namespace || b.dict().is_namespace) return false;
    return std::ranges::all_of(a.dict().items, [&](const auto& item) {
      const Value* other = b.dict().find(item.first);
      return other && equal(item.second, *other);
    });
  }
  if (a.is_callable() && b.is_callable()) return &a.callable() == &b.callable();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  if (a.is_string() && b.is_string()) return a.string().compare(b.string());  // UTF-8 sorts as its code points do
  if (a.is_list() && b.is_list()) {
    const auto &x = a.list().items, &y = b.list().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i])) return compare(x[i], y[i]);
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  throw TemplateError(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const double magnitude = std::abs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, plain ? std::chars_format::fixed : std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

std::string to_json(const Value& value, const JsonStyle& style, int level) {
  if (value.is_none()) return "null";
  if (value.is_bool()) return value.truth() ? "true" : "false";
  if (value.is_integer()) return value.repr();
  if (value.is_float()) {
    const double number = value.number();
    return std::isnan(number) ? "NaN" : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity") : value.repr();
  }
  if (value.is_string()) return json_string(value.string(), style.ensure_ascii);
  if (!value.is_list() && !(value.is_dict() && !value.dict().is_namespace))
    throw TemplateError(fmt::format("tojson: an object of type {} is not JSON", value.type_name()));
  const auto new_line = [&](int at) {
    std::string line;
    if (style.indent >= 0) line.append(1, '\n').append(static_cast<std::size_t>(style.indent) * static_cast<std::size_t>(at), ' ');
    return line;
  };
  std::string separator = style.item;
  if (style.indent >= 0 && separator == ", ") separator = ",";
  std::string out;
  if (value.is_list()) {
    if (value.list().items.empty()) return "[]";
    for (const Value& item : value.list().items)
      out += (out.empty() ? "" : separator) + new_line(level + 1) + to_json(item, style, level + 1);
    return "[" + out + new_line(level) + "]";
  }
  if (value.dict().items.empty()) return "{}";
  auto items = value.dict().items;
  if (style.sort_keys) std::ranges::stable_sort(items, [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
  for (const auto& [key, item] : items) {
    const std::string name = key.is_string() ? key.string() : to_json(key, {});
    out += (out.empty() ? "" : separator) + new_line(level + 1) + json_string(name, style.ensure_ascii) + style.key +
           to_json(item, style, level + 1);
  }
  return "{" + out + new_line(level) + "}";
}

std::size_t code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += length_at(text, i)) ++count;
  return count;
}

std::size_t byte_offset(std::string_view text, std::size_t code_point) {
  std::size_t at = 0;
  for (; code_point > 0 && at < text.size(); --code_point) at += length_at(text, at);
  return at;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const std::size_t length = length_at(text, 0);
    if (!python_space(decode(text.substr(0, length)))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    if (!python_space(decode(text.substr(begin)))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace ppengine::models::chat
