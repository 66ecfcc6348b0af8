// Sizes and strides of attention, as host and kernels share them.
#pragma once

constexpr float minus_infinity = -__builtin_inff();
constexpr float lowest_score =
    -1e30f;  // what a largest score begins with: finite, so that a tile without keys that a query sees changes nothing

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
  float cap;    // scores are cap·tanh(score / cap); 0: as they are
  long window;  // a query sees the last so many keys, itself included
  long ring;    // key t of a cache lies at t % ring; nothing that is read at once crosses the end of the ring
  // Above 0: a cache in pages of so many keys, one for all sequences. The table of a sequence's pages lies behind the numbers of keys that
  // are there (`filled`), table_stride for each sequence from table_at on.
  long page, table_at, table_stride;
};

// Where key t of a sequence lies in its cache. What follows it up to a multiple of 64 lies behind it.
inline long slot_of(const AttentionShape& s, const int* filled, long batch, long t) {
  if (s.page == 0) return t % s.ring;
  return filled[s.table_at + batch * s.table_stride + t / s.page] * s.page + t % s.page;
}

// Heads of a token for rotary embedding: the first `turned` of them have their first 2·half elements turned. parts above 1: in the source
// they lie as [head, part] (queries, keys and values of a head together), in the result as [part, head].
struct RotaryShape {
  long length, heads, turned, head_dim, half, parts;
};
// Where the result's head lies in the source.
inline long own_head(const RotaryShape& r, long head) {
  const long each = r.heads / r.parts;
  return r.parts == 1 ? head : head % each * r.parts + head / each;
}

constexpr long no_window = 1L << 62, no_ring = 1L << 62;
constexpr long ring_step = 256;  // rings are multiples of it, or as long as the sequence
constexpr long page_step = 64;   // and pages of this
