// The inner loop of attention over keys and values in bytes.
//
// A head's cache is a row of blocks of 64 tokens: keys as [head_dim][64] bytes, so that scores of neighbouring keys lie side by side,
// values as [64][head_dim filled up to registers]; behind the bytes of either a scale per token (largest |x| / 127).
#pragma once

#include <cstddef>

#include <ppengine/ops/cpu/loops_steps.hpp>

namespace ppengine::ops::cpu {

constexpr std::int64_t byte_block = page_step;  // tokens of a block

inline std::int64_t byte_row(std::int64_t head_dim) { return (head_dim + most_lanes - 1) / most_lanes * most_lanes; }
inline std::int64_t byte_block_bytes(std::int64_t head_dim) {
  return byte_block * (byte_row(head_dim) + static_cast<std::int64_t>(sizeof(float)));
}

struct ByteCacheStep {
  AttentionStep of;  // but for its caches
  std::byte *k_cache, *v_cache;
  std::int64_t head_bytes, sequence_bytes;  // from one head to the next, from one sequence to the next
};

struct ByteCacheLoops {
  // The new tokens of a sequence go into one key/value head's cache, then the heads that share it attend to what is there: of their own
  // tokens too they see what the bytes kept. chunk = sequence · kv_heads + kv_head. A token's result depends on the tokens before it alone,
  // however many go in at once.
  void (*attend)(const ByteCacheStep& step, std::int64_t chunk);
};
const ByteCacheLoops* byte_cache_loops();  // null as in loops.hpp

}  // namespace ppengine::ops::cpu
