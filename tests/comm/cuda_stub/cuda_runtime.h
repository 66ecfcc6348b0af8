// The names of CUDA that nccl.h mentions, so that it can be compiled without CUDA.
#pragma once
#include <stddef.h>
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
