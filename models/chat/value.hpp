// Values of the template language: Python's None, bool, int, float, str, list, tuple and dict, as Jinja shows them.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ppengine::models::chat {

class Value;
struct MacroNode;

struct Undefined {
  std::string name;  // for messages
};
struct None {};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;           // of nesting: bounded when made, so that walks and destructors cannot exhaust the stack
  std::size_t weight = 1;  // values in it, those of its own lists counted again each time: bounded, so that walks come to an end
  bool holds_namespace = false;
};

// Dicts are small in templates: a list keeps the order, which Python's dicts have too.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  bool is_namespace = false;
  int depth = 1;
  std::size_t weight = 1;
  bool holds_namespace = false;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

// Something that can be called: a macro, a global function, or a method bound to its value.
struct Callable {
  enum class Kind { macro, function, method, caller };
  Kind kind = Kind::function;
  std::string name;
  const MacroNode* macro = nullptr;
  std::shared_ptr<const Value> self;
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<List>,
                            std::shared_ptr<Dict>, std::shared_ptr<Callable>>;

  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Undefined value) : data_(std::move(value)) {}
  Value(Callable callable) : data_(std::make_shared<Callable>(std::move(callable))) {}
  Value(std::shared_ptr<Dict> dict) : data_(std::move(dict)) {}
  // TemplateError where the nesting is too deep.
  static Value list(std::vector<Value> items, bool tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> items, bool is_namespace = false);
  static Value from_json(const nlohmann::ordered_json& json);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_integer() const { return is<std::int64_t>(); }
  bool is_float() const { return is<double>(); }
  bool is_number() const { return is_integer() || is_float() || is_bool(); }
  bool is_string() const { return is<std::shared_ptr<const std::string>>(); }
  bool is_list() const { return is<std::shared_ptr<List>>(); }
  bool is_dict() const { return is<std::shared_ptr<Dict>>(); }
  bool is_callable() const { return is<std::shared_ptr<Callable>>(); }

  const std::string& string() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<Callable>>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  std::int64_t integer() const;  // of an integer or a bool
  double number() const;

  bool truth() const;
  std::string type_name() const;  // as Python calls it
  std::string text() const;       // str()
  std::string repr() const;
  int depth() const;
  std::size_t weight() const;
  bool holds_namespace() const;

 private:
  Data data_;
};

bool equal(const Value& a, const Value& b);
// Python's < for numbers, strings and lists of them; TemplateError for others.
int compare(const Value& a, const Value& b);
std::string python_float(double value);

struct JsonStyle {
  int indent = -1;  // below 0: on one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item = ", ", key = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, int level = 0);

// UTF-8 by code points, which is how Python counts.
std::size_t code_points(std::string_view text);
std::size_t byte_offset(std::string_view text, std::size_t code_point);
std::string_view strip(std::string_view text, bool left, bool right);

}  // namespace ppengine::models::chat
