// Expressions of a template, by recursive descent in Jinja's order of precedence.
#include <ppengine/models/chat/parser.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/models/chat/chat_template.hpp>

namespace ppengine::models::chat {
namespace {

constexpr int deepest = 200;        // brackets and statements within one another
constexpr int deepest_tree = 1000;  // a + b + c + ... is as deep as it is long
using Kind = Expression::Kind;

template <class... Ts>
std::vector<ExpressionPtr> nodes(Ts... each) {
  std::vector<ExpressionPtr> list;
  (list.push_back(std::move(each)), ...);
  return list;
}

}  // namespace

ExpressionParser::Depth::Depth(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > deepest) parser_.refuse(fmt::format("nested deeper than {} levels", deepest));
}

void ExpressionParser::refuse(const std::string& what) const { throw TemplateError(fmt::format("{}:{}: {}", name_, now().line, what)); }

void ExpressionParser::refuse_here(const std::string& wanted) const {
  const Token& token = now();
  const std::string found = token.kind == Token::Kind::end ? "the end of the template"
                            : token.kind == Token::Kind::block_end || token.kind == Token::Kind::variable_end
                                ? "the end of the tag"
                                : fmt::format("'{}'", token.text);
  refuse(fmt::format("expected {}, found {}", wanted, found));
}

void ExpressionParser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) refuse_here(fmt::format("'{}'", text));
}

std::string ExpressionParser::expect_name() {
  if (now().kind != Token::Kind::name) refuse_here("a name");
  return take().text;
}

ExpressionPtr ExpressionParser::finish(ExpressionPtr node) const {
  for (const ExpressionPtr& child : node->children)
    if (child) node->depth = std::max(node->depth, child->depth + 1);
  for (const Argument& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
  if (node->depth > deepest_tree) refuse(fmt::format("an expression of more than {} steps", deepest_tree));
  return node;
}

ExpressionPtr ExpressionParser::make(Kind kind, std::string text, std::vector<ExpressionPtr> children) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = now().line;
  node->text = std::move(text);
  node->children = std::move(children);
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::tuple_or_expression(bool with_condition) {
  ExpressionPtr first = expression(with_condition);
  if (!is_symbol(",")) return first;
  std::vector<ExpressionPtr> items = nodes(std::move(first));
  while (take_symbol(",")) {
    if (now().kind == Token::Kind::block_end || now().kind == Token::Kind::variable_end || is_symbol(")")) break;
    items.push_back(expression(with_condition));
  }
  return make(Kind::tuple, "", std::move(items));
}

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const Depth depth(*this);
  ExpressionPtr value = disjunction();
  while (with_condition && take_name("if")) {
    ExpressionPtr condition = disjunction();
    std::vector<ExpressionPtr> parts = nodes(std::move(condition), std::move(value));
    if (take_name("else")) parts.push_back(expression());
    value = make(Kind::conditional, "", std::move(parts));
  }
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (take_name("or")) left = make(Kind::binary, "or", nodes(std::move(left), conjunction()));
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (take_name("and")) left = make(Kind::binary, "and", nodes(std::move(left), negation()));
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Depth depth(*this);
  take();
  return make(Kind::unary, "not", nodes(negation()));
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = sum();
  std::vector<std::string> operators;
  std::vector<ExpressionPtr> parts = nodes(std::move(first));
  for (;;) {
    static constexpr std::string_view known[] = {"==", "!=", "<", ">", "<=", ">="};
    if (now().kind == Token::Kind::symbol && std::ranges::find(known, now().text) != std::end(known))
      operators.push_back(take().text);
    else if (is_name("in"))
      operators.push_back(take().text);
    else if (is_name("not") && ahead().kind == Token::Kind::name && ahead().text == "in")
      take(), take(), operators.push_back("not in");
    else
      break;
    parts.push_back(sum());
  }
  if (operators.empty()) return std::move(parts[0]);
  ExpressionPtr node = make(Kind::comparison, "", std::move(parts));
  node->operators = std::move(operators);
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_symbol("+") || is_symbol("-")) {
    const std::string symbol = take().text;
    left = make(Kind::binary, symbol, nodes(std::move(left), concatenation()));
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr left = product();
  while (take_symbol("~")) left = make(Kind::binary, "~", nodes(std::move(left), product()));
  return left;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
    const std::string symbol = take().text;
    left = make(Kind::binary, symbol, nodes(std::move(left), power()));
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (take_symbol("**")) left = make(Kind::binary, "**", nodes(std::move(left), unary()));
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (is_symbol("-") || is_symbol("+")) {
    const Depth depth(*this);
    const std::string symbol = take().text;
    value = make(Kind::unary, symbol, nodes(unary(false)));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const Depth depth(*this);
  const Token token = take();
  const auto constant = [&](Value value) {
    ExpressionPtr node = make(Kind::constant, "", {});
    node->constant = std::move(value);
    return node;
  };
  if (token.kind == Token::Kind::number) return constant(token.value);
  if (token.kind == Token::Kind::string) {
    std::string text = token.text;
    while (now().kind == Token::Kind::string) text += take().text;  // neighbours are one string
    return constant(std::move(text));
  }
  if (token.kind == Token::Kind::name) {
    if (token.text == "true" || token.text == "True") return constant(true);
    if (token.text == "false" || token.text == "False") return constant(false);
    if (token.text == "none" || token.text == "None") return constant(None{});
    return make(Kind::name, token.text, {});
  }
  if (token.kind == Token::Kind::symbol && token.text == "(") {
    ExpressionPtr value = is_symbol(")") ? make(Kind::tuple, "", {}) : tuple_or_expression();
    expect_symbol(")");
    return value;
  }
  if (token.kind == Token::Kind::symbol && token.text == "[") {
    std::vector<ExpressionPtr> items;
    while (!is_symbol("]")) {
      items.push_back(expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("]");
    return make(Kind::list, "", std::move(items));
  }
  if (token.kind == Token::Kind::symbol && token.text == "{") {
    std::vector<ExpressionPtr> items;
    while (!is_symbol("}")) {
      items.push_back(expression());
      expect_symbol(":");
      items.push_back(expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("}");
    return make(Kind::dict, "", std::move(items));
  }
  if (at_ > 0) --at_;
  refuse_here("an expression");
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (take_symbol(".")) {
      if (now().kind == Token::Kind::number) {
        ExpressionPtr index = make(Kind::constant, "", {});
        index->constant = take().value;
        value = make(Kind::item, "", nodes(std::move(value), std::move(index)));
      } else {
        value = make(Kind::attribute, expect_name(), nodes(std::move(value)));
      }
    } else if (take_symbol("[")) {
      value = subscript(std::move(value));
    } else if (is_symbol("(")) {
      ExpressionPtr call = make(Kind::call, "", nodes(std::move(value)));
      call->arguments = call_arguments();
      value = finish(std::move(call));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  ExpressionPtr parts[3];
  int colons = 0;
  for (;; ++colons) {
    if (colons > 2) refuse("a slice has at most three parts");
    if (!is_symbol(":") && !is_symbol("]")) parts[colons] = colons == 0 ? tuple_or_expression() : expression();
    if (!take_symbol(":")) break;
  }
  expect_symbol("]");
  if (colons == 0 && !parts[0]) refuse_here("an index");
  if (colons == 0) return make(Kind::item, "", nodes(std::move(value), std::move(parts[0])));
  return make(Kind::slice, "", nodes(std::move(value), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
}

std::vector<Argument> ExpressionParser::call_arguments() {
  std::vector<Argument> arguments;
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (is_symbol("*") || is_symbol("**")) refuse("calls with *arguments are not supported");
    Argument argument;
    if (now().kind == Token::Kind::name && ahead().kind == Token::Kind::symbol && ahead().text == "=") {
      argument.name = take().text;
      take();
    }
    argument.value = expression();
    arguments.push_back(std::move(argument));
    if (!take_symbol(",")) break;
  }
  expect_symbol(")");
  return arguments;
}

ExpressionPtr ExpressionParser::filters_of(ExpressionPtr value) {
  ExpressionPtr node = make(Kind::filter, expect_name(), nodes(std::move(value)));
  if (is_symbol("(")) node->arguments = call_arguments();
  node = finish(std::move(node));
  return take_symbol("|") ? filters_of(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (take_symbol("|")) {
      ExpressionPtr node = make(Kind::filter, expect_name(), nodes(std::move(value)));
      if (is_symbol("(")) node->arguments = call_arguments();
      value = finish(std::move(node));
    } else if (take_name("is")) {
      value = test(std::move(value));
    } else if (is_symbol("(")) {
      ExpressionPtr call = make(Kind::call, "", nodes(std::move(value)));
      call->arguments = call_arguments();
      value = finish(std::move(call));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  ExpressionPtr node = make(Kind::test, "", nodes(std::move(value)));
  node->negated = take_name("not");
  node->text = expect_name();
  const Token& next = now();
  const bool operand = next.kind == Token::Kind::string || next.kind == Token::Kind::number ||
                       (next.kind == Token::Kind::symbol && (next.text == "[" || next.text == "{")) ||
                       (next.kind == Token::Kind::name && next.text != "else" && next.text != "or" && next.text != "and" &&
                        next.text != "is" && next.text != "if" && next.text != "in" && next.text != "not");
  if (is_symbol("(")) {
    node->arguments = call_arguments();
  } else if (operand) {
    Argument argument;
    argument.value = postfix(primary());
    node->arguments.push_back(std::move(argument));
  }
  return finish(std::move(node));
}

}  // namespace ppengine::models::chat
