// Targets of Highway that the loops are compiled for; to be included before hwy/foreach_target.h. SSSE3 adds nothing; vectors of SVE have
// no size at compile time and so cannot be held in the arrays that tiles are: CPUs with SVE use NEON. The plain baseline of x86 has no
// vectors of use to us: there the loops are not available, and other implementations serve.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Ends a loops_*.cpp: NAME() is the table that find_NAME() gives for the best target that the CPU has and --isa allows.
#define PPENGINE_CHOSEN_LOOPS(Loops, name)                                                     \
  HWY_EXPORT(find_##name);                                                                     \
  const Loops* name() {                                                                        \
    static const Loops* const chosen = (limit_targets(), HWY_DYNAMIC_DISPATCH(find_##name)()); \
    return chosen;                                                                             \
  }
