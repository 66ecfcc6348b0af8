// What all kernels share: the SYCL names, types, and work-group reductions.
#pragma once

#include <sycl/sycl.hpp>

namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;
using bf16 = sycl::ext::oneapi::bfloat16;

// A kernel over work-items in one or two dimensions: plain names, so that the host finds it.
#define KERNEL_1D extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
#define KERNEL_2D extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>)) void

inline sycl::nd_item<1> item_1d() { return syclext::this_work_item::get_nd_item<1>(); }
inline sycl::nd_item<2> item_2d() { return syclext::this_work_item::get_nd_item<2>(); }

// For bounds of loops, in place of sycl::min and max: CPUs' compiler takes the results of those for values of a lane, and loops that end
// there for loops that end lane by lane, which then run three times as long.
inline long lesser(long a, long b) { return a < b ? a : b; }
inline long greater(long a, long b) { return a < b ? b : a; }
