// Statements of a template, carried out.
#include <ppengine/models/chat/evaluator.hpp>

#include <fmt/core.h>

#include <ppengine/models/chat/chat_template.hpp>

namespace ppengine::models::chat {
namespace {

constexpr std::size_t most_steps = 10'000'000, most_bytes = std::size_t{512} << 20, most_output = std::size_t{64} << 20;
constexpr int most_calls = 100;  // macros within one another

}  // namespace

const Value* Arguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

void Evaluator::refuse(const std::string& what) const { throw TemplateError(fmt::format("{}:{}: {}", name_, line_, what)); }

void Evaluator::spend(std::size_t steps) {
  steps_ += steps;
  if (steps_ > most_steps) refuse(fmt::format("the template took more than {} steps", most_steps));
}

void Evaluator::allocate(std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > most_bytes) refuse(fmt::format("the template made more than {} MiB of text", most_bytes >> 20));
  spend(bytes / 4096);
}

std::string Evaluator::run(const Body& body) {
  scopes_.emplace_back();
  try {
    execute(body);
  } catch (const TemplateError& error) {
    if (std::string_view(error.what()).starts_with(name_ + ":")) throw;
    refuse(error.what());  // of a value, which does not know the line
  }
  return std::move(out_);
}

void Evaluator::write(std::string_view text) {
  if (out_.size() + text.size() > most_output) refuse(fmt::format("the template wrote more than {} MiB", most_output >> 20));
  out_ += text;
}

std::string Evaluator::text_of(const Value& value) {
  spend(value.weight());
  std::string text = value.text();
  allocate(text.size());
  return text;
}

Value Evaluator::lookup(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(name); found != scope->end()) return found->second;
  if (has_function(name)) return Callable{Callable::Kind::function, name, nullptr, nullptr};
  return Undefined{name};
}

std::string Evaluator::captured(const Body& body) {
  std::string before = std::move(out_);
  out_.clear();
  scopes_.emplace_back();
  execute(body);
  scopes_.pop_back();
  std::swap(before, out_);
  allocate(before.size());
  return before;
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const auto& statement : body)
    if (const Flow flow = execute(*statement); flow != Flow::normal) return flow;
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  spend(1);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.text);
      break;
    case Statement::Kind::output: {
      const Value value = evaluate(*statement.expression);
      if (value.is_string())
        write(value.string());
      else
        write(text_of(value));
      break;
    }
    case Statement::Kind::conditional:
      for (const auto& [condition, body] : statement.branches)
        if (!condition || evaluate(*condition).truth()) return execute(body);
      break;
    case Statement::Kind::loop:
      return loop(statement);
    case Statement::Kind::set:
      set(statement, evaluate(*statement.expression));
      break;
    case Statement::Kind::set_block:
      set(statement, filtered(statement.expression.get(), Value(captured(statement.body))));
      break;
    case Statement::Kind::macro:
      scopes_.back()[statement.macro.name] = Callable{Callable::Kind::macro, statement.macro.name, &statement.macro, nullptr};
      break;
    case Statement::Kind::call_block: {
      const Value callee = evaluate(*statement.expression->children[0]);
      const Value caller = Callable{Callable::Kind::macro, "caller", &statement.macro, nullptr};
      write(text_of(call(callee, arguments_of(statement.expression->arguments), &caller)));
      break;
    }
    case Statement::Kind::filter_block:
      write(text_of(filtered(statement.expression.get(), Value(captured(statement.body)))));
      break;
    case Statement::Kind::scope: {
      Scope scope;
      for (const auto& [name, value] : statement.bindings) scope[name] = evaluate(*value);
      scopes_.push_back(std::move(scope));
      const Flow flow = execute(statement.body);
      scopes_.pop_back();
      return flow;
    }
    case Statement::Kind::break_loop:
      return Flow::break_loop;
    case Statement::Kind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

void Evaluator::set(const Statement& statement, Value value) {
  if (statement.attribute.empty()) return assign(statement.targets, value);
  const Value target = lookup(statement.targets[0]);
  if (!target.is_dict() || !target.dict().is_namespace) refuse("attributes can be set on namespace() objects only");
  // Otherwise one could be made to hold itself.
  if (value.holds_namespace()) refuse("a namespace in an attribute of a namespace is not supported");
  Dict& dict = target.dict();
  dict.depth = std::max(dict.depth, value.depth() + 1);
  dict.weight += value.weight();
  if (dict.weight > (std::size_t{1} << 32)) dict.weight = std::size_t{1} << 32;
  for (auto& [key, old] : dict.items)
    if (key.string() == statement.attribute) {
      old = std::move(value);
      return;
    }
  allocate(sizeof(Value) * 2);
  dict.items.emplace_back(Value(statement.attribute), std::move(value));
}

void Evaluator::assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    scopes_.back()[targets[0]] = value;
    return;
  }
  const std::vector<Value> parts = elements(value);
  if (parts.size() != targets.size()) refuse(fmt::format("{} values for {} names", parts.size(), targets.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) scopes_.back()[targets[i]] = parts[i];
}

Evaluator::Flow Evaluator::loop(const Statement& statement) {
  std::vector<Value> items = elements(evaluate(*statement.expression));
  if (statement.condition) {
    std::vector<Value> kept;
    for (Value& item : items) {
      scopes_.emplace_back();
      assign(statement.targets, item);
      if (evaluate(*statement.condition).truth()) kept.push_back(std::move(item));
      scopes_.pop_back();
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scopes_.emplace_back();
    const Flow flow = execute(statement.otherwise);
    scopes_.pop_back();
    return flow;
  }
  const auto count = static_cast<std::int64_t>(items.size());
  for (std::int64_t i = 0; i < count; ++i) {
    spend(4);
    scopes_.emplace_back();
    const auto at = static_cast<std::size_t>(i);
    std::vector<std::pair<Value, Value>> state{{"index", i + 1},
                                               {"index0", i},
                                               {"revindex", count - i},
                                               {"revindex0", count - i - 1},
                                               {"first", i == 0},
                                               {"last", i + 1 == count},
                                               {"length", count},
                                               {"depth", std::int64_t{1}},
                                               {"depth0", std::int64_t{0}},
                                               {"previtem", i > 0 ? items[at - 1] : Value(Undefined{"previtem"})},
                                               {"nextitem", i + 1 < count ? items[at + 1] : Value(Undefined{"nextitem"})}};
    scopes_.back()["loop"] = Value::dict(std::move(state));
    assign(statement.targets, items[at]);
    const Flow flow = execute(statement.body);
    scopes_.pop_back();
    if (flow == Flow::break_loop) break;
  }
  return Flow::normal;
}

Value Evaluator::filtered(const Expression* node, Value value) {
  if (!node) return value;
  if (node->children[0]) value = filtered(node->children[0].get(), std::move(value));
  return filter(node->text, value, arguments_of(node->arguments));
}

Value Evaluator::call_macro(const MacroNode& macro, Arguments arguments, const Value* caller) {
  if (calls_ >= most_calls) refuse(fmt::format("macros call one another more than {} deep", most_calls));
  Scope scope;
  const std::size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Value* given = arguments.find(i, macro.parameters[i]);
    scope[macro.parameters[i]] = given                ? *given
                                 : i >= first_default ? evaluate(*macro.defaults[i - first_default])
                                                      : Value(Undefined{macro.parameters[i]});
  }
  if (arguments.positional.size() > macro.parameters.size())
    refuse(fmt::format("macro '{}' takes at most {} arguments", macro.name, macro.parameters.size()));
  if (caller) scope["caller"] = *caller;
  // A macro sees the names of the template's outermost level. What a call block gives sees where it stands, too.
  const bool inner = macro.name == "caller";
  std::vector<Scope> hidden;
  for (std::size_t i = 2; !inner && i < scopes_.size(); ++i) hidden.push_back(std::move(scopes_[i]));
  if (!inner) scopes_.resize(2);
  const std::size_t level = scopes_.size();
  scopes_.push_back(std::move(scope));
  ++calls_;
  const int line = line_;
  std::string result = captured(macro.body);
  line_ = line;
  --calls_;
  scopes_.resize(level);
  for (Scope& each : hidden) scopes_.push_back(std::move(each));
  return Value(std::move(result));
}

Value Evaluator::call(const Value& callee, Arguments arguments, const Value* caller) {
  spend(1);
  if (callee.is_undefined()) refuse(fmt::format("'{}' is undefined", callee.undefined_name()));
  if (!callee.is_callable()) refuse(fmt::format("a value of type {} cannot be called", callee.type_name()));
  const Callable& target = callee.callable();
  if (target.kind == Callable::Kind::macro) return call_macro(*target.macro, std::move(arguments), caller);
  if (target.kind == Callable::Kind::method) return method(*target.self, target.name, arguments);
  return function(target.name, arguments);
}

}  // namespace ppengine::models::chat
