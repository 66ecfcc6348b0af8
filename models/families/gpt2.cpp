// GPT-2: learned positions, layer norm before each half of a block, packed attention projection, GELU.
#include <cmath>
#include <string>

#include <ppengine/models/build.hpp>

namespace ppengine::models {

void build_gpt2(engine::Graph& graph, const Gpt2Config& config, const BuildOptions& options) {
  using ops::WeightLayout;
  const auto dropout = [&](engine::Value value, double p) { return options.dropout ? graph.dropout(value, static_cast<float>(p)) : value; };
  const auto scale = static_cast<float>(config.initializer_range);
  const auto residual_scale = static_cast<float>(config.initializer_range / std::sqrt(2.0 * double(config.layers)));
  const engine::NormOptions norm{ops::NormKind::layer, static_cast<float>(config.layer_norm_epsilon), true};
  const std::int64_t head_dim = config.width / config.heads;

  engine::Value x{};
  {
    auto transformer = graph.module("transformer");
    x = graph.embedding(graph.tokens("input_ids"), "wte", {config.vocabulary, config.width, config.positions, "wpe", scale});
    x = dropout(x, config.embedding_dropout);
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      auto block = graph.module("h." + std::to_string(layer));
      engine::Value hidden = graph.norm(x, "ln_1", norm);
      {
        auto attention = graph.module("attn");
        hidden = graph.linear(hidden, "c_attn", {.out = 3 * config.width, .file_layout = WeightLayout::in_out, .init_scale = scale});
        float attention_scale = config.scale_attention ? 1.0f / std::sqrt(static_cast<float>(head_dim)) : 1.0f;
        if (config.scale_attention_by_inverse_layer) attention_scale /= static_cast<float>(layer + 1);
        hidden = graph.attention(hidden, {config.heads, config.heads, head_dim, attention_scale});
        hidden = graph.linear(hidden, "c_proj", {.out = config.width, .file_layout = WeightLayout::in_out, .init_scale = residual_scale});
      }
      x = graph.add(x, dropout(hidden, config.residual_dropout));
      hidden = graph.norm(x, "ln_2", norm);
      {
        auto mlp = graph.module("mlp");
        hidden = graph.linear(hidden, "c_fc", {.out = config.inner, .file_layout = WeightLayout::in_out, .init_scale = scale});
        hidden = graph.activation(hidden, activation_kind(config.activation));
        hidden = graph.linear(hidden, "c_proj", {.out = config.width, .file_layout = WeightLayout::in_out, .init_scale = residual_scale});
      }
      x = graph.add(x, dropout(hidden, config.residual_dropout));
    }
    x = graph.norm(x, "ln_f", norm);
  }
  using engine::TensorSplit;
  graph.tensor_plan(
      {{"attn.c_attn", TensorSplit::outputs, {config.width, config.width, config.width}},  // queries, keys and values by heads
       {"attn.c_proj", TensorSplit::inputs},
       {"mlp.c_fc", TensorSplit::outputs},
       {"mlp.c_proj", TensorSplit::inputs},
       {"transformer.wte", TensorSplit::vocabulary},
       {"lm_head", TensorSplit::vocabulary}});
  finish_causal_model(graph, x,
                      {.vocabulary = config.vocabulary,
                       .tied_to = config.tied_head ? "transformer.wte.weight" : "",
                       .init_scale = config.initializer_range});
}

}  // namespace ppengine::models
