// Every opcode that only computes, against values worked out by hand from the PTX ISA's definitions.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <set>

#include "opcodes.hpp"
#include "ptx/arithmetic.hpp"
#include "ptx/bits.hpp"

namespace {
using namespace ppengine::ptx;
using ppengine::test::opcodes_in_kernels;

struct Case {
  const char* opcode;
  std::uint64_t a, b, c, expected;
};

std::uint64_t f(float value) { return to_bits(value); }
template <class T>
std::uint64_t i(T value) {
  return to_bits(value);
}
constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t m1 = 0xffffffffu;
constexpr std::uint64_t l1 = ~std::uint64_t(0);

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      // integers: sums and products wrap
      {"add.s32", i(0x7fffffff), 1, 0, 0x80000000u},
      {"sub.s32", 0, 1, 0, m1},
      {"mul.lo.s32", 0x10001u, 0x10001u, 0, 0x20001u},
      {"mad.lo.s32", i(-3), 5, 7, i(-8)},
      {"add.s64", l1, 2, 0, 1},
      {"add.u64", l1, 2, 0, 1},
      {"sub.s64", 1, 3, 0, i<std::int64_t>(-2)},
      {"mul.lo.s64", 0x100000001u, 0x100000001u, 0, 0x200000001u},
      {"mad.lo.s64", i<std::int64_t>(-3), 5, 7, i<std::int64_t>(-8)},
      {"neg.s32", 5, 0, 0, i(-5)},
      {"neg.s64", 5, 0, 0, i<std::int64_t>(-5)},
      {"mul.wide.s32", i(-2), 0x7fffffff, 0, i<std::int64_t>(-4294967294)},
      {"mul.wide.u32", m1, m1, 0, 0xfffffffe00000001u},
      {"div.u32", m1, 2, 0, 0x7fffffffu},
      {"div.s64", i<std::int64_t>(-7), 2, 0, i<std::int64_t>(-3)},
      {"rem.u32", 17, 5, 0, 2},
      {"rem.s64", i<std::int64_t>(-7), 2, 0, i<std::int64_t>(-1)},
      {"min.u32", m1, 1, 0, 1},
      {"min.s64", l1, 1, 0, l1},
      {"max.s64", l1, 1, 0, 1},
      // bits
      {"and.b32", 0xf0f0u, 0xff00u, 0, 0xf000u},
      {"and.b64", 0xf0f0u, 0xff00u, 0, 0xf000u},
      {"or.b16", 0xf000u, 0x000fu, 0, 0xf00fu},
      {"or.b32", 0xf000u, 0x000fu, 0, 0xf00fu},
      {"or.b64", 0xf000u, 0x000fu, 0, 0xf00fu},
      {"xor.b32", 0xffu, 0x0fu, 0, 0xf0u},
      {"xor.b64", l1, 1, 0, l1 - 1},
      {"and.pred", 1, 0, 0, 0},
      {"or.pred", 1, 0, 0, 1},
      {"not.pred", 1, 0, 0, 0},
      {"shl.b32", 1, 31, 0, 0x80000000u},
      {"shl.b32", 1, 32, 0, 0},
      {"shl.b64", 1, 63, 0, 0x8000000000000000u},
      {"shr.u32", 0x80000000u, 31, 0, 1},
      {"shr.u32", 0x80000000u, 32, 0, 0},
      {"shr.s32", 0x80000000u, 40, 0, m1},
      {"shr.u64", 0x8000000000000000u, 63, 0, 1},
      {"shr.s64", 0x8000000000000000u, 63, 0, l1},
      {"bfe.u32", 0xabcd1234u, 8, 8, 0x12u},
      {"bfe.s32", 0x0000ff00u, 8, 8, m1},
      {"bfe.s32", 0x80000000u, 24, 8, 0xffffff80u},
      {"selp.b32", 3, 4, 1, 3},
      {"selp.b64", 3, 4, 0, 4},
      {"selp.f32", f(1), f(2), 1, f(1)},
      // floats
      {"add.f32", f(1), f(0x1p-24f), 0, f(1)},
      {"add.rn.f32", f(1.5f), f(2), 0, f(3.5f)},
      {"sub.rn.f32", f(1.5f), f(2), 0, f(-0.5f)},
      {"mul.rn.f32", f(1.5f), f(-2), 0, f(-3)},
      {"div.rn.f32", f(1), f(3), 0, f(0x1.555556p-2f)},
      {"rcp.rn.f32", f(3), 0, 0, f(0x1.555556p-2f)},
      {"fma.rn.f32", f(1 + 0x1p-23f), f(1 - 0x1p-23f), f(-1), f(-0x1p-46f)},
      {"fma.rm.f32", f(1), f(1), f(0x1p-30f), f(1)},
      {"fma.rm.f32", f(-1), f(1), f(-0x1p-30f), f(-1 - 0x1p-23f)},
      {"min.f32", f(nan), f(2), 0, f(2)},
      {"max.f32", f(-1), f(2), 0, f(2)},
      {"neg.f32", f(0), 0, 0, 0x80000000u},
      {"abs.f32", f(-2), 0, 0, f(2)},
      {"copysign.f32", f(-1), f(5), 0, f(-5)},
      {"rcp.approx.ftz.f32", f(4), 0, 0, f(0.25f)},
      {"rcp.approx.ftz.f32", f(1e-40f), 0, 0, f(infinity)},
      {"rsqrt.approx.f32", f(16), 0, 0, f(0.25f)},
      {"sqrt.approx.f32", f(16), 0, 0, f(4)},
      {"ex2.approx.ftz.f32", f(-3), 0, 0, f(0.125f)},
      {"ex2.approx.ftz.f32", f(-140), 0, 0, f(0)},
      {"cvt.rn.bf16x2.f32", f(1), f(-2), 0, 0x3f80c000u},
      {"cvt.rn.bf16x2.f32", f(1 + 0x1p-8f), f(1 + 0x3p-8f), 0, 0x3f803f82u},  // ties go to even
      {"cvt.rn.bf16x2.f32", f(nan), f(infinity), 0, 0x7fff7f80u},
      // comparisons
      {"setp.eq.b32", m1, l1, 0, 1},
      {"setp.ne.b32", 1, 2, 0, 1},
      {"setp.eq.b64", 1, 1, 0, 1},
      {"setp.ne.b64", 1, 1, 0, 0},
      {"setp.lt.s16", 0xffffu, 0, 0, 1},
      {"setp.lt.s32", m1, 0, 0, 1},
      {"setp.le.s32", m1, 0, 0, 1},
      {"setp.le.s32", 1, 0, 0, 0},
      {"setp.gt.s32", m1, 0, 0, 0},
      {"setp.ge.s32", 0, 0, 0, 1},
      {"setp.lt.u32", m1, 0, 0, 0},
      {"setp.gt.u32", m1, 0, 0, 1},
      {"setp.lt.s64", l1, 0, 0, 1},
      {"setp.le.s64", 0, 0, 0, 1},
      {"setp.gt.s64", l1, 0, 0, 0},
      {"setp.ge.s64", l1, 0, 0, 0},
      {"setp.lt.u64", l1, 0, 0, 0},
      {"setp.le.u64", 1, 1, 0, 1},
      {"setp.gt.u64", l1, 0, 0, 1},
      {"setp.eq.f32", f(0.0f), f(-0.0f), 0, 1},
      {"setp.lt.f32", f(nan), f(0), 0, 0},
      {"setp.le.f32", f(1), f(1), 0, 1},
      {"setp.le.f32", f(nan), f(1), 0, 0},
      {"setp.gt.f32", f(1), f(0), 0, 1},
      {"setp.ge.f32", f(nan), f(nan), 0, 0},
      {"setp.leu.f32", f(nan), f(0), 0, 1},
      {"setp.gtu.f32", f(nan), f(0), 0, 1},
      {"setp.geu.f32", f(-1), f(0), 0, 0},
      {"setp.ltu.f32", f(1), f(0), 0, 0},
      {"setp.neu.f32", f(nan), f(nan), 0, 1},
      // conversions
      {"cvt.u64.u32", l1, 0, 0, m1},
      {"cvt.u32.u64", l1, 0, 0, m1},
      {"cvt.s64.s32", m1, 0, 0, l1},
      {"cvt.s32.s8", 0x80u, 0, 0, 0xffffff80u},
      {"cvt.s32.s16", 0x8000u, 0, 0, 0xffff8000u},
      {"cvt.u32.u16", 0x18000u, 0, 0, 0x8000u},
      {"cvt.u16.u32", 0x18000u, 0, 0, 0x8000u},
      {"cvt.rn.f32.s16", 0xffffu, 0, 0, f(-1)},
      {"cvt.rn.f32.s32", m1, 0, 0, f(-1)},
      {"cvt.rn.f32.u32", m1, 0, 0, f(0x1p32f)},
      {"cvt.rn.f32.s64", l1, 0, 0, f(-1)},
      {"cvt.rn.f32.u64", l1, 0, 0, f(0x1p64f)},
      {"cvt.rzi.s32.f32", f(-1.9f), 0, 0, m1},
      {"cvt.rzi.s32.f32", f(1e10f), 0, 0, 0x7fffffffu},
      {"cvt.rzi.s32.f32", f(nan), 0, 0, 0},
      {"cvt.rzi.s64.f32", f(-1e10f), 0, 0, i<std::int64_t>(-10000000000)},
      {"cvt.sat.f32.f32", f(1.5f), 0, 0, f(1)},
      {"cvt.sat.f32.f32", f(nan), 0, 0, f(0)},
  };
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(instructions)

BOOST_AUTO_TEST_CASE(each_computes_its_closed_form) {
  for (const Case& one : cases()) {
    const auto found = arithmetic().find(std::string_view(one.opcode));
    BOOST_TEST_REQUIRE((found != arithmetic().end()), one.opcode);
    const std::uint64_t got = found->second(one.a, one.b, one.c);
    BOOST_TEST(got == one.expected, one.opcode << ": " << std::hex << got << " in place of " << one.expected);
  }
}

// Nothing runs in the kernels' tests that was not tested here or in test_control.cpp.
BOOST_AUTO_TEST_CASE(each_that_occurs_in_a_kernel_is_tested, *boost::unit_test::precondition(ppengine::test::has_ptx)) {
  std::set<std::string> tested;
  for (const Case& one : cases()) tested.insert(one.opcode);
  for (const std::string& opcode : opcodes_in_kernels())
    if (!ppengine::test::is_control(opcode)) BOOST_TEST(tested.contains(opcode), opcode);
}

BOOST_AUTO_TEST_SUITE_END()
