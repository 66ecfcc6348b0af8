// Integers between two bounds, as a grammar over their digits.
#pragma once

#include <cstdint>

#include <ppengine/runs/constraint/grammar.hpp>

namespace ppengine::runs::constraint {

// Integers from low to high, both included, without leading zeros.
std::int32_t integer_range(Grammar& grammar, std::int64_t low, std::int64_t high, std::int32_t next);

}  // namespace ppengine::runs::constraint
