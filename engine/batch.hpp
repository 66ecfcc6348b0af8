// A batch of sequences, and how it falls into microbatches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::engine {

// One input of the model for all sequences of a batch: tokens [sequences, length] or values [sequences, length, width]. A shared one is
// given once, [length] or [length, width], and every sequence of every microbatch sees it.
struct BatchInput {
  std::string name;
  std::vector<std::int32_t> tokens;
  std::vector<float> values;
  bool shared = false;
};

struct Batch {
  std::int64_t sequences = 0, length = 0;
  std::vector<BatchInput> inputs;
  // By sequence: tokens that count, the rest is padding with masked targets. Microbatches are as long as their longest sequence then.
  // Empty: all are of the batch's length.
  std::vector<std::int64_t> lengths = {};

  std::int64_t tokens() const;  // without padding
  const BatchInput* find(const std::string& name) const;
};

// Checks that the batch has every input of the graph in its right size, and that tokens are in range; ConfigError names the first that
// does not fit.
void check_batch(const Graph& graph, const Batch& batch);
// ConfigError with index and number for the first token that is out of range: not in the vocabulary of an embedding, or not a class of the
// loss that has them as targets (below zero: masked).
void check_tokens(const Graph& graph, Value value, std::span<const std::int32_t> tokens, std::int64_t length);

// Targets that count: those that the loss reads and that are not masked (below zero).
std::int64_t valid_tokens(const Graph& graph, const Batch& batch);

// Sequences [begin, begin + count) of a batch.
struct MicrobatchRange {
  std::int64_t begin = 0, count = 0;
  std::int64_t length = 0;  // tokens of each that are computed; 0: all
};

// As even as possible, the larger ones first. ConfigError where there are fewer sequences than microbatches.
std::vector<MicrobatchRange> split_batch(std::int64_t begin, std::int64_t sequences, int microbatches);
// The same, each as long as the longest of its sequences: rounded up to an eighth of the batch's length, so that few shapes are compiled.
std::vector<MicrobatchRange> split_batch(const Batch& batch, std::int64_t begin, std::int64_t sequences, int microbatches);

}  // namespace ppengine::engine
