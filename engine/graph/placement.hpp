// How tensor-parallel ranks divide a model: rules by module, and with each parameter which part of it a rank has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ppengine/ops/device/tensor.hpp>

namespace ppengine::engine {

// A linear is divided by its outputs (each rank makes some of them), or by its inputs (each rank makes a summand of all
// outputs). An embedding and the linear that makes logits are divided by the vocabulary, also where that is not even:
// lookups are summed over ranks, and the loss comes from each rank's part of the logits.
enum class TensorSplit { outputs, inputs, vocabulary };

struct TensorRule {
  std::string module;  // how the names of the linears and embeddings end: "attn.c_attn"
  TensorSplit split = TensorSplit::outputs;
  std::vector<std::int64_t> sections = {};  // of a packed projection's outputs (queries, keys, values): each is divided on its own
};
using TensorPlan = std::vector<TensorRule>;

// The stretch of `size` things that one of several ranks has. Stretches differ by one at most; the larger ones come first.
struct Stretch {
  std::int64_t begin = 0, count = 0;
};
Stretch stretch_of(std::int64_t size, int rank, int ranks);

// The part of a parameter that a rank has along the mesh's tensor axis.
struct Placement {
  int dimension = -1;  // of the whole tensor; -1: it is not divided
  int rank = 0, ranks = 1;
  std::vector<std::int64_t> sections;  // of that dimension, in order; each is divided into stretches
  ops::Shape whole;
  bool is_split() const { return dimension >= 0; }
  ops::Shape part() const;  // the shape of what the rank has
  bool operator==(const Placement&) const = default;
};

// Between the whole tensor and one rank's part of it, both dense. put_part leaves the other ranks' elements alone.
void take_part(const Placement& placement, std::span<const float> whole, std::span<float> part);
void put_part(const Placement& placement, std::span<const float> part, std::span<float> whole);

}  // namespace ppengine::engine
