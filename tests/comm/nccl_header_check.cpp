// Compiled against NVIDIA's nccl.h: our own declarations must have the same shape and values.
#include <nccl.h>

#include <type_traits>

#include <ppengine/comm/nccl/api.hpp>

using ppengine::comm::nccl::Api;
namespace ours = ppengine::comm::nccl;

namespace {

static_assert(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
static_assert(ours::success == ncclSuccess && ours::in_progress == ncclInProgress);
static_assert(int(ours::uint8) == ncclUint8 && int(ours::int32) == ncclInt32 && int(ours::int64) == ncclInt64 &&
              int(ours::float16) == ncclFloat16 && int(ours::float32) == ncclFloat32 && int(ours::float64) == ncclFloat64 &&
              int(ours::bfloat16) == ncclBfloat16);
static_assert(int(ours::sum) == ncclSum && int(ours::max) == ncclMax && int(ours::min) == ncclMin);

// The same number of arguments of the same sizes, passed in the same kind of register.
template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B>;
template <class R1, class... A1, class R2, class... A2>
constexpr bool same_shape(R1 (*)(A1...), R2 (*)(A2...)) {
  if constexpr (sizeof...(A1) != sizeof...(A2))
    return false;
  else
    return (alike<A1, A2> && ...) && sizeof(R1) == sizeof(R2);
}
#define SAME_SHAPE(name) static_assert(same_shape(decltype(Api::name)(nullptr), decltype (&nccl##name)(nullptr)), #name)
SAME_SHAPE(GetVersion);
SAME_SHAPE(GetUniqueId);
SAME_SHAPE(CommInitRank);
SAME_SHAPE(CommDestroy);
SAME_SHAPE(CommAbort);
SAME_SHAPE(CommGetAsyncError);
SAME_SHAPE(GetErrorString);
SAME_SHAPE(GroupStart);
SAME_SHAPE(GroupEnd);
SAME_SHAPE(Send);
SAME_SHAPE(Recv);
SAME_SHAPE(AllReduce);
SAME_SHAPE(ReduceScatter);
SAME_SHAPE(AllGather);
SAME_SHAPE(Broadcast);

}  // namespace
