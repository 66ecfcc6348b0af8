// LoRA: a graph whose named linears get a trained low-rank term beside them, y = W x + scale * B (A dropout(x)), and whose other parameters
// are frozen. Names and rules are those of the peft library.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::engine {

struct LoraOptions {
  std::int64_t rank = 0;         // 0: none
  double alpha = 8.0;            // the term is multiplied by alpha / rank
  bool rank_stabilized = false;  // by alpha / sqrt(rank) instead
  double dropout = 0.0;          // of the term's input, in training
  // Module names, or how they end ("q_proj"), or regular expressions of whole names (".*\\.[qv]_proj"); "all-linear": all but the head.
  std::vector<std::string> targets;
  std::map<std::string, std::int64_t> ranks = {};  // by module: another rank there
  std::map<std::string, double> alphas = {};       // and another alpha
  std::int64_t rank_of(const std::string& module) const;
  double scale(const std::string& module) const;
};

// The linears of the graph that the targets name, in its order. ConfigError names a target that fits none, with the names there are.
std::vector<std::string> lora_modules(const Graph& graph, const std::vector<std::string>& targets);

// What peft adapts where no targets are given: the queries and values, or what they are packed into.
std::vector<std::string> default_lora_targets(const Graph& graph);

// The parameters of the terms are MODULE.lora_A.weight [rank, in] (uniform as torch.nn.Linear's) and MODULE.lora_B.weight [out, rank]
// (zeros).
std::shared_ptr<const Graph> add_lora(const Graph& graph, const LoraOptions& options);

// Several adapters in one graph, for sequences of which each has one of them or none (serving). The terms of all adapters are one pair of
// linears per module, A [ranks, in] and B [out, ranks] with the scales in it, and between them a mask, which is an input of the model:
// ones in the columns of the adapter that a row's sequence has, zeros elsewhere.
struct AdapterMask {
  std::string input;         // its name
  std::vector<int> columns;  // by column: the adapter that it belongs to
};
struct AdapterBank {
  std::shared_ptr<const Graph> graph;
  std::vector<AdapterMask> masks;
};
AdapterBank add_adapters(const Graph& graph, std::span<const LoraOptions> adapters);

// The graph with the weights of its frozen linears, but for the head's, stored narrower (QLoRA).
std::shared_ptr<const Graph> pack_frozen(const Graph& graph, const ops::WeightStorage& storage);

}  // namespace ppengine::engine
