// Batches and microbatches.
#include <ppengine/engine/batch.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>

namespace ppengine::engine {

const BatchInput* Batch::find(const std::string& name) const {
  const auto found = std::ranges::find(inputs, name, &BatchInput::name);
  return found == inputs.end() ? nullptr : &*found;
}

namespace {

// The ids of an input of tokens must be below this: the rows of the table that they choose from, or the classes of the loss that has them
// as targets. Negative targets are masked.
struct TokenLimit {
  std::int64_t below = INT32_MAX;
  bool targets = true;
};

TokenLimit token_limit(const Graph& graph, Value value) {
  TokenLimit limit;
  for (const Node& node : graph.nodes()) {
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::int64_t below = node.inputs[k] == value ? node.op->index_limit(k) : 0;
      if (below == 0) continue;
      limit.below = std::min(limit.below, below);
      limit.targets = limit.targets && node.output == graph.loss_value();
    }
    if (node.op->first_token() && node.inputs.front() == value) {
      limit.below = std::min(limit.below, graph.parameters()[node.parameters.front()].whole_shape()[0]);
      limit.targets = false;
    }
    if (node.output != graph.loss_value() || node.inputs.size() != 2 || node.inputs[1] != value) continue;
    const ValueInfo& logits = graph.values()[node.inputs[0]];
    std::int64_t classes = logits.width;
    // A tensor-parallel rank has a part of them: all are in the weight that makes them, maybe behind ops without one (a soft cap).
    const bool divided = std::ranges::any_of(graph.parameters(), [](const ParameterInfo& info) { return info.placement.is_split(); });
    bool found = false;
    for (NodeId at = divided ? logits.producer : NodeId(); at && !found;) {
      const Node& maker = graph.nodes()[at];
      for (ParameterId id : maker.parameters) {
        const ParameterInfo& info = graph.parameters()[id];
        if (!info.placement.is_split()) continue;
        const bool inputs_first = info.linear_weight && info.file_layout == ops::WeightLayout::in_out;
        classes = std::max(classes, info.whole_shape()[inputs_first ? 1 : 0]);
        found = true;
      }
      at = maker.parameters.empty() && !maker.inputs.empty() ? graph.values()[maker.inputs.front()].producer : NodeId();
    }
    if (divided && !found) continue;  // who made them is not known: no limit
    limit.below = std::min(limit.below, classes);
  }
  return limit;
}

}  // namespace

void check_tokens(const Graph& graph, Value value, std::span<const std::int32_t> tokens, std::int64_t length) {
  const TokenLimit limit = token_limit(graph, value);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < limit.below && (tokens[i] >= 0 || limit.targets)) continue;
    throw ConfigError(fmt::format("{}: {} at index {} (sequence {}, position {}) is not {} 0 to {}", graph.values()[value].name, tokens[i],
                                  i, static_cast<std::int64_t>(i) / length, static_cast<std::int64_t>(i) % length,
                                  limit.targets ? "a class," : "in the vocabulary,", limit.below - 1));
  }
}

void check_batch(const Graph& graph, const Batch& batch) {
  for (Value id : graph.values().ids()) {
    const ValueInfo& value = graph.values()[id];
    if (value.producer) continue;
    const BatchInput* input = batch.find(value.name);
    if (!input) throw ConfigError(fmt::format("the batch has no input '{}', which the model reads", value.name));
    const bool tokens = value.kind == ValueKind::tokens;
    const std::int64_t sequences = input->shared ? 1 : batch.sequences, width = value.width;
    const std::int64_t expected = sequences * batch.length * width;
    const auto got = static_cast<std::int64_t>(tokens ? input->tokens.size() : input->values.size());
    if (got != expected)
      throw ConfigError(
          fmt::format("{}: expected [{},{},{}] ({} elements), got {} elements", value.name, sequences, batch.length, width, expected, got));
    if (tokens) check_tokens(graph, id, input->tokens, batch.length * width);
  }
}

std::int64_t valid_tokens(const Graph& graph, const Batch& batch) {
  if (!graph.loss_value()) return 0;
  const NodeId node = graph.values()[graph.loss_value()].producer;
  for (Value id : graph.nodes()[node].inputs) {
    const ValueInfo& value = graph.values()[id];
    if (value.kind != ValueKind::tokens) continue;
    const BatchInput* targets = batch.find(value.name);
    if (!targets) return 0;
    return std::ranges::count_if(targets->tokens, [](std::int32_t target) { return target >= 0; }) *
           (targets->shared ? batch.sequences : 1);
  }
  return batch.sequences * batch.length;
}

std::int64_t Batch::tokens() const {
  return lengths.empty() ? sequences * length : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::vector<MicrobatchRange> split_batch(const Batch& batch, std::int64_t begin, std::int64_t sequences, int microbatches) {
  auto ranges = split_batch(begin, sequences, microbatches);
  if (batch.lengths.empty()) return ranges;
  constexpr std::int64_t sizes = 8;
  const std::int64_t step = (batch.length + sizes - 1) / sizes;
  for (MicrobatchRange& range : ranges) {
    const auto first = batch.lengths.begin() + range.begin;
    const std::int64_t longest = std::max<std::int64_t>(*std::max_element(first, first + range.count), 1);
    range.length = std::min((longest + step - 1) / step * step, batch.length);
  }
  return ranges;
}

std::vector<MicrobatchRange> split_batch(std::int64_t begin, std::int64_t sequences, int microbatches) {
  if (sequences < microbatches)
    throw ConfigError(fmt::format("{} sequences cannot be split into {} microbatches: use a larger --batch-size or fewer --microbatches",
                                  sequences, microbatches));
  std::vector<MicrobatchRange> ranges;
  for (int i = 0; i < microbatches; ++i) {
    const std::int64_t count = sequences / microbatches + (i < sequences % microbatches ? 1 : 0);
    ranges.push_back({begin, count});
    begin += count;
  }
  return ranges;
}

}  // namespace ppengine::engine
