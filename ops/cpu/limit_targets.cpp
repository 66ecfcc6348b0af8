// --isa for the loops of ops/cpu.
#include <hwy/targets.h>

#include <mutex>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/ops/cpu/loops.hpp>

namespace ppengine::ops::cpu {

void limit_targets() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string isa = environment::isa();
    if (isa.empty()) return;
#if !HWY_ARCH_X86
    throw DeviceError("--isa " + isa + ": this is for x86 CPUs; leave the flag out", ExitCode::no_device);
#else
    constexpr std::int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
    const std::int64_t there = hwy::SupportedTargets(), wanted = isa == "avx512" ? avx512 : isa == "avx2" ? HWY_AVX2 : HWY_SSE4;
    if (!(there & wanted))
      throw DeviceError("--isa " + isa + ": this CPU does not have it; leave the flag out to use what it has", ExitCode::no_device);
    if (isa != "avx512") hwy::DisableTargets(isa == "avx2" ? avx512 : avx512 | HWY_AVX2);
#endif
  });
}

}  // namespace ppengine::ops::cpu
