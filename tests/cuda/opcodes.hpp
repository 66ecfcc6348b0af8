// The PTX of the kernels (made by compile_ptx), and the opcodes in it.
#pragma once

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>

namespace ppengine::test {

// For preconditions: what needs the kernels' PTX is skipped where ptx_compile was.
boost::test_tools::assertion_result has_ptx(boost::unit_test::test_unit_id);
std::string kernel_ptx(const std::string& file);  // "norm": the text of norm.ptx
std::set<std::string> opcodes_in_kernels();
// Moves, loads, stores, jumps, calls, barriers, shuffles: tested in test_control.cpp.
bool is_control(const std::string& opcode);

}  // namespace ppengine::test
