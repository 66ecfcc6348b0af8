// The block that Llama and its relatives have in common, with the choices of a DecoderConfig.
#include <cmath>
#include <string>

#include <ppengine/models/build.hpp>

namespace ppengine::models {
namespace {

using engine::Graph;
using engine::Value;

class Decoder {
 public:
  Decoder(Graph& graph, const DecoderConfig& config, const BuildOptions& options) : graph_(graph), c_(config), dropout_(options.dropout) {}

  void build() {
    const auto scale = static_cast<float>(c_.initializer_range);
    Value x{};
    {
      auto model = graph_.module(c_.names.model);
      x = graph_.embedding(graph_.tokens("input_ids"), c_.names.embedding,
                           {.vocabulary = c_.vocabulary, .width = c_.width, .init_scale = scale, .padding = c_.padding});
      {
        auto embedding = graph_.module(c_.names.embedding);
        x = drop(graph_.scale(x, static_cast<float>(c_.embedding_multiplier)), c_.embedding_dropout);
      }
      for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
        auto block = graph_.module("layers." + std::to_string(layer));
        x = add_block(x, layer);
      }
      x = norm(x, c_.names.final_norm);
    }
    plan_tensor_ranks();
    finish_causal_model(graph_, x,
                        {.vocabulary = c_.vocabulary,
                         .tied_to = c_.tied_head ? std::string(c_.names.model) + "." + c_.names.embedding + ".weight" : "",
                         .init_scale = c_.initializer_range,
                         .name = c_.names.head,
                         .divisor = c_.logits_divisor,
                         .cap = c_.logits_cap});
  }

 private:
  Value add_block(Value x, std::int64_t layer) {
    const bool both = c_.norm_place == NormPlace::both, before = both || c_.norm_place == NormPlace::before,
               after = c_.norm_place != NormPlace::before;
    Value hidden = attend(before ? norm(x, "input_layernorm") : x, layer);
    if (after) hidden = norm(hidden, "post_attention_layernorm");
    const Value attended = graph_.add(x, finish_half(hidden));
    hidden = c_.parallel_residual ? x : attended;
    if (before) hidden = norm(hidden, both ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    hidden = multilayer(hidden);
    if (after) hidden = norm(hidden, "post_feedforward_layernorm");
    return graph_.add(attended, finish_half(hidden));
  }
  Value finish_half(Value hidden) { return graph_.scale(drop(hidden, c_.residual_dropout), static_cast<float>(c_.residual_multiplier)); }

  Value attend(Value hidden, std::int64_t layer) {
    auto attention = graph_.module(c_.names.attention);
    const engine::AttentionOptions options{c_.heads,
                                           c_.kv_heads,
                                           c_.head_size,
                                           c_.attention_scale > 0 ? static_cast<float>(c_.attention_scale) : 0.0f,
                                           c_.window_of(layer),
                                           static_cast<float>(c_.score_cap)};
    const std::int64_t q_width = c_.heads * c_.head_size, kv_width = c_.kv_heads * c_.head_size;
    if (c_.projection == Projection::apart) {
      const Value q = turn(head_norm(linear(hidden, "q_proj", q_width, c_.qkv_bias), "q_norm"), c_.heads, layer);
      const Value k = turn(head_norm(linear(hidden, "k_proj", kv_width, c_.qkv_bias), "k_norm"), c_.kv_heads, layer);
      const Value v = linear(hidden, "v_proj", kv_width, c_.qkv_bias);
      hidden = graph_.attention(q, k, v, options);
    } else {
      hidden = linear(hidden, c_.names.packed, q_width + 2 * kv_width, c_.qkv_bias);
      auto rotary = rotary_options(c_.heads + 2 * c_.kv_heads, layer);
      rotary.turned = c_.heads + c_.kv_heads;
      rotary.parts = c_.projection == Projection::packed_by_head ? 3 : 1;
      hidden = graph_.attention(graph_.rotary(hidden, rotary), options);
    }
    return linear(hidden, c_.names.output, c_.width, c_.output_bias);
  }

  Value multilayer(Value hidden) {
    auto mlp = graph_.module("mlp");
    if (c_.mlp == MlpKind::plain) {
      hidden = graph_.activation(linear(hidden, c_.names.up, c_.inner, c_.mlp_bias), activation_kind(c_.activation));
    } else if (c_.mlp == MlpKind::packed_gated) {
      hidden = graph_.gated_silu(linear(hidden, c_.names.up, 2 * c_.inner, c_.mlp_bias));
    } else {
      const Value gate = linear(hidden, "gate_proj", c_.inner, c_.mlp_bias), up = linear(hidden, c_.names.up, c_.inner, c_.mlp_bias);
      hidden = c_.activation == Activation::silu ? graph_.gated_silu(gate, up)
                                                 : graph_.multiply(graph_.activation(gate, activation_kind(c_.activation)), up);
    }
    return linear(hidden, c_.names.down, c_.width, c_.mlp_bias);
  }

  Value linear(Value src, const char* name, std::int64_t out, bool bias) {
    return graph_.linear(src, name, {.out = out, .bias = bias, .init_scale = static_cast<float>(c_.initializer_range)});
  }
  engine::NormOptions norm_options() const {
    engine::NormOptions options{c_.layer_norm ? ops::NormKind::layer : ops::NormKind::rms, static_cast<float>(c_.norm_epsilon),
                                c_.layer_norm};
    if (c_.norm_adds_one) options.shift = 1;
    return options;
  }
  Value norm(Value src, const char* name) { return graph_.norm(src, name, norm_options()); }
  Value head_norm(Value src, const char* name) {
    if (c_.head_norm == HeadNorm::none) return src;
    auto options = norm_options();
    if (c_.head_norm == HeadNorm::each) options.group = c_.head_size;
    options.gathers = c_.head_norm == HeadNorm::whole;
    return graph_.norm(src, name, options);
  }
  engine::RotaryOptions rotary_options(std::int64_t heads, std::int64_t layer) const {
    const RopeConfig& rope = c_.rope_of(layer);
    engine::RotaryOptions options{heads, c_.head_size,
                                  [config = c_, rope](std::int64_t length) { return rope_inverse_frequencies(config, rope, length); }};
    options.factor = static_cast<float>(rope.attention_factor);
    if (rope.scaling == RopeScaling::longrope) options.switches_at = rope.original_positions;
    return options;
  }
  Value turn(Value src, std::int64_t heads, std::int64_t layer) {
    return c_.has_rotary(layer) ? graph_.rotary(src, rotary_options(heads, layer)) : src;
  }
  Value drop(Value value, double p) { return dropout_ ? graph_.dropout(value, static_cast<float>(p)) : value; }

  void plan_tensor_ranks() {
    using engine::TensorSplit;
    const std::string attention = std::string(c_.names.attention) + ".", mlp = "mlp.";
    engine::TensorPlan plan;
    if (c_.projection == Projection::apart)
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) plan.push_back({attention + name, TensorSplit::outputs});
    else if (c_.projection == Projection::packed)
      plan.push_back({attention + c_.names.packed,
                      TensorSplit::outputs,
                      {c_.heads * c_.head_size, c_.kv_heads * c_.head_size, c_.kv_heads * c_.head_size}});
    else
      plan.push_back({attention + c_.names.packed, TensorSplit::outputs});  // whole heads, with their keys and values
    plan.push_back({attention + c_.names.output, TensorSplit::inputs});
    if (c_.mlp == MlpKind::gated) plan.push_back({mlp + "gate_proj", TensorSplit::outputs});
    plan.push_back({mlp + c_.names.up, TensorSplit::outputs});
    if (c_.mlp == MlpKind::packed_gated) plan.back().sections = {c_.inner, c_.inner};
    plan.push_back({mlp + c_.names.down, TensorSplit::inputs});
    plan.push_back({c_.names.embedding, TensorSplit::vocabulary});
    plan.push_back({c_.names.head, TensorSplit::vocabulary});
    graph_.tensor_plan(std::move(plan));
  }

  Graph& graph_;
  const DecoderConfig& c_;
  bool dropout_;
};

}  // namespace

void build_decoder(Graph& graph, const DecoderConfig& config, const BuildOptions& options) { Decoder(graph, config, options).build(); }

}  // namespace ppengine::models
