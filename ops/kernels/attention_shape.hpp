// Sizes and strides of attention, as host and kernels share them.
#pragma once

constexpr float minus_infinity = -__builtin_inff();

// Element (b,t,h,d): q at b·q_batch + t·q_token + h·head_dim + d; k at b·k_batch + t·k_token + h·k_head + d, v alike; the result is dense.
struct AttentionShape {
  long length, heads, group, head_dim;  // group: query heads per key/value head
  long q_batch, q_token;
  long k_batch, k_token, k_head;
  long v_batch, v_token, v_head;
  float scale;
};
