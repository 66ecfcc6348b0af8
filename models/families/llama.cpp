// Llama: rotary positions, RMS norm, grouped key/value heads, gated activation.
#include <cmath>
#include <string>

#include <ppengine/models/build.hpp>

namespace ppengine::models {

void build_llama(engine::Graph& graph, const LlamaConfig& config, const BuildOptions&) {
  const auto scale = static_cast<float>(config.initializer_range);
  const engine::NormOptions norm{ops::NormKind::rms, static_cast<float>(config.rms_norm_epsilon), false};
  const auto rotary = [&](std::int64_t heads) {
    return engine::RotaryOptions{heads, config.head_size,
                                 [config](std::int64_t length) { return rope_inverse_frequencies(config, length); }};
  };
  const auto linear = [&](engine::Value src, const char* name, std::int64_t out, bool bias) {
    return graph.linear(src, name, {.out = out, .bias = bias, .init_scale = scale});
  };

  engine::Value x{};
  {
    auto model = graph.module("model");
    x = graph.embedding(graph.tokens("input_ids"), "embed_tokens",
                        {.vocabulary = config.vocabulary, .width = config.width, .init_scale = scale});
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      auto block = graph.module("layers." + std::to_string(layer));
      engine::Value hidden = graph.norm(x, "input_layernorm", norm);
      {
        auto attention = graph.module("self_attn");
        const engine::Value q =
            graph.rotary(linear(hidden, "q_proj", config.heads * config.head_size, config.attention_bias), rotary(config.heads));
        const engine::Value k =
            graph.rotary(linear(hidden, "k_proj", config.kv_heads * config.head_size, config.attention_bias), rotary(config.kv_heads));
        const engine::Value v = linear(hidden, "v_proj", config.kv_heads * config.head_size, config.attention_bias);
        hidden = graph.attention(q, k, v,
                                 {config.heads, config.kv_heads, config.head_size, 1.0f / std::sqrt(static_cast<float>(config.head_size))});
        hidden = linear(hidden, "o_proj", config.width, config.attention_bias);
      }
      x = graph.add(x, hidden);
      hidden = graph.norm(x, "post_attention_layernorm", norm);
      {
        auto mlp = graph.module("mlp");
        const engine::Value gate = linear(hidden, "gate_proj", config.inner, config.mlp_bias),
                            up = linear(hidden, "up_proj", config.inner, config.mlp_bias);
        hidden = config.activation == Activation::silu ? graph.gated_silu(gate, up)
                                                       : graph.multiply(graph.activation(gate, activation_kind(config.activation)), up);
        hidden = linear(hidden, "down_proj", config.width, config.mlp_bias);
      }
      x = graph.add(x, hidden);
    }
    x = graph.norm(x, "norm", norm);
  }
  using engine::TensorSplit;
  graph.tensor_plan({{"self_attn.q_proj", TensorSplit::outputs},
                     {"self_attn.k_proj", TensorSplit::outputs},
                     {"self_attn.v_proj", TensorSplit::outputs},
                     {"self_attn.o_proj", TensorSplit::inputs},
                     {"mlp.gate_proj", TensorSplit::outputs},
                     {"mlp.up_proj", TensorSplit::outputs},
                     {"mlp.down_proj", TensorSplit::inputs},
                     {"embed_tokens", TensorSplit::vocabulary},
                     {"lm_head", TensorSplit::vocabulary}});
  finish_causal_model(graph, x, config.vocabulary, config.tied_head ? "model.embed_tokens.weight" : "", config.initializer_range);
}

}  // namespace ppengine::models
