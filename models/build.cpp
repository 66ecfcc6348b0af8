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

void finish_causal_model(engine::Graph& graph, engine::Value hidden, const HeadOptions& options) {
  engine::Value logits = graph.linear(
      hidden, options.name,
      {.out = options.vocabulary, .bias = false, .init_scale = static_cast<float>(options.init_scale), .weight = options.tied_to});
  {
    auto head = graph.module(options.name);
    logits = graph.scale(logits, static_cast<float>(1.0 / options.divisor));
    logits = graph.soft_cap(logits, static_cast<float>(options.cap));
  }
  graph.output(logits);
  graph.loss(graph.cross_entropy(logits, graph.tokens("targets")));
}

std::shared_ptr<const engine::Graph> build_graph(const ModelConfig& config, const BuildOptions& options) {
  auto graph = std::make_shared<engine::Graph>();
  if (const Gpt2Config* gpt2 = config.gpt2())
    build_gpt2(*graph, *gpt2, options);
  else
    build_decoder(*graph, *config.decoder(), options);
  return graph;
}

}  // namespace ppengine::models
