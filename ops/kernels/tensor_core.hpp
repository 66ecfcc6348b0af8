// NVIDIA's tensor cores (sm_80 and later): products of tiles of bf16 with sums in f32, and the copies that feed them. As inline PTX: the
// run-time compiler (2026.2) refuses joint_matrix of bf16 (docs/gpu.md).
//
// Lane l of a sub-group of 32 holds, with g = l / 4 and t = l % 4, two neighbours in a register, the lower index in the lower half:
// - a (16 rows × 16 deep)   row g, at 2t | row g+8, at 2t | row g, at 2t+8 | row g+8, at 2t+8
// - b (16 deep × 8 columns) column g, at 2t | column g, at 2t+8
// - sums (16 rows × 8 columns, f32) row g, columns 2t and 2t+1 | row g+8, the same
#pragma once

#include "values.hpp"

constexpr int step_depth = 16;  // of one instruction

// What takes arrays by reference: they stay in registers only where it is part of its caller.
#define ALL_IN_REGISTERS inline __attribute__((always_inline))

// sums += a·b
inline void tensor_multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A register with two neighbours, rounded.
inline unsigned pack_bf16(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Where something lies in shared memory, as the instructions below take it.
inline unsigned shared_address(const void* p) {
  unsigned long address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(p));
  return static_cast<unsigned>(address);
}

// Four matrices of 8 × 8 elements: lanes 8i..8i+7 say where the rows of matrix i lie, 16 bytes each. Lane l gets of each matrix the
// elements 2t and 2t+1 of row g; transposed: of column g.
template <bool Transposed>
inline void load_matrices(unsigned (&to)[4], unsigned address) {
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// Copies of 16 bytes from global to shared memory that run beside the arithmetic: of the last so many bytes only `bytes` are read, the
// rest becomes zero. What a work-item has asked for is there after finish_copies(), and there for others after a barrier behind that.
inline void copy_chunk(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}
inline void copy_chunk(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}
inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// But for those of the last `Later` commits.
template <int Later>
inline void finish_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Later) : "memory");
}
