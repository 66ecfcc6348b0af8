// Philox4x32-10 (Salmon et al., 2011): random words that depend on a key and a counter alone.
#pragma once

#include "values.hpp"

struct RandomWords {
  unsigned w[4];
};

inline RandomWords philox(unsigned long key, unsigned long counter) {
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  unsigned c0 = static_cast<unsigned>(counter), c1 = static_cast<unsigned>(counter >> 32), c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const unsigned long p0 = 0xD2511F53ul * c0, p1 = 0xCD9E8D57ul * c2;
    c0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<unsigned>(p1);
    c2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<unsigned>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// body(i, keep) for i in [0, count), keep being 0 or `factor` by the element's absolute index first + i. Absolute indices are taken
// in units of 64, work-item x of 16 having the four elements x, x+16, x+32, x+48: one Philox call for four, and
// neighbours still touch neighbours. The local size is (any, 16).
template <class Body>
inline void for_dropout(long count, long chunk, unsigned threshold, float factor, unsigned long key, unsigned long first, Body body) {
  const auto item = item_2d();
  const long lane = item.get_local_id(1);
  const unsigned long first_unit = first / 64, last_unit = (first + static_cast<unsigned long>(count) - 1) / 64;
  const long units = static_cast<long>(last_unit - first_unit) + 1;
  const long begin = static_cast<long>(item.get_group(0)) * chunk;
  const long end = lesser(begin + chunk, units);
  for (long unit = begin + static_cast<long>(item.get_local_id(0)); unit < end; unit += item.get_local_range(0)) {
    const unsigned long absolute = first_unit + static_cast<unsigned long>(unit);
    const RandomWords words = philox(key, absolute * 16 + static_cast<unsigned long>(lane));
    const long base = static_cast<long>(absolute * 64 - first) + lane;
    for (int k = 0; k < 4; ++k) {
      const long i = base + 16 * k;
      if (i >= 0 && i < count) body(i, words.w[k] >= threshold ? factor : 0.0f);
    }
  }
}
