// Batches and microbatches.
#include <ppengine/engine/batch.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

const BatchInput* Batch::find(const std::string& name) const {
  const auto found = std::ranges::find(inputs, name, &BatchInput::name);
  return found == inputs.end() ? nullptr : &*found;
}

void check_batch(const Graph& graph, const Batch& batch) {
  for (const ValueInfo& value : graph.values()) {
    if (value.producer >= 0) continue;
    const BatchInput* input = batch.find(value.name);
    if (!input) throw ConfigError(fmt::format("the batch has no input '{}', which the model reads", value.name));
    const bool tokens = value.kind == ValueKind::tokens;
    const int64_t sequences = input->shared ? 1 : batch.sequences, width = tokens ? 1 : value.width;
    const int64_t expected = sequences * batch.length * width;
    const auto got = static_cast<int64_t>(tokens ? input->tokens.size() : input->values.size());
    if (got != expected)
      throw ConfigError(
          fmt::format("{}: expected [{},{},{}] ({} elements), got {} elements", value.name, sequences, batch.length, width, expected, got));
  }
}

int64_t valid_tokens(const Graph& graph, const Batch& batch) {
  if (graph.loss_value() < 0) return 0;
  const int node = graph.values()[static_cast<size_t>(graph.loss_value())].producer;
  for (int id : graph.nodes()[static_cast<size_t>(node)].inputs) {
    const ValueInfo& value = graph.values()[static_cast<size_t>(id)];
    if (value.kind != ValueKind::tokens) continue;
    const BatchInput* targets = batch.find(value.name);
    if (!targets) return 0;
    return std::ranges::count_if(targets->tokens, [](int32_t target) { return target >= 0; }) * (targets->shared ? batch.sequences : 1);
  }
  return batch.sequences * batch.length;
}

int64_t Batch::tokens() const {
  return lengths.empty() ? sequences * length : std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::vector<MicrobatchRange> split_batch(const Batch& batch, int64_t begin, int64_t sequences, int microbatches) {
  auto ranges = split_batch(begin, sequences, microbatches);
  if (batch.lengths.empty()) return ranges;
  constexpr int64_t sizes = 8;
  const int64_t step = (batch.length + sizes - 1) / sizes;
  for (MicrobatchRange& range : ranges) {
    const auto first = batch.lengths.begin() + range.begin;
    const int64_t longest = std::max<int64_t>(*std::max_element(first, first + range.count), 1);
    range.length = std::min((longest + step - 1) / step * step, batch.length);
  }
  return ranges;
}

std::vector<MicrobatchRange> split_batch(int64_t begin, int64_t sequences, int microbatches) {
  if (sequences < microbatches)
    throw ConfigError(fmt::format("{} sequences cannot be split into {} microbatches: use a larger --batch-size or fewer --microbatches",
                                  sequences, microbatches));
  std::vector<MicrobatchRange> ranges;
  for (int i = 0; i < microbatches; ++i) {
    const int64_t count = sequences / microbatches + (i < sequences % microbatches ? 1 : 0);
    ranges.push_back({begin, count});
    begin += count;
  }
  return ranges;
}

}  // namespace ppengine::engine
