// Every environment variable that the library reads or sets, in one place.
#pragma once

#include <string>

namespace ppengine::environment {

// PPENGINE_ONEDNN=off: every op runs on our own kernels.
bool onednn_enabled();

// PPENGINE_STANDIN_GPUS=N: the CPU is listed N more times, as standin:0 and on, and used as a GPU would be. For tests. ConfigError where it
// is no number from 0 to 64.
int standin_gpus();

// PPENGINE_ISA: the best vector instructions that may be used (sse4, avx2, avx512), by the loops of ops/cpu, oneDNN and kernels on CPUs.
// Empty: those that the CPU has ("native"). ConfigError for another word.
std::string isa();

// Where compiled kernels are kept between runs: PPENGINE_CACHE, else XDG_CACHE_HOME/ppengine, else ~/.cache/ppengine.
std::string cache_folder();

// Where the library's own files are (lib/ppengine beside libppengine.so): communicators, compiled kernels.
std::string own_folder();

// PPENGINE_SHIPPED_KERNELS=off: kernels that were compiled with the library are not used; =spirv: only those in SPIR-V. For tests.
enum class ShippedKernels { all, spirv, off };
ShippedKernels shipped_kernels();

// SYCL_CACHE_PERSISTENT=0 turns the cache off.
bool kernel_cache_enabled();

// Makes SYCL usable without any setting by the user: names the CPU's OpenCL driver (OCL_ICD_FILENAMES) and turns the persistent
// kernel cache on (SYCL_CACHE_PERSISTENT, SYCL_CACHE_DIR). What the user has set stays. Must run before the first SYCL call.
void prepare_sycl();

// SYCL_JIT_AMDGCN_PTX_TARGET_CPU and _FEATURES: what SYCL's run-time compiler makes for NVIDIA devices. What the user has set stays.
void aim_nvidia_compiler(const std::string& architecture, const std::string& features);

}  // namespace ppengine::environment
