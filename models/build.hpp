// From a configuration to a graph with Hugging Face's module names. One file per family.
#pragma once

#include <memory>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/models/config.hpp>

namespace ppengine::models {

struct BuildOptions {
  bool dropout = false;  // the configuration's dropout probabilities count (training only)
};

// The inputs are the tokens "input_ids" and "targets"; the output is the logits, the loss their cross entropy.
std::shared_ptr<const engine::Graph> build_graph(const ModelConfig& config, const BuildOptions& options = {});

// The families.
void build_gpt2(engine::Graph& graph, const Gpt2Config& config, const BuildOptions& options);
void build_decoder(engine::Graph& graph, const DecoderConfig& config, const BuildOptions& options);

ops::ActivationKind activation_kind(Activation activation);
// Logits to loss: what every family ends with.
struct HeadOptions {
  std::int64_t vocabulary = 0;
  std::string tied_to = {};  // the name of the embedding's weight; empty: a weight of its own
  double init_scale = 0.02;
  const char* name = "lm_head";
  double divisor = 1, cap = 0;  // of logits; a cap of 0: none
};
void finish_causal_model(engine::Graph& graph, engine::Value hidden, const HeadOptions& options);

}  // namespace ppengine::models
