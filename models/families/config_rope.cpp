// Rotary positions in config.json, in both spellings: rope_theta beside rope_scaling, and transformers 5's rope_parameters.
#include <fmt/core.h>

#include <cmath>

#include <ppengine/models/families/config_parse.hpp>

namespace ppengine::models {
namespace {

RopeScaling scaling_of(const JsonPlace& inner) {
  const char* key = inner.absent("rope_type") ? "type" : "rope_type";
  const std::string type = inner.string_or(key, "default");
  if (type == "default") return RopeScaling::none;
  if (type == "linear") return RopeScaling::linear;
  if (type == "dynamic") return RopeScaling::dynamic;
  if (type == "llama3") return RopeScaling::llama3;
  if (type == "yarn") return RopeScaling::yarn;
  if (type == "longrope") return RopeScaling::longrope;
  inner.at(key).refuse(fmt::format("is '{}': default, linear, dynamic, llama3, yarn and longrope are supported", type));
}

std::vector<float> factors_of(const JsonPlace& inner, const char* key, std::int64_t pairs) {
  const JsonPlace list = inner.at(key).expect_array();
  if (static_cast<std::int64_t>(list.size()) != pairs)
    list.refuse(fmt::format("has {} numbers: one for each of the {} pairs of a head that are turned is needed", list.size(), pairs));
  std::vector<float> factors;
  for (std::size_t i = 0; i < list.size(); ++i) factors.push_back(static_cast<float>(list.element(i).number(1e-6, 1e9)));
  return factors;
}

double yarn_scale(double factor, double weight) { return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0; }

double yarn_attention_factor(const JsonPlace& inner, double factor) {
  const double scale = inner.number_or("mscale", 0, 0, 1e6), all = inner.number_or("mscale_all_dim", 0, 0, 1e6);
  return scale != 0 && all != 0 ? yarn_scale(factor, scale) / yarn_scale(factor, all) : yarn_scale(factor, 1);
}

void parse_yarn(const JsonPlace& inner, RopeConfig& rope) {
  rope.attention_factor = inner.number_or("attention_factor", yarn_attention_factor(inner, rope.factor), 0, 1e6);
  const auto beta = [&](const char* key, double otherwise) {
    const double value = inner.number_or(key, otherwise, 0, 1e9);
    return value == 0 ? otherwise : value;
  };
  rope.beta_fast = beta("beta_fast", 32);
  rope.beta_slow = beta("beta_slow", 1);
  rope.truncate = inner.boolean_or("truncate", true);
}

void parse_longrope(const JsonPlace& inner, std::int64_t pairs, RopeConfig& rope) {
  rope.short_factors = factors_of(inner, "short_factor", pairs);
  rope.long_factors = factors_of(inner, "long_factor", pairs);
  const double longer = rope.factor <= 1 || rope.original_positions < 2
                            ? 1.0
                            : std::sqrt(1 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_positions)));
  rope.attention_factor = inner.number_or("attention_factor", longer, 0, 1e6);
}

}  // namespace

RopeConfig parse_rope_scaling(const JsonPlace& inner, const JsonPlace& outside, double theta, const DecoderConfig& sizes) {
  RopeConfig rope;
  rope.theta = inner.number_or("rope_theta", theta, 1e-3, 1e15);
  rope.scaling = scaling_of(inner);
  if (rope.scaling == RopeScaling::none) return rope;
  const std::int64_t turned = sizes.rotary_size > 0 ? sizes.rotary_size : sizes.head_size;
  if (rope.scaling == RopeScaling::dynamic && turned <= 2) inner.refuse("dynamic rope scaling needs a head size above 2");
  if (rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::longrope) {
    // As in transformers, the field beside the others comes first.
    rope.original_positions = inner.integer_or("original_max_position_embeddings", sizes.positions, 1, max_positions);
    rope.original_positions = outside.integer_or("original_max_position_embeddings", rope.original_positions, 1, max_positions);
  }
  if (rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::longrope)
    rope.factor = inner.number_or("factor", double(sizes.positions) / double(rope.original_positions), 1e-6, 1e9);
  else
    rope.factor = inner.at("factor").number(1e-6, 1e9);
  if (rope.scaling == RopeScaling::llama3) {
    rope.low_frequency_factor = inner.at("low_freq_factor").number(1e-6, 1e9);
    rope.high_frequency_factor = inner.at("high_freq_factor").number(1e-6, 1e9);
    if (rope.high_frequency_factor <= rope.low_frequency_factor) inner.at("high_freq_factor").refuse("must be larger than low_freq_factor");
  }
  if (rope.scaling == RopeScaling::yarn) parse_yarn(inner, rope);
  if (rope.scaling == RopeScaling::longrope) parse_longrope(inner, (turned + 1) / 2, rope);
  return rope;
}

// As in transformers, rope_scaling comes first if both are given, and a theta inside comes before one beside it.
void parse_rope(const JsonPlace& config, const RopeKeys& keys, DecoderConfig& out) {
  const double theta = config.number_or(keys.theta, keys.theta_otherwise, 1e-3, 1e15);
  auto inner = config.find("rope_scaling");
  if (!inner || inner->json().empty()) inner = config.find("rope_parameters");
  if (inner && inner->expect_object().json().empty()) inner = std::nullopt;

  double part = keys.part ? config.number_or(keys.part, keys.part_otherwise, 0, 1) : config.number_or("partial_rotary_factor", 1, 0, 1);
  if (inner) part = inner->number_or("partial_rotary_factor", part, 0, 1);
  if (!keys.part && part != 1.0)
    config.refuse(fmt::format("partial_rotary_factor = {} is not supported: {} turns whole heads", part, out.family));
  if (!keys.part && out.head_size % 2 != 0) config.refuse(fmt::format("the head size {} must be even for rotary embedding", out.head_size));
  if (keys.part) {
    out.rotary_size = static_cast<std::int64_t>(double(out.head_size) * part);
    if (out.rotary_size < 1 || (out.rotary_size + 1) / 2 * 2 > out.head_size)
      config.refuse(fmt::format("{} = {} turns {} elements of heads of {}: at least one and pairs that fit are needed", keys.part, part,
                                out.rotary_size, out.head_size));
  }
  out.rope.theta = theta;
  if (!inner) return;
  for (const auto& [key, value] : inner->json().items())
    if (value.is_object()) inner->at(key.c_str()).refuse("is not supported: the same rotary embedding for all layers is");
  out.rope = parse_rope_scaling(*inner, config, theta, out);
}

}  // namespace ppengine::models
