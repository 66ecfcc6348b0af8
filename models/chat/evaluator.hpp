// Carries out a parsed template, within limits on steps, memory and depth.
#pragma once

#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ppengine/models/chat/syntax.hpp>

namespace ppengine::models::chat {

// Arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // By position or by name; null where it is not given.
  const Value* find(std::size_t position, std::string_view name) const;
  Value get(std::size_t position, std::string_view name, Value otherwise) const {
    const Value* found = find(position, name);
    return found ? *found : otherwise;
  }
};

class Evaluator {
 public:
  Evaluator(const std::string& name, std::optional<std::time_t> now) : name_(name), now_(now), scopes_(1) {}

  void define(const std::string& name, Value value) { scopes_.front()[name] = std::move(value); }
  std::string run(const Body& body);

  // For filters, tests, methods and functions.
  [[noreturn]] void refuse(const std::string& what) const;  // TemplateError with the line
  void spend(std::size_t steps);                            // TemplateError where the template takes too long
  void allocate(std::size_t bytes);                         // TemplateError where it makes too much
  Value text(std::string value) {
    allocate(value.size());
    return Value(std::move(value));
  }
  Value list(std::vector<Value> items) {
    allocate(items.size() * sizeof(Value));
    return Value::list(std::move(items));
  }
  std::string text_of(const Value& value);  // str(), counted
  std::vector<Value> elements(const Value& value);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& index);
  bool contains(const Value& container, const Value& value);
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value method(const Value& self, const std::string& name, const Arguments& arguments);
  Value function(const std::string& name, const Arguments& arguments);
  static bool has_method(const Value& value, std::string_view name);
  static bool has_function(std::string_view name);

 private:
  enum class Flow { normal, break_loop, continue_loop };
  using Scope = std::map<std::string, Value>;

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow loop(const Statement& statement);
  void assign(const std::vector<std::string>& targets, const Value& value);
  void set(const Statement& statement, Value value);
  std::string captured(const Body& body);
  void write(std::string_view text);
  Value filtered(const Expression* filter, Value value);

  Value evaluate(const Expression& node);
  Value binary(const Expression& node);
  Value arithmetic(const std::string& symbol, const Value& a, const Value& b);
  Value add(const Value& a, const Value& b);
  Value repeat(const Value& value, std::int64_t times);
  Value format(const std::string& pattern, const Value& values);
  bool compare_all(const Expression& node);
  Value slice(const Expression& node);
  Value call(const Value& callee, Arguments arguments, const Value* caller = nullptr);
  Value call_macro(const MacroNode& macro, Arguments arguments, const Value* caller);
  Arguments arguments_of(const std::vector<Argument>& arguments);
  Value lookup(const std::string& name) const;

  std::string name_;
  std::optional<std::time_t> now_;
  std::vector<Scope> scopes_;
  std::string out_;
  std::size_t steps_ = 0, bytes_ = 0;
  int line_ = 0, calls_ = 0;
};

}  // namespace ppengine::models::chat
