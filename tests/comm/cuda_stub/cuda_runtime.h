// The two names of CUDA that nccl.h mentions, so that it can be compiled without CUDA.
#pragma once
typedef struct CUstream_st* cudaStream_t;
