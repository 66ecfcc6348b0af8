// Elementwise arithmetic as a list of lines, each with the text of its value and of its gradients; and its texts as kernel code.
#pragma once

#include <string>
#include <vector>

namespace ppengine::engine {

// value: "$0 + $1" over its arguments; gradients: what each argument gets of the line's own gradient $g ("$g * $1"; $r is the line's
// value), empty for none. type: f, i (also booleans).
struct ExpressionLine {
  std::string value;
  std::vector<std::string> gradients;
  std::vector<int> arguments;  // inputs first, then lines
  char type = 'f';
};

struct Expression {
  std::vector<char> inputs;  // types
  std::vector<ExpressionLine> lines;
  bool differentiable() const;
};

// Kernel code that sets r0 to the value of the last line from v0, v1, ...
std::string forward_code(const Expression& expression);
// Kernel code that sets r0, r1, ... to the gradients of the wanted inputs; the gradient of the result is input number `gradient`.
std::string backward_code(const Expression& expression, const std::vector<int>& wanted, int gradient);

// A float as text that reads back as the same float.
std::string number_text(double value);

}  // namespace ppengine::engine
