// The part of NCCL that is used, found at run time in libnccl.so.2 (librccl.so.1 for AMD): no software of theirs is needed to build.
// tests/comm compiles these declarations against the real nccl.h where it is installed.
#pragma once

#include <cstddef>
#include <string>

namespace ppengine::comm::nccl {

using Result = int;           // ncclResult_t: 0 success, 7 in progress
using Comm = struct Opaque*;  // ncclComm_t
using NativeStream = void*;   // cudaStream_t
struct UniqueId {
  char internal[128];
};
constexpr Result success = 0, in_progress = 7;
enum DataType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9
};
enum RedOp : int { sum = 0, product = 1, max = 2, min = 3 };

// Each member has the name of its function without "nccl".
struct Api {
  // NOLINTBEGIN(readability-identifier-naming)
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRank)(Comm* comm, int ranks, UniqueId id, int rank);
  Result (*CommDestroy)(Comm comm);
  Result (*CommAbort)(Comm comm);
  Result (*CommGetAsyncError)(Comm comm, Result* error);
  const char* (*GetErrorString)(Result result);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*Send)(const void* data, std::size_t count, int type, int peer, Comm comm, NativeStream stream);
  Result (*Recv)(void* data, std::size_t count, int type, int peer, Comm comm, NativeStream stream);
  Result (*AllReduce)(const void* in, void* out, std::size_t count, int type, int op, Comm comm, NativeStream stream);
  Result (*ReduceScatter)(const void* in, void* out, std::size_t count, int type, int op, Comm comm, NativeStream stream);
  Result (*AllGather)(const void* in, void* out, std::size_t count, int type, Comm comm, NativeStream stream);
  Result (*Broadcast)(const void* in, void* out, std::size_t count, int type, int root, Comm comm, NativeStream stream);
  // NOLINTEND(readability-identifier-naming)

  // NVIDIA's library, or AMD's, which has the same functions.
  struct Vendor {
    const char *name, *file, *variable;  // variable: names another file
    const char* devices;                 // whose devices need it
    const char* install;
  };
  static constexpr Vendor nvidia{"NCCL", "libnccl.so.2", "PPENGINE_NCCL", "NVIDIA", "pip install nvidia-nccl-cu13"};
  static constexpr Vendor amd{"RCCL", "librccl.so.1", "PPENGINE_RCCL", "AMD", "it is part of ROCm"};

  // ConfigError with a sentence when the library is not there, too old, or lacks a function. Loaded once in a process.
  static const Api& load(const Vendor& vendor);
  static Api load_from(const std::string& path, const Vendor& vendor = nvidia);
  // Throws Error with NCCL's own text.
  void check(Result result, const char* what) const;

  const char* name = "NCCL";
  const char* no_messages = nullptr;  // why it has no send and receive here
  void* library = nullptr;            // for the streams of the stand-in in tests/
};

}  // namespace ppengine::comm::nccl
