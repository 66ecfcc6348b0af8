// Statements of a template: text, output and blocks.
#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include <ppengine/models/chat/chat_template.hpp>
#include <ppengine/models/chat/parser.hpp>

namespace ppengine::models::chat {
namespace {

using Kind = Statement::Kind;
using Names = std::initializer_list<std::string_view>;

class StatementParser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body parse_all() {
    Body all = body({});
    if (now().kind != Token::Kind::end) refuse_here("the end of the template");
    return all;
  }

 private:
  std::unique_ptr<Statement> make(Kind kind) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = now().line;
    return node;
  }

  void end_block() {
    if (now().kind != Token::Kind::block_end) refuse_here("the end of the tag");
    take();
  }

  // Up to a tag of one of these names, which stays to be read (the tag's begin is taken).
  Body body(Names until) {
    const Depth depth(*this);
    Body all;
    for (;;) {
      const Token::Kind kind = now().kind;
      if (kind == Token::Kind::end) {
        if (until.size() > 0) refuse(fmt::format("a block is not closed with '{}'", *(until.end() - 1)));
        return all;
      }
      if (kind == Token::Kind::text) {
        all.push_back(make(Kind::text));
        all.back()->text = take().text;
      } else if (kind == Token::Kind::variable_begin) {
        take();
        all.push_back(make(Kind::output));
        all.back()->expression = tuple_or_expression();
        if (now().kind != Token::Kind::variable_end) refuse_here("the end of the tag");
        take();
      } else {
        take();  // block_begin
        if (now().kind != Token::Kind::name) refuse_here("a statement");
        if (std::ranges::find(until, now().text) != until.end()) return all;
        all.push_back(statement());
      }
    }
  }

  // The body up to its end tag, which is taken.
  Body body_and_end(std::string_view end) {
    Body all = body({end});
    take();
    end_block();
    return all;
  }

  std::unique_ptr<Statement> statement() {
    auto node = make(Kind::text);
    const std::string word = take().text;
    if (word == "if") return conditional(std::move(node));
    if (word == "for") return loop(std::move(node));
    if (word == "set") return set(std::move(node));
    if (word == "macro") return macro(std::move(node));
    if (word == "call") return call(std::move(node));
    if (word == "filter") {
      node->kind = Kind::filter_block;
      node->expression = filters_of(nullptr);
      end_block();
      node->body = body_and_end("endfilter");
      return node;
    }
    if (word == "with") return with(std::move(node));
    if (word == "generation") {  // marks the assistant's words for training
      node->kind = Kind::scope;
      end_block();
      node->body = body_and_end("endgeneration");
      return node;
    }
    if (word == "break" || word == "continue") {
      node->kind = word == "break" ? Kind::break_loop : Kind::continue_loop;
      end_block();
      return node;
    }
    refuse(fmt::format("the statement '{}' is not supported in chat templates", word));
  }

  std::unique_ptr<Statement> conditional(std::unique_ptr<Statement> node) {
    node->kind = Kind::conditional;
    ExpressionPtr condition = tuple_or_expression();
    end_block();
    for (;;) {
      Body then = condition || node->branches.empty() ? body({"elif", "else", "endif"}) : body({"endif"});
      const bool last = condition == nullptr;
      node->branches.emplace_back(std::move(condition), std::move(then));
      const std::string word = take().text;
      if (last && word != "endif") refuse("'else' is the last branch of an 'if'");
      if (word == "elif") {
        condition = tuple_or_expression();
        end_block();
        continue;
      }
      end_block();
      if (word == "endif") return node;
      condition = nullptr;
    }
  }

  std::vector<std::string> names() {
    std::vector<std::string> all;
    const bool bracket = take_symbol("(");
    do {
      all.push_back(expect_name());
    } while (take_symbol(","));
    if (bracket) expect_symbol(")");
    return all;
  }

  std::unique_ptr<Statement> loop(std::unique_ptr<Statement> node) {
    node->kind = Kind::loop;
    node->targets = names();
    if (!take_name("in")) refuse_here("'in'");
    node->expression = tuple_or_expression(false);
    if (take_name("if")) node->condition = expression();
    if (is_name("recursive")) refuse("recursive loops are not supported in chat templates");
    end_block();
    node->body = body({"else", "endfor"});
    if (take().text == "else") {
      end_block();
      node->otherwise = body({"endfor"});
      take();
    }
    end_block();
    return node;
  }

  std::unique_ptr<Statement> set(std::unique_ptr<Statement> node) {
    node->targets = names();
    if (node->targets.size() == 1 && take_symbol(".")) node->attribute = expect_name();
    if (take_symbol("=")) {
      node->kind = Kind::set;
      node->expression = tuple_or_expression();
      end_block();
      return node;
    }
    node->kind = Kind::set_block;
    if (take_symbol("|")) node->expression = filters_of(nullptr);
    end_block();
    node->body = body_and_end("endset");
    return node;
  }

  void parameters(MacroNode& macro) {
    expect_symbol("(");
    while (!is_symbol(")")) {
      macro.parameters.push_back(expect_name());
      if (take_symbol("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        refuse("a parameter without a default follows one that has one");
      if (!take_symbol(",")) break;
    }
    expect_symbol(")");
  }

  std::unique_ptr<Statement> macro(std::unique_ptr<Statement> node) {
    node->kind = Kind::macro;
    node->macro.name = expect_name();
    parameters(node->macro);
    end_block();
    node->macro.body = body_and_end("endmacro");
    return node;
  }

  std::unique_ptr<Statement> call(std::unique_ptr<Statement> node) {
    node->kind = Kind::call_block;
    node->macro.name = "caller";
    if (is_symbol("(")) parameters(node->macro);
    node->expression = expression();
    if (node->expression->kind != Expression::Kind::call) refuse("a call block must call a macro");
    end_block();
    node->macro.body = body_and_end("endcall");
    return node;
  }

  std::unique_ptr<Statement> with(std::unique_ptr<Statement> node) {
    node->kind = Kind::scope;
    while (now().kind == Token::Kind::name) {
      std::string name = expect_name();
      expect_symbol("=");
      ExpressionPtr value = expression();
      node->bindings.emplace_back(std::move(name), std::move(value));
      if (!take_symbol(",")) break;
    }
    end_block();
    node->body = body_and_end("endwith");
    return node;
  }
};

}  // namespace

Body parse(std::string_view text, const std::string& name) { return StatementParser(tokenize(text, name), name).parse_all(); }

}  // namespace ppengine::models::chat
