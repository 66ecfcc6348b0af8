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
void build_llama(engine::Graph& graph, const LlamaConfig& config, const BuildOptions& options);

ops::ActivationKind activation_kind(Activation activation);
// Logits to loss: what every family ends with.
void finish_causal_model(engine::Graph& graph, engine::Value hidden, std::int64_t vocabulary, const std::string& tied_to,
                         double init_scale);

}  // namespace ppengine::models
