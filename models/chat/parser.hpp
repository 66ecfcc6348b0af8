// Reads expressions out of a template's tokens; statements are read by its child in statements.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ppengine/models/chat/lexer.hpp>
#include <ppengine/models/chat/syntax.hpp>

namespace ppengine::models::chat {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, std::string name) : tokens_(std::move(tokens)), name_(std::move(name)) {}

 protected:
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_symbol(std::string_view text) const { return now().kind == Token::Kind::symbol && now().text == text; }
  bool is_name(std::string_view text) const { return now().kind == Token::Kind::name && now().text == text; }
  bool take_symbol(std::string_view text) { return is_symbol(text) && (take(), true); }
  bool take_name(std::string_view text) { return is_name(text) && (take(), true); }
  void expect_symbol(std::string_view text);
  std::string expect_name();
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_here(const std::string& wanted) const;

  ExpressionPtr expression(bool with_condition = true);
  ExpressionPtr tuple_or_expression(bool with_condition = true);
  ExpressionPtr filters_of(ExpressionPtr value);  // `| name(...)` any number of times
  std::vector<Argument> call_arguments();

  // Counts how deep the parser has gone down, so that hostile brackets cannot exhaust the stack.
  struct Depth {
    explicit Depth(ExpressionParser& parser);
    ~Depth() { --parser_.depth_; }
    ExpressionParser& parser_;
  };

 private:
  ExpressionPtr make(Expression::Kind kind, std::string text, std::vector<ExpressionPtr> children);
  ExpressionPtr finish(ExpressionPtr node) const;  // notes and checks its depth
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);

  std::vector<Token> tokens_;
  std::string name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace ppengine::models::chat
