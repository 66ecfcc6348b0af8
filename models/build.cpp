// From a configuration to a graph.
#include <ppengine/models/build.hpp>

#include <ppengine/base/error.hpp>

namespace ppengine::models {

ops::ActivationKind activation_kind(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
      return ops::ActivationKind::gelu_tanh;
    case Activation::gelu_erf:
      return ops::ActivationKind::gelu_erf;
    case Activation::relu:
      return ops::ActivationKind::relu;
    case Activation::silu:
      return ops::ActivationKind::silu;
  }
  throw ConfigError("unknown activation");
}

void finish_causal_model(engine::Graph& graph, engine::Value hidden, std::int64_t vocabulary, const std::string& tied_to,
                         double init_scale) {
  const engine::Value logits =
      graph.linear(hidden, "lm_head", {.out = vocabulary, .bias = false, .init_scale = static_cast<float>(init_scale), .weight = tied_to});
  graph.output(logits);
  graph.loss(graph.cross_entropy(logits, graph.tokens("targets")));
}

std::shared_ptr<const engine::Graph> build_graph(const ModelConfig& config, const BuildOptions& options) {
  auto graph = std::make_shared<engine::Graph>();
  if (const Gpt2Config* gpt2 = config.gpt2())
    build_gpt2(*graph, *gpt2, options);
  else
    build_llama(*graph, *config.llama(), options);
  return graph;
}

}  // namespace ppengine::models
