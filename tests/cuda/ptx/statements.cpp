// A PTX text cut into statements: they end with ';', labels with ':'; braces open and close scopes or hold vectors.
#include "statements.hpp"

namespace ppengine::ptx {
namespace {

bool is_function(std::string_view text) {
  return text.find(".entry") != std::string_view::npos || text.starts_with(".func") || text.find(" .func") != std::string_view::npos;
}

// Directives that end with the line.
bool is_line_directive(std::string_view text) {
  return text.starts_with(".version") || text.starts_with(".target") || text.starts_with(".address_size");
}

}  // namespace

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n\r");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1));
}

std::vector<Statement> statements_of(std::string_view text) {
  std::vector<Statement> all;
  std::string current;
  std::uint32_t line = 1, began = 1;
  int nested = 0;  // braces of a vector
  const auto finish = [&](Statement::Kind kind) {
    if (std::string done = trimmed(current); !done.empty()) all.push_back({kind, std::move(done), began});
    current.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
      continue;
    }
    if (c == '\n') {
      ++line;
      if (is_line_directive(trimmed(current))) current.clear();
    }
    if (std::string_view("{};:").find(c) == std::string_view::npos) {
      const bool space = std::string_view(" \t\n\r").find(c) != std::string_view::npos;
      if (current.empty()) began = line;
      if (!space || !current.empty()) current += c;
      continue;
    }
    if (c == ';') {
      finish(is_function(current) ? Statement::Kind::declaration : Statement::Kind::plain);
    } else if (c == '{' && current.empty()) {
      // a scope: register names of scopes never clash in what LLVM writes
    } else if (c == '{' && is_function(current)) {
      finish(Statement::Kind::header);
    } else if (c == '}' && nested == 0) {
      current.clear();
    } else if (c == ':' && current.starts_with('$')) {
      finish(Statement::Kind::label);
    } else {
      nested += c == '{' ? 1 : c == '}' ? -1 : 0;
      current += c;
    }
  }
  return all;
}

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts;
  std::string current;
  int nested = 0;
  for (const char c : list) {
    nested += c == '{' || c == '(' || c == '[' ? 1 : c == '}' || c == ')' || c == ']' ? -1 : 0;
    if (c == ',' && nested == 0) {
      parts.push_back(trimmed(current));
      current.clear();
    } else {
      current += c;
    }
  }
  if (std::string last = trimmed(current); !last.empty()) parts.push_back(std::move(last));
  return parts;
}

}  // namespace ppengine::ptx
