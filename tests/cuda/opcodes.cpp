// The PTX of the kernels, and the opcodes in it.
#include "opcodes.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "ptx/statements.hpp"

namespace ppengine::test {

boost::test_tools::assertion_result has_ptx(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result there = std::filesystem::exists(PPENGINE_PTX);
  if (!there) there.message() << "no kernel was compiled to PTX on this machine (test ptx_compile)";
  return there;
}

std::string kernel_ptx(const std::string& file) {
  std::ifstream in(std::filesystem::path(PPENGINE_PTX) / (file + ".ptx"));
  if (!in) throw std::runtime_error(std::string(PPENGINE_PTX) + " has no " + file + ".ptx: run the test ptx_compile first");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> opcodes_in_kernels() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(PPENGINE_PTX)) {
    if (entry.path().extension() != ".ptx") continue;
    for (const auto& [kind, text, line] : ptx::statements_of(kernel_ptx(entry.path().stem()))) {
      if (kind != ptx::Statement::Kind::plain || text.starts_with('.')) continue;
      const std::string rest = text.starts_with('@') ? ptx::trimmed(text.substr(text.find_first_of(" \t"))) : text;
      found.insert(rest.substr(0, rest.find_first_of(" \t\n")));
    }
  }
  return found;
}

bool is_control(const std::string& opcode) {
  static constexpr std::array families{"mov.", "cvta.", "ld.",  "st.",       "shfl.",     "bra", "brx.",
                                       "call", "ret",   "bar.", "cp.async.", "ldmatrix.", "mma."};
  return std::ranges::any_of(families, [&](const char* family) { return opcode.starts_with(family); });
}

}  // namespace ppengine::test
