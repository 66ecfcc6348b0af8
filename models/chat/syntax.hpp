// The tree of a parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ppengine/models/chat/value.hpp>

namespace ppengine::models::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string name;  // empty: by position
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    constant,
    name,         // text
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value ...
    unary,        // text: not - +
    binary,       // text: the operator
    comparison,   // children: first, then one per operator of `operators`
    conditional,  // condition, then, otherwise (may be missing)
    attribute,    // text
    item,         // object, index
    slice,        // object, begin, end, step (may be null)
    call,         // callee; arguments
    filter,       // text; the value (null: of a filter block); arguments
    test,         // text; value; arguments; negated
  };
  Kind kind = Kind::constant;
  int line = 0, depth = 1;
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<Argument> arguments;
  std::vector<std::string> operators;
  bool negated = false;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// A macro, and what a call block gives its macro as caller().
struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
};

struct Statement {
  enum class Kind { text, output, conditional, loop, set, set_block, macro, call_block, filter_block, scope, break_loop, continue_loop };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;                                      // text
  ExpressionPtr expression, condition;                   // output, set: value; loop: iterable and `if`; filter_block, set_block: the filter
  std::vector<std::string> targets;                      // loop, set: names
  std::string attribute;                                 // set: of a namespace
  std::vector<std::pair<ExpressionPtr, Body>> branches;  // conditional: the last may have no condition
  Body body, otherwise;
  MacroNode macro;
  std::vector<std::pair<std::string, ExpressionPtr>> bindings;  // with
};

// TemplateError with name and line.
Body parse(std::string_view text, const std::string& name);

}  // namespace ppengine::models::chat
