// Instructions of tensor cores and the copies that feed them, on small programs with known results (layouts as the PTX ISA gives them).
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <string>

#include "ptx/bits.hpp"
#include "ptx/launch.hpp"

namespace {
using namespace ppengine::ptx;
using Numbers = std::vector<std::uint32_t>;

// A kernel of one warp over one buffer: %rd1 its address, %r1 the lane, %rd2 the address of the lane's own `each` bytes.
std::string program(const std::string& body, int each) {
  return ".version 7.0\n.target sm_80\n.address_size 64\n.weak .shared .align 16 .b8 tile[512];\n"
         ".visible .entry __sycl_kernel_test(\n.param .u64 .ptr .global .align 4 test_param_0\n)\n{\n.reg .b32 %r<40>;\n.reg .b64 %rd<9>;\n"
         "ld.param.b64 %rd1, [test_param_0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, " +
         std::to_string(each) + ";\nadd.s64 %rd2, %rd1, %rd2;\nmov.b64 %rd3, tile;\ncvt.u32.u64 %r2, %rd3;\n" + body + "\nret;\n}\n";
}

Numbers run(const std::string& text, Numbers before, std::uint32_t threads = 32) {
  const Module module = Module::parse(text);
  GlobalMemory memory;
  const std::uint64_t at = memory.allocate(before.size() * 4, "the buffer");
  memory.region(at).copy_in(0, before.data(), before.size() * 4);
  ppengine::ptx::run(module, module.kernel("test"), memory, {.groups = {}, .size = {threads, 1, 1}, .arguments = {at}, .seed = 5});
  std::memcpy(before.data(), memory.region(at).data(), before.size() * 4);
  return before;
}

bool faults_with(const std::string& text, const Numbers& before, const std::string& part, std::uint32_t threads = 32) {
  try {
    run(text, before, threads);
  } catch (const Fault& fault) {
    BOOST_TEST_MESSAGE(fault.what());
    return std::string(fault.what()).find(part) != std::string::npos;
  }
  return false;
}

std::uint32_t bf16_pair(int low, int high) {
  const auto bits = [](int value) { return static_cast<std::uint32_t>(to_bits(static_cast<float>(value))) >> 16; };
  return bits(low) | bits(high) << 16;
}

const std::string multiply =
    "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd2];\nld.global.v2.b32 {%r14, %r15}, [%rd2+16];\nld.global.v2.b32 {%r16, %r17}, "
    "[%rd2+24];\nld.global.v2.b32 {%r18, %r19}, [%rd2+32];\nmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r20, %r21, %r22, %r23}, "
    "{%r10, %r11, %r12, %r13}, {%r14, %r15}, {%r16, %r17, %r18, %r19};\nst.global.v4.b32 [%rd2], {%r20, %r21, %r22, %r23};";

// 16 bytes of the lane's own part of the buffer go to its row of the tile, as many of them as %r4 says.
const std::string copy_row =
    "shl.b32 %r3, %r1, 4;\nadd.s32 %r3, %r3, %r2;\ncp.async.cg.shared.global [%r3], [%rd2], 16, %r4;\ncp.async.commit_group;\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor_cores)

// a[i][k] = i - k, b[k][j] = k + 2j, c[i][j] = 100i + j: whole numbers, all exact.
BOOST_AUTO_TEST_CASE(a_product_of_tiles) {
  Numbers lanes(32 * 12);
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, in_group = lane % 4;
    std::uint32_t* const own = &lanes[static_cast<std::size_t>(lane) * 12];
    for (int i = 0; i < 8;
         i += 2) {  // PTX ISA: element i of a is in row group (+8 for i = 2, 3, 6, 7), column 2·in_group + i%2 (+8 from i = 4 on)
      const int row = group + (i % 4 >= 2 ? 8 : 0), column = in_group * 2 + (i >= 4 ? 8 : 0);
      own[i / 2] = bf16_pair(row - column, row - column - 1);
    }
    for (int i = 0; i < 4; i += 2) {  // of b: row 2·in_group + i%2 (+8 from i = 2 on), column group
      const int row = in_group * 2 + (i >= 2 ? 8 : 0);
      own[4 + i / 2] = bf16_pair(row + 2 * group, row + 1 + 2 * group);
    }
    for (int i = 0; i < 4; ++i)
      own[6 + i] = static_cast<std::uint32_t>(to_bits(static_cast<float>(100 * (group + (i >= 2 ? 8 : 0)) + in_group * 2 + i % 2)));
  }
  const Numbers got = run(program(multiply, 48), lanes);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2;
      int expected = 100 * row + column;
      for (int k = 0; k < 16; ++k) expected += (row - k) * (k + 2 * column);
      BOOST_TEST(from_bits<float>(got[static_cast<std::size_t>(lane * 12 + i)]) == static_cast<float>(expected),
                 "row " << row << " column " << column);
    }
}

BOOST_AUTO_TEST_CASE(a_product_needs_the_whole_warp) {
  BOOST_TEST(faults_with(program(multiply, 48), Numbers(32 * 12), "without all lanes", 16));
}

// Row r of the 32 holds 8r, 8r + 1, ... 8r + 7.
BOOST_AUTO_TEST_CASE(matrices_are_read_as_they_lie_and_transposed) {
  Numbers rows(32 * 4);
  for (std::uint32_t i = 0; i < rows.size(); ++i) rows[i] = 2 * i | (2 * i + 1) << 16;
  for (const bool transposed : {false, true}) {
    const std::string load = std::string("ldmatrix.sync.aligned.m8n8.x4.") + (transposed ? "trans." : "") +
                             "shared.b16 {%r20, %r21, %r22, %r23}, [%r3];\nst.global.v4.b32 [%rd2], {%r20, %r21, %r22, %r23};";
    const Numbers got = run(program("mov.u32 %r4, 16;\n" + copy_row + "cp.async.wait_group 0;\nbar.sync 0;\n" + load, 16), rows);
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      for (std::uint32_t matrix = 0; matrix < 4; ++matrix) {
        const std::uint32_t line = lane / 4, pair = lane % 4 * 2;
        const auto element = [&](std::uint32_t row, std::uint32_t column) { return 64 * matrix + 8 * row + column; };
        const std::uint32_t low = transposed ? element(pair, line) : element(line, pair);
        const std::uint32_t high = transposed ? element(pair + 1, line) : element(line, pair + 1);
        BOOST_TEST(got[lane * 4 + matrix] == (low | high << 16));
      }
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_matrix_that_meet_in_a_bank_are_a_fault) {
  const std::string all_alike =
      "mov.u32 %r4, 16;\n" + copy_row +
      "cp.async.wait_group 0;\nbar.sync 0;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r5];\n";
  // Every second row: the fifth of a matrix lies 128 bytes behind the first.
  BOOST_TEST(
      faults_with(program("shl.b32 %r5, %r1, 5;\nand.b32 %r5, %r5, 511;\nadd.s32 %r5, %r5, %r2;\n" + all_alike, 16), Numbers(128), "bank"));
}

BOOST_AUTO_TEST_CASE(a_copy_reads_what_it_is_told_and_fills_up_with_zeros) {
  const std::string read = "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r3];\nst.global.v4.b32 [%rd2], {%r20, %r21, %r22, %r23};";
  const Numbers ones(4, 0x01010101u);
  BOOST_TEST(run(program("mov.u32 %r4, 6;\n" + copy_row + "cp.async.wait_group 0;\n" + read, 16), ones, 1) ==
                 (Numbers{0x01010101u, 0x0101u, 0, 0}),
             boost::test_tools::per_element());
  // Not there before it is waited for; a commit that is left under way is not waited for.
  BOOST_TEST(faults_with(program("mov.u32 %r4, 16;\n" + copy_row + read, 16), ones, "never written", 1));
  BOOST_TEST(faults_with(program("mov.u32 %r4, 16;\n" + copy_row + "cp.async.wait_group 1;\n" + read, 16), ones, "never written", 1));
  BOOST_TEST(faults_with(program("mov.u32 %r4, 17;\n" + copy_row, 16), ones, "17 bytes", 1));
}

BOOST_AUTO_TEST_CASE(a_copy_over_what_others_may_still_read_is_a_fault) {
  const std::string neighbour = "xor.b32 %r5, %r3, 16;\nld.shared.b32 %r6, [%r5];\n";
  const std::string twice = "mov.u32 %r4, 16;\n" + copy_row + "cp.async.wait_group 0;\nbar.sync 0;\n" + neighbour + "BARRIER\n" + copy_row;
  const auto with = [&](const std::string& barrier) {
    std::string body = twice;
    return program(body.replace(body.find("BARRIER"), 7, barrier), 16);
  };
  BOOST_CHECK_NO_THROW(run(with("bar.sync 0;"), Numbers(128)));
  BOOST_TEST(faults_with(with(""), Numbers(128), "shared memory"));  // a race, or a read of what was overwritten
}

BOOST_AUTO_TEST_SUITE_END()
