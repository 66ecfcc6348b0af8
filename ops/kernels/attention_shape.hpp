// Sizes and strides of attention, as host and kernels share them.
#pragma once

constexpr float minus_infinity = -__builtin_inff();

// Of kernels/attention_lanes.cpp: lanes of a work-group, queries of a work-group, and of what the width of a head must be a multiple.
constexpr int attention_lanes = 16, attention_block = 32, attention_step = 8;
constexpr int attention_widest_lanes = 128;  // GPUs have room for no more in a work-group

// Element (b,t,h,d): q at b·q_batch + t·q_token + h·head_dim + d; k at b·k_batch + t·k_token + h·k_head + d, v alike; the result is dense.
struct AttentionShape {
  long length, heads, group, head_dim;  // group: query heads per key/value head
  long q_batch, q_token;
  long k_batch, k_token, k_head;
  long v_batch, v_token, v_head;
  float scale;
};
