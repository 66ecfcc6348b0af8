// Elementwise arithmetic as kernel code.
#include <ppengine/engine/tensor/expression.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ppengine::engine {
namespace {

std::string name_of(const Expression& expression, int argument) {
  const int inputs = static_cast<int>(expression.inputs.size());
  return argument < inputs ? fmt::format("v{}", argument) : fmt::format("t{}", argument - inputs);
}

std::string filled(const Expression& expression, const ExpressionLine& line, const std::string& text, const std::string& result,
                   const std::string& gradient) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char what = text[++i];
    if (what == 'r')
      out += result;
    else if (what == 'g')
      out += gradient;
    else
      out += name_of(expression, line.arguments[static_cast<std::size_t>(what - '0')]);
  }
  return out;
}

std::string lines_code(const Expression& expression) {
  std::string code;
  for (std::size_t i = 0; i < expression.lines.size(); ++i) {
    const ExpressionLine& line = expression.lines[i];
    code += fmt::format("      const {} t{} = {};\n", line.type == 'f' ? "float" : "int", i, filled(expression, line, line.value, "", ""));
  }
  return code;
}

}  // namespace

bool Expression::differentiable() const {
  return std::ranges::any_of(lines, [](const ExpressionLine& line) {
    return std::ranges::any_of(line.gradients, [](const std::string& one) { return !one.empty(); });
  });
}

std::string forward_code(const Expression& expression) {
  return lines_code(expression) + fmt::format("      r0 = t{};\n", expression.lines.size() - 1);
}

std::string backward_code(const Expression& expression, const std::vector<int>& wanted, int gradient) {
  const int inputs = static_cast<int>(expression.inputs.size());
  std::string code = lines_code(expression);
  for (int i = 0; i < inputs; ++i) code += fmt::format("      float gv{} = 0.0f;\n", i);
  for (std::size_t i = 0; i < expression.lines.size(); ++i)
    code += fmt::format("      float gt{} = {};\n", i, i + 1 == expression.lines.size() ? fmt::format("v{}", gradient) : "0.0f");
  for (std::size_t i = expression.lines.size(); i-- > 0;) {
    const ExpressionLine& line = expression.lines[i];
    for (std::size_t k = 0; k < line.gradients.size(); ++k) {
      if (line.gradients[k].empty()) continue;
      code += fmt::format("      g{} += {};\n", name_of(expression, line.arguments[k]),
                          filled(expression, line, line.gradients[k], fmt::format("t{}", i), fmt::format("gt{}", i)));
    }
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) code += fmt::format("      r{} = gv{};\n", k, wanted[k]);
  return code;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "__builtin_nanf(\"\")";
  if (std::isinf(value) || std::abs(value) > 3.4028234663852886e38) return value > 0 ? "__builtin_inff()" : "(-__builtin_inff())";
  const std::string text = fmt::format("{:.9g}", static_cast<float>(value));
  const bool plain = text.find_first_of(".e") == std::string::npos;
  return "(" + text + (plain ? ".0f)" : "f)");
}

}  // namespace ppengine::engine
