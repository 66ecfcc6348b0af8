// Layers that programs spell out op by op, recognised by what they are made of: they run as the ops that built-in models use.
#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

std::string op_of(const ExportedNode& node) {
  return node.target.starts_with("aten.") ? node.target.substr(5, node.target.rfind('.') - 5) : "";
}

}  // namespace

// The node of the current graph that makes a value; ops that hand it on as it is are looked through. Null: an input.
const ExportedNode* Lowering::maker_of(std::string name) {
  auto& makers = makers_[names_->graph];
  if (makers.empty())
    for (const ExportedNode& node : names_->graph->nodes)
      for (const std::string& output : node.outputs) makers.emplace(output, &node);
  static const std::set<std::string> same{"to", "_to_copy", "alias", "contiguous", "type_as", "float"};
  for (;;) {
    const auto found = makers.find(name);
    if (found == makers.end()) return nullptr;
    const ExportedNode& node = *found->second;
    if (!same.contains(op_of(node)) || node.arguments.empty() || node.arguments[0].second.names.empty()) return &node;
    name = node.arguments[0].second.names[0];
  }
}

// x · cos + cat(-x[half:], x[:half]) · sin over [batch, heads, tokens, width].
std::optional<TensorRef> Lowering::known_rotary(const Arguments& in) {
  const auto made_by = [&](const std::string& name, const char* op) -> const ExportedNode* {
    const ExportedNode* const node = name.empty() ? nullptr : maker_of(name);
    return node && op_of(*node) == op ? node : nullptr;
  };
  if (!in.is_tensor("self") || !in.is_tensor("other") || in.number("alpha", 1.0) != 1.0 || in.out_shape().size() != 4) return {};
  for (const auto& [plain, turned] : {std::pair("self", "other"), std::pair("other", "self")}) {
    const ExportedNode *const straight = made_by(in.first_name(plain), "mul"), *const crossed = made_by(in.first_name(turned), "mul");
    if (!straight || !crossed) continue;
    const Arguments of_straight(*this, *straight), of_crossed(*this, *crossed);
    if (!of_straight.is_tensor("other") || !of_crossed.is_tensor("other")) continue;
    const ExportedNode* const joined = made_by(of_crossed.first_name("self"), "cat");
    const TensorRef x = of_straight.tensor("self"), cosines = of_straight.tensor("other"), sines = of_crossed.tensor("other");
    if (!joined || !(x.shape == in.out_shape()) || x.type != 'f' || !x.shape[1].constant() || !x.shape[3].constant() ||
        x.shape[3].fixed % 2 != 0)
      continue;
    const Arguments of_joined(*this, *joined);
    const ExportedArgument* const parts = of_joined.find("tensors");
    if (!parts || parts->names.size() != 2 || of_joined.dim("dim", 0, 4) != 3) continue;
    const ExportedNode* const negated = made_by(parts->names[0], "neg");
    const ExportedNode *const second = negated ? made_by(Arguments(*this, *negated).first_name("self"), "slice") : nullptr,
                              *const first = made_by(parts->names[1], "slice");
    const std::int64_t half = x.shape[3].fixed / 2;
    const auto is_half = [&](const ExportedNode* node, std::int64_t start) {
      const Arguments of(*this, *node);
      return of.dim("dim", 0, 4) == 3 && of.integer("start", 0) == start && of.integer("step", 1) == 1 && of.out_shape()[3].is(half) &&
             engine::same_view(of.tensor("self"), x);
    };
    if (!first || !second || !is_half(first, 0) || !is_half(second, half)) continue;
    const auto trained = [&](const TensorRef& one) {
      return one.parameter >= 0 || one.value < 0 || into_.graph->info(engine::Value(one.value)).needs_gradient;
    };
    const TensorRef c = build_.read(cosines), s = build_.read(sines);
    if (c.type != 'f' || s.type != 'f' || trained(c) || trained(s)) continue;
    return build_.rotary(x, c, s);
  }
  return {};
}

// x · rsqrt(mean(x²) + eps) · gamma, or · (1 + gamma).
std::optional<TensorRef> Lowering::known_rms_norm(const Arguments& in) {
  const auto made_by = [&](const Arguments& of, const char* argument, const char* op) -> const ExportedNode* {
    const ExportedNode* const node = of.is_tensor(argument) ? maker_of(of.first_name(argument)) : nullptr;
    return node && op_of(*node) == op ? node : nullptr;
  };
  for (const auto& [scale, scaled] : {std::pair("self", "other"), std::pair("other", "self")}) {
    if (!in.is_tensor(scale)) continue;
    const ExportedNode* const product = made_by(in, scaled, "mul");
    if (!product) continue;
    TensorRef gamma;
    double shift = 0.0;
    if (const ExportedNode* const sum = made_by(in, scale, "add")) {
      const Arguments of_sum(*this, *sum);
      if (of_sum.is_tensor("other") || of_sum.number("alpha", 1.0) != 1.0) continue;
      gamma = of_sum.tensor("self"), shift = of_sum.number("other", 0.0);
    } else {
      gamma = in.tensor(scale);
    }
    if (gamma.parameter < 0 || gamma.value >= 0 || gamma.rank() != 1 || !gamma.dense()) continue;
    const Arguments of_product(*this, *product);
    for (const auto& [x, root] : {std::pair("self", "other"), std::pair("other", "self")}) {
      const ExportedNode* const inverse = made_by(of_product, root, "rsqrt");
      const ExportedNode* const sum = inverse ? made_by(Arguments(*this, *inverse), "self", "add") : nullptr;
      if (!sum) continue;
      const Arguments of_sum(*this, *sum);
      const ExportedNode* const mean = of_sum.is_tensor("other") ? nullptr : made_by(of_sum, "self", "mean");
      const ExportedNode* const square = mean ? made_by(Arguments(*this, *mean), "self", "pow") : nullptr;
      if (!square || !of_product.is_tensor(x)) continue;
      const Arguments of_mean(*this, *mean), of_square(*this, *square);
      const TensorRef src = of_product.tensor(x), squared = of_square.tensor("self");
      const bool last =
          src.rank() > 0 && of_mean.dims("dim", src.rank()) == std::vector<int>{src.rank() - 1} && of_mean.boolean("keepdim", false);
      if (!last || of_square.is_tensor("exponent") || of_square.number("exponent", 0.0) != 2.0 || !engine::same_view(src, squared))
        continue;
      if (src.type != 'f' || !(src.shape.back() == gamma.shape[0])) continue;
      return build_.rms_norm(src, gamma.shape[0].fixed, gamma, shift, of_sum.number("other", 0.0));
    }
  }
  return {};
}

}  // namespace ppengine::models
