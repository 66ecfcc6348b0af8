// Moves, loads, stores, jumps, calls, barriers and shuffles on small programs with known results; and what must be a fault.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <functional>

#include "ptx/bits.hpp"
#include "ptx/launch.hpp"

namespace {
using namespace ppengine::ptx;

// A kernel over one buffer of 32-bit numbers, %rd1 its address, %r1 the thread's index.
std::string program(const std::string& body, const std::string& outside = "") {
  return ".version 6.3\n.target sm_75\n.address_size 64\n" + outside +
         "\n.visible .entry __sycl_kernel_test(\n.param .u64 .ptr .global .align 4 test_param_0\n)\n{\n.reg .pred %p<9>;\n.reg .b16 "
         "%rs<9>;\n"
         ".reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.local .align 8 .b8 depot[16];\n"
         "ld.param.b64 %rd1, [test_param_0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n" +
         body + "\nret;\n}\n";
}

// What is in the buffer afterwards, which held `before`.
std::vector<std::uint32_t> run(const std::string& text, std::vector<std::uint32_t> before, Size3 size = {}, Size3 groups = {}) {
  const Module module = Module::parse(text);
  GlobalMemory memory;
  const std::uint64_t at = memory.allocate(before.size() * 4, "the buffer");
  memory.region(at).copy_in(0, before.data(), before.size() * 4);
  ppengine::ptx::run(module, module.kernel("test"), memory, {.groups = groups, .size = size, .arguments = {at}, .seed = 7});
  std::memcpy(before.data(), memory.region(at).data(), before.size() * 4);
  return before;
}

using Numbers = std::vector<std::uint32_t>;
void check(const Numbers& got, const Numbers& expected) { BOOST_TEST(got == expected, boost::test_tools::per_element()); }

// That it faults, and that the message says all of `parts`.
void faults(const std::function<void()>& what, std::initializer_list<const char*> parts) {
  std::string text;
  try {
    what();
  } catch (const Fault& fault) {
    text = fault.what();
  }
  for (const char* part : parts) BOOST_TEST(text.find(part) != std::string::npos, part << " in: " << text);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(control)

BOOST_AUTO_TEST_CASE(special_registers_say_where_a_thread_is) {
  const auto got = run(program("mov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %nctaid.x;\nmad.lo.s32 %r4, %r2, %r3, 0;\nmov.u32 %r5, %ctaid.x;\n"
                               "add.s32 %r4, %r4, %r5;\nmul.wide.u32 %rd4, %r4, 4;\nadd.s64 %rd5, %rd1, %rd4;\nmov.u32 %r6, %ntid.x;\n"
                               "mov.u32 %r7, %laneid;\nadd.s32 %r8, %r6, %r4;\nst.global.b32 [%rd5], %r8;"),
                       Numbers(6), {3, 1, 1}, {3, 2, 1});
  check(got, {3, 4, 5, 6, 7, 8});
}

BOOST_AUTO_TEST_CASE(loads_and_stores_of_every_width_and_of_vectors) {
  check(run(program("ld.global.s8 %r2, [%rd1];\nst.global.b32 [%rd1+4], %r2;\nld.global.b16 %rs1, [%rd1];\ncvt.u32.u16 %r3, %rs1;\n"
                    "st.global.b32 [%rd1+8], %r3;\nst.global.b16 [%rd1+12], %rs1;"),
            {0x8180u, 0, 0, 0xffffffffu}),
        {0x8180u, 0xffffff80u, 0x8180u, 0xffff8180u});
  check(run(program("ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1];\nst.b32 [%rd1], %r5;\nst.b32 [%rd1+4], %r2;"), {1, 2, 3, 4}),
        {4, 1, 3, 4});
  check(run(program("ld.v2.b32 {%r2, %r3}, [%rd1+8];\nst.v2.b32 [%rd1], {%r3, %r2};"), {1, 2, 3, 4}), {4, 3, 3, 4});
}

BOOST_AUTO_TEST_CASE(own_memory_is_each_threads_own) {
  check(run(program("mov.b64 %rd6, depot;\ncvta.local.u64 %rd7, %rd6;\nst.local.b32 [%rd6+4], %r1;\nld.b32 %r2, [%rd7+4];\nst.global.b32 "
                    "[%rd3], %r2;"),
            {9, 9, 9}, {3, 1, 1}),
        {0, 1, 2});
}

BOOST_AUTO_TEST_CASE(guards_jumps_and_jump_tables) {
  check(run(program("setp.eq.b32 %p1, %r1, 1;\n@%p1 st.global.b32 [%rd3], 5;\n@!%p1 st.global.b32 [%rd3], 6;"), Numbers(3), {3, 1, 1}),
        {6, 5, 6});
  check(run(program("$L_brx_0: .branchtargets\n$A,\n$B;\nbrx.idx %r1, $L_brx_0;\n$A:\nst.global.b32 [%rd3], 10;\nbra.uni $C;\n$B:\n"
                    "st.global.b32 [%rd3], 11;\n$C:"),
            Numbers(2), {2, 1, 1}),
        {10, 11});
  check(
      run(program("mov.b32 %r2, 0;\n$L:\nadd.s32 %r2, %r2, 3;\nsetp.lt.s32 %p1, %r2, 10;\n@%p1 bra $L;\nst.global.b32 [%rd1], %r2;"), {0}),
      {12});
}

BOOST_AUTO_TEST_CASE(calls_pass_arguments_and_results) {
  const std::string twice =
      ".func (.param .b32 func_retval0) twice(\n.param .b32 twice_param_0\n)\n{\n.reg .b32 %r<4>;\nld.param.b32 %r1, [twice_param_0];\n"
      "add.s32 %r2, %r1, %r1;\nst.param.b32 [func_retval0], %r2;\nret;\n}\n";
  check(
      run(program(
              "{ // callseq\n.param .b32 param0;\nst.param.b32 [param0], %r1;\n.param .b32 retval0;\ncall.uni (retval0), twice, (param0);\n"
              "ld.param.b32 %r2, [retval0];\n}\nst.global.b32 [%rd3], %r2;",
              twice),
          Numbers(3), {3, 1, 1}),
      {0, 2, 4});
}

BOOST_AUTO_TEST_CASE(the_upper_half_of_a_register) {
  check(run(program("mov.b64 %rd6, 81985529216486895;\n{ .reg .b32 tmp; mov.b64 {tmp, %r2}, %rd6; }\nst.global.b32 [%rd1], %r2;"), {0}),
        {0x01234567u});
}

const char* const through_shared =
    "mov.b64 %rd6, tile;\ncvta.shared.u64 %rd7, %rd6;\nadd.s64 %rd8, %rd7, %rd2;\nst.b32 [%rd8], %r1;\nBARRIER\n"
    "sub.s32 %r2, 63, %r1;\nmul.wide.u32 %rd9, %r2, 4;\nadd.s64 %rd10, %rd6, %rd9;\nld.shared.b32 %r3, [%rd10];\nst.global.b32 [%rd3], "
    "%r3;";
std::string with_barrier(const std::string& barrier) {
  std::string body = through_shared;
  body.replace(body.find("BARRIER"), 7, barrier);
  return program(body, ".weak .shared .align 4 .b8 tile[256];\n");
}

BOOST_AUTO_TEST_CASE(a_barrier_orders_shared_memory_and_a_missing_one_is_a_race_or_an_unwritten_read) {
  Numbers expected(64);
  for (std::uint32_t i = 0; i < 64; ++i) expected[i] = 63 - i;
  check(run(with_barrier("bar.sync 0;"), Numbers(64), {64, 1, 1}), expected);
  faults([] { run(with_barrier(""), Numbers(64), {64, 1, 1}); }, {"__sycl_kernel_test", "thread (", "ld.shared.b32", "shared memory"});
  // A barrier of the warp does not order what another warp does.
  faults([] { run(with_barrier("bar.warp.sync -1;"), Numbers(64), {64, 1, 1}); }, {"shared memory"});
}

BOOST_AUTO_TEST_CASE(shuffles_bring_the_values_of_other_lanes) {
  const auto shuffled = [](const std::string& how) {
    return run(program("add.s32 %r2, %r1, 100;\nshfl.sync." + how + ", -1;\nst.global.b32 [%rd3], %r3;"), Numbers(32), {32, 1, 1});
  };
  Numbers up(32), down(32), first(32), butterfly(32);
  for (std::uint32_t i = 0; i < 32; ++i) {
    up[i] = 100 + (i >= 4 ? i - 4 : i);
    down[i] = 100 + (i + 4 < 32 ? i + 4 : i);
    first[i] = 103;
    butterfly[i] = 100 + (i ^ 4);
  }
  check(shuffled("up.b32 %r3, %r2, 4, 0"), up);
  check(shuffled("down.b32 %r3, %r2, 4, 31"), down);
  check(shuffled("idx.b32 %r3, %r2, 3, 31"), first);
  check(shuffled("bfly.b32 %r3, %r2, 4, 31"), butterfly);
}

BOOST_AUTO_TEST_CASE(accesses_that_no_device_allows_are_faults) {
  const auto one = [](const std::string& body) { return [body] { run(program(body), {1, 2}); }; };
  faults(one("ld.global.b32 %r2, [%rd1+8];"),
         {"__sycl_kernel_test", "thread (0,0,0)", "ld.global.b32 %r2, [%rd1+8]", "byte 8 of the buffer, which has 8"});
  faults(one("st.global.b32 [%rd1-4], %r1;"), {"st.global.b32"});
  faults(one("ld.global.b32 %r2, [%rd1+2];"), {"misaligned"});
  faults(one("ld.v2.b32 {%r2, %r3}, [%rd1+4];"), {"misaligned"});
  faults(one("mov.b64 %rd5, 16;\nld.b32 %r2, [%rd5];"), {"nothing is allocated"});
  faults(one("ld.local.b32 %r2, [depot];"), {"never written"});
  faults(one("setp.eq.b32 %p1, %r1, 0;\n$L:\n@%p1 bra $L;"), {"does not end"});
}

BOOST_AUTO_TEST_CASE(threads_that_wait_for_each_other_in_different_places_are_a_fault) {
  faults(
      [] {
        run(program("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $L;\nbar.sync 0;\nbra.uni $E;\n$L:\nsetp.lt.u32 %p2, %r1, 16;\n@%p2 bra $W;\n"
                    "bar.warp.sync -1;\nbra.uni $E;\n$W:\nbar.sync 0;\n$E:"),
            Numbers(64), {64, 1, 1});
      },
      {"deadlock"});
}

BOOST_AUTO_TEST_CASE(what_is_not_known_is_an_error_with_its_line) {
  BOOST_CHECK_EXCEPTION(Module::parse(program("frobnicate.b32 %r1, %r2;")), std::runtime_error,
                        [](const auto& e) { return std::string(e.what()).find("frobnicate.b32") != std::string::npos; });
  BOOST_CHECK_THROW(Module::parse(program("add.s32 %r1, %q2, 1;")), std::runtime_error);
  BOOST_CHECK_THROW(Module::parse(program("bra $nowhere;")), std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()
