// Expressions of a template, evaluated.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ppengine/models/chat/chat_template.hpp>
#include <ppengine/models/chat/evaluator.hpp>

namespace ppengine::models::chat {

using Kind = Expression::Kind;

Value Evaluator::evaluate(const Expression& node) {
  spend(1);
  line_ = node.line;
  switch (node.kind) {
    case Kind::constant:
      return node.constant;
    case Kind::name:
      return lookup(node.text);
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      for (const auto& child : node.children) items.push_back(evaluate(*child));
      allocate(items.size() * sizeof(Value));
      return Value::list(std::move(items), node.kind == Kind::tuple);
    }
    case Kind::dict: {
      std::vector<std::pair<Value, Value>> items;
      for (std::size_t i = 0; i < node.children.size(); i += 2) {
        Value key = evaluate(*node.children[i]), value = evaluate(*node.children[i + 1]);
        const auto old = std::ranges::find_if(items, [&](const auto& each) { return equal(each.first, key); });
        old == items.end() ? void(items.emplace_back(std::move(key), std::move(value))) : void(old->second = std::move(value));
      }
      allocate(items.size() * 2 * sizeof(Value));
      return Value::dict(std::move(items));
    }
    case Kind::unary: {
      const Value value = evaluate(*node.children[0]);
      if (node.text == "not") return !value.truth();
      if (!value.is_number()) refuse(fmt::format("'{}' before a value of type {}", node.text, value.type_name()));
      if (value.is_float()) return node.text == "-" ? -value.number() : value.number();
      return node.text == "-" ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value.integer())) : value.integer();
    }
    case Kind::binary:
      return binary(node);
    case Kind::comparison:
      return compare_all(node);
    case Kind::conditional:
      if (evaluate(*node.children[0]).truth()) return evaluate(*node.children[1]);
      return node.children.size() > 2 ? evaluate(*node.children[2]) : Value(Undefined{"the value of an 'if' without 'else'"});
    case Kind::attribute:
      return attribute(evaluate(*node.children[0]), node.text);
    case Kind::item: {
      const Value object = evaluate(*node.children[0]);
      return item(object, evaluate(*node.children[1]));
    }
    case Kind::slice:
      return slice(node);
    case Kind::call: {
      const Value callee = evaluate(*node.children[0]);
      return call(callee, arguments_of(node.arguments));
    }
    case Kind::filter: {
      const Value value = evaluate(*node.children[0]);
      return filter(node.text, value, arguments_of(node.arguments));
    }
    case Kind::test: {
      const Value value = evaluate(*node.children[0]);
      return test(node.text, value, arguments_of(node.arguments)) != node.negated;
    }
  }
  return {};
}

Arguments Evaluator::arguments_of(const std::vector<Argument>& arguments) {
  Arguments all;
  for (const Argument& argument : arguments) {
    Value value = evaluate(*argument.value);
    if (argument.name.empty())
      all.positional.push_back(std::move(value));
    else
      all.named.emplace_back(argument.name, std::move(value));
  }
  return all;
}

std::vector<Value> Evaluator::elements(const Value& value) {
  std::vector<Value> items;
  if (value.is_list()) {
    items = value.list().items;
  } else if (value.is_dict() && !value.dict().is_namespace) {
    for (const auto& [key, item] : value.dict().items) items.push_back(key);
  } else if (value.is_string()) {
    const std::string& text = value.string();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t next = at + byte_offset(std::string_view(text).substr(at), 1);
      spend(1);
      items.emplace_back(text.substr(at, next - at));
      at = next;
    }
  } else if (!value.is_undefined()) {
    refuse(fmt::format("a value of type {} cannot be iterated over", value.type_name()));
  }
  spend(items.size());
  return items;
}

Value Evaluator::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) refuse(fmt::format("'{}' is undefined, so it has no '{}'", object.undefined_name(), name));
  if (has_method(object, name)) return Callable{Callable::Kind::method, name, nullptr, std::make_shared<const Value>(object)};
  if (object.is_dict())
    if (const Value* found = object.dict().find(std::string_view(name))) return *found;
  return Undefined{name};
}

Value Evaluator::item(const Value& object, const Value& index) {
  if (object.is_undefined()) refuse(fmt::format("'{}' is undefined, so it has no element {}", object.undefined_name(), index.repr()));
  if (object.is_dict()) {
    spend(object.dict().items.size() / 8);
    if (const Value* found = object.dict().find(index)) return *found;
    return index.is_string() ? attribute(object, index.string()) : Value(Undefined{index.repr()});
  }
  if (index.is_string()) return attribute(object, index.string());
  if (!index.is_integer() && !index.is_bool()) return Undefined{"an element"};
  std::int64_t at = index.integer();
  if (object.is_list()) {
    const auto& items = object.list().items;
    if (at < 0) at += static_cast<std::int64_t>(items.size());
    return at >= 0 && at < static_cast<std::int64_t>(items.size()) ? items[static_cast<std::size_t>(at)]
                                                                   : Value(Undefined{fmt::format("element {}", index.integer())});
  }
  if (object.is_string()) {
    const std::string& text = object.string();
    spend(text.size() / 64);
    const auto length = static_cast<std::int64_t>(code_points(text));
    if (at < 0) at += length;
    if (at < 0 || at >= length) return Undefined{fmt::format("character {}", index.integer())};
    const std::size_t begin = byte_offset(text, static_cast<std::size_t>(at));
    return Value(text.substr(begin, byte_offset(std::string_view(text).substr(begin), 1)));
  }
  return Undefined{fmt::format("element {} of {}", at, object.type_name())};
}

Value Evaluator::slice(const Expression& node) {
  const Value object = evaluate(*node.children[0]);
  if (object.is_undefined()) refuse(fmt::format("'{}' is undefined, so it has no slice", object.undefined_name()));
  if (!object.is_string() && !object.is_list()) refuse(fmt::format("a value of type {} has no slices", object.type_name()));
  std::vector<Value> items = elements(object);
  const auto length = static_cast<std::int64_t>(items.size());
  const auto part = [&](std::size_t i) -> std::optional<std::int64_t> {
    if (!node.children[i]) return {};
    const Value value = evaluate(*node.children[i]);
    if (value.is_none()) return {};
    if (!value.is_integer() && !value.is_bool()) refuse("the parts of a slice must be integers");
    return std::clamp<std::int64_t>(value.integer(), -(std::int64_t{1} << 40), std::int64_t{1} << 40);
  };
  const auto first = part(1), last = part(2);
  const std::int64_t step = part(3).value_or(1);
  if (step == 0) refuse("the step of a slice must not be 0");
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
  const auto place = [&](std::optional<std::int64_t> given, std::int64_t otherwise) {
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? *given + length : *given, low, high);
  };
  const std::int64_t begin = place(first, step > 0 ? low : high), end = place(last, step > 0 ? high : low);
  std::vector<Value> out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) out.push_back(items[static_cast<std::size_t>(i)]);
  if (object.is_list()) {
    allocate(out.size() * sizeof(Value));
    return Value::list(std::move(out), object.list().tuple);
  }
  std::string joined;
  for (const Value& each : out) joined += each.string();
  return text(std::move(joined));
}

bool Evaluator::contains(const Value& container, const Value& value) {
  if (container.is_string()) {
    if (!value.is_string()) refuse(fmt::format("'in' a string wants a string, not {}", value.type_name()));
    spend(container.string().size() / 64);
    return container.string().find(value.string()) != std::string::npos;
  }
  spend(container.weight());
  if (container.is_dict()) return container.dict().find(value) != nullptr;
  return std::ranges::any_of(elements(container), [&](const Value& each) { return equal(each, value); });
}

bool Evaluator::compare_all(const Expression& node) {
  Value left = evaluate(*node.children[0]);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.children[i + 1]);
    const std::string& how = node.operators[i];
    spend(std::min(left.weight(), right.weight()));
    const bool holds = how == "=="       ? equal(left, right)
                       : how == "!="     ? !equal(left, right)
                       : how == "in"     ? contains(right, left)
                       : how == "not in" ? !contains(right, left)
                       : how == "<"      ? compare(left, right) < 0
                       : how == ">"      ? compare(left, right) > 0
                       : how == "<="     ? compare(left, right) <= 0
                                         : compare(left, right) >= 0;
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::binary(const Expression& node) {
  Value left = evaluate(*node.children[0]);
  if (node.text == "and") return left.truth() ? evaluate(*node.children[1]) : left;
  if (node.text == "or") return left.truth() ? left : evaluate(*node.children[1]);
  const Value right = evaluate(*node.children[1]);
  line_ = node.line;
  if (node.text == "~") return text(text_of(left) + text_of(right));
  for (const Value* each : {&std::as_const(left), &right})
    if (each->is_undefined()) refuse(fmt::format("'{}' is undefined", each->undefined_name()));
  if (node.text == "+") return add(left, right);
  if (node.text == "%" && left.is_string()) return format(left.string(), right);
  if (node.text == "*" && right.is_integer() && (left.is_string() || left.is_list())) return repeat(left, right.integer());
  if (node.text == "*" && left.is_integer() && (right.is_string() || right.is_list())) return repeat(right, left.integer());
  return arithmetic(node.text, left, right);
}

Value Evaluator::add(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return text(a.string() + b.string());
  if (a.is_list() && b.is_list()) {
    std::vector<Value> all = a.list().items;
    all.insert(all.end(), b.list().items.begin(), b.list().items.end());
    allocate(all.size() * sizeof(Value));
    spend(all.size());
    return Value::list(std::move(all), a.list().tuple);
  }
  return arithmetic("+", a, b);
}

Value Evaluator::repeat(const Value& value, std::int64_t times) {
  const std::size_t count = times > 0 ? static_cast<std::size_t>(times) : 0;
  const std::size_t each = value.is_string() ? value.string().size() : value.list().items.size() * sizeof(Value);
  if (each > 0 && count > (std::size_t{1} << 30) / each) refuse("a repetition makes too long a value");
  allocate(each * count);
  if (value.is_string()) {
    std::string out;
    for (std::size_t i = 0; i < count && each > 0; ++i) out += value.string();
    return Value(std::move(out));
  }
  std::vector<Value> out;
  for (std::size_t i = 0; i < count && each > 0; ++i) out.insert(out.end(), value.list().items.begin(), value.list().items.end());
  return Value::list(std::move(out));
}

Value Evaluator::arithmetic(const std::string& symbol, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) refuse(fmt::format("'{}' does not work on {} and {}", symbol, a.type_name(), b.type_name()));
  if ((symbol == "/" || symbol == "//" || symbol == "%") && b.number() == 0) refuse("division by zero");
  if (a.is_float() || b.is_float() || symbol == "/" || (symbol == "**" && b.number() < 0)) {
    const double x = a.number(), y = b.number();
    if (symbol == "+") return x + y;
    if (symbol == "-") return x - y;
    if (symbol == "*") return x * y;
    if (symbol == "/") return x / y;
    if (symbol == "//") return std::floor(x / y);
    if (symbol == "%") return x - y * std::floor(x / y);
    return std::pow(x, y);
  }
  const std::int64_t x = a.integer(), y = b.integer();
  std::int64_t result = 0;
  bool overflow = false;
  if (symbol == "+") {
    overflow = __builtin_add_overflow(x, y, &result);
  } else if (symbol == "-") {
    overflow = __builtin_sub_overflow(x, y, &result);
  } else if (symbol == "*") {
    overflow = __builtin_mul_overflow(x, y, &result);
  } else if (symbol == "**") {
    result = 1;
    for (std::int64_t i = 0; i < y && !overflow && !(x == 1 || (x == 0 && i > 0)); ++i) {
      overflow = i > 64 && x != -1 ? true : __builtin_mul_overflow(result, x, &result);
      spend(1);
    }
  } else {
    if (y == -1) return symbol == "%" ? std::int64_t{0} : static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(x));
    const std::int64_t rest = (x % y + y) % y;  // Python's sign
    result = symbol == "%" ? rest : x / y - ((x % y != 0) && ((x < 0) != (y < 0)) ? 1 : 0);
  }
  if (overflow) refuse("an integer is too large");
  return result;
}

// The % operator of strings: %s, %d and %%.
Value Evaluator::format(const std::string& pattern, const Value& values) {
  const std::vector<Value> given = values.is_list() && values.list().tuple ? values.list().items : std::vector<Value>{values};
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 >= pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char how = pattern[++i];
    if (how == '%') {
      out += '%';
      continue;
    }
    if (how != 's' && how != 'd') refuse(fmt::format("'%{}' in a string's format is not supported; use %s or %d", how));
    if (next >= given.size()) refuse("a string's format wants more values than it is given");
    out += text_of(given[next++]);
  }
  return text(std::move(out));
}

}  // namespace ppengine::models::chat
