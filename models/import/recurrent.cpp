// Recurrent layers and cells: products of whole sequences where they can be, steps one after the other.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

// From the products of the input (a) and of the state (b), the state and where there is one the cell: the next ones.
std::pair<TensorRef, TensorRef> Lowering::recurrent_step(const std::string& op, const TensorRef& a, const TensorRef& b, const TensorRef& h,
                                                         const TensorRef& c) {
  const Dim width = op == "lstm" ? c.shape[1] : h.shape[1];  // a projected state is narrower than its cell
  const auto gate = [&](const TensorRef& of, std::int64_t k) { return build_.slice(of, 1, width * Dim(k), width); };
  constexpr const char *ds = "$g * $r * (1.0f - $r)", *dt = "$g * (1.0f - $r * $r)";
  const auto both_of = [&](std::int64_t k, const char* f, const char* df) {
    return build_.apply(fmt::format("{}($0 + $1)", f), {df, df}, {gate(a, k), gate(b, k)});
  };
  if (op == "lstm") {
    const TensorRef i = both_of(0, "logistic", ds), f = both_of(1, "logistic", ds), g = both_of(2, "sycl::tanh", dt),
                    o = both_of(3, "logistic", ds);
    const TensorRef next = build_.apply("$0 * $1 + $2 * $3", {"$g * $1", "$g * $0", "$g * $3", "$g * $2"}, {f, c, i, g});
    return {build_.apply("$0 * sycl::tanh($1)", {"$g * sycl::tanh($1)", "$g * $0 * (1.0f - sycl::tanh($1) * sycl::tanh($1))"}, {o, next}),
            next};
  }
  if (op == "gru") {
    const TensorRef r = both_of(0, "logistic", ds), z = both_of(1, "logistic", ds);
    const TensorRef n =
        build_.apply("sycl::tanh($0 + $1 * $2)", {"$g * (1.0f - $r * $r)", "$g * (1.0f - $r * $r) * $2", "$g * (1.0f - $r * $r) * $1"},
                     {gate(a, 2), r, gate(b, 2)});
    return {build_.apply("(1.0f - $0) * $1 + $0 * $2", {"$g * ($2 - $1)", "$g * (1.0f - $0)", "$g * $0"}, {z, n, h}), {}};
  }
  if (op == "rnn_tanh") return {build_.apply("sycl::tanh($0 + $1)", {dt, dt}, {a, b}), {}};
  if (op == "rnn_relu") return {build_.apply("$0 + $1 > 0 ? $0 + $1 : 0.0f", {"$r > 0 ? $g : 0.0f", "$r > 0 ? $g : 0.0f"}, {a, b}), {}};
  Arguments::refuse("is not supported yet");
}

std::vector<TensorRef> Lowering::lower_cell(const std::string& op, const Arguments& in) {
  const TensorRef x = in.tensor("input");
  const auto states = op == "lstm" ? in.tensors("hx") : std::vector<TensorRef>{in.tensor("hx")};
  if (x.rank() != 2) Arguments::refuse("has no batch");
  const TensorRef a = build_.linear(x, in.tensor("w_ih"), in.tensor_or_none("b_ih"), ops::WeightLayout::out_in);
  const TensorRef b = build_.linear(states[0], in.tensor("w_hh"), in.tensor_or_none("b_hh"), ops::WeightLayout::out_in);
  const auto [h, c] = recurrent_step(op, a, b, states[0], states.back());
  return op == "lstm" ? std::vector<TensorRef>{h, c} : std::vector<TensorRef>{h};
}

// Layer by layer, direction by direction, step by step: the inputs' products of all steps at once.
std::vector<TensorRef> Lowering::lower_recurrent(const std::string& op, const Arguments& in) {
  const bool is_lstm = op == "lstm", biases = in.boolean("has_biases", true), both = in.boolean("bidirectional", false),
             batch_first = in.boolean("batch_first", false);
  const std::int64_t layers = in.integer("num_layers", 1), directions = both ? 2 : 1;
  const auto weights = in.tensors("params");
  const auto states = is_lstm ? in.tensors("hx") : std::vector<TensorRef>{in.tensor("hx")};
  const double p = in.boolean("train", false) && options_.dropout ? in.number("dropout", 0.0) : 0.0;
  TensorRef x = in.tensor("input");
  if (x.rank() != 3) Arguments::refuse("has no batch");
  if (batch_first) x = build_.permute(x, {1, 0, 2});  // [time, batch, width]
  const Dim steps = x.shape[0], batch = x.shape[1];
  if (!steps.constant()) Arguments::refuse("goes along the batch");
  const std::size_t plain = biases ? 4 : 2, count = static_cast<std::size_t>(layers * directions);
  const bool projects = is_lstm && weights.size() == count * (plain + 1);  // the state is a smaller product of the output
  const std::size_t each = projects ? plain + 1 : plain;
  if (weights.size() != count * each) Arguments::refuse("has another number of weights than its layers need");
  std::vector<TensorRef> last_h, last_c;
  const auto row = [&](const TensorRef& all, std::int64_t i) {
    return build_.reshape(build_.slice(all, 0, i, 1), {all.shape[1], all.shape[2]});
  };
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    std::vector<TensorRef> sides;
    for (std::int64_t side = 0; side < directions; ++side) {
      const std::size_t w = static_cast<std::size_t>(layer * directions + side) * each;
      const TensorRef none, bias_in = biases ? weights[w + 2] : none, bias_hidden = biases ? weights[w + 3] : none;
      const TensorRef from_input = build_.linear(x, weights[w], bias_in, ops::WeightLayout::out_in);
      TensorRef h = row(states[0], layer * directions + side), c = is_lstm ? row(states[1], layer * directions + side) : none;
      const Dim width = h.shape[1];
      std::vector<TensorRef> outputs(static_cast<std::size_t>(steps.fixed));
      for (std::int64_t s = 0; s < steps.fixed; ++s) {
        const std::int64_t t = side == 0 ? s : steps.fixed - 1 - s;
        const TensorRef a = row(from_input, t), b = build_.linear(h, weights[w + 1], bias_hidden, ops::WeightLayout::out_in);
        std::tie(h, c) = recurrent_step(op, a, b, h, c);
        if (projects) h = build_.linear(h, weights[w + plain], none, ops::WeightLayout::out_in);
        outputs[static_cast<std::size_t>(t)] = build_.reshape(h, {1, batch, width});
      }
      sides.push_back(build_.cat(outputs, 0));
      last_h.push_back(build_.reshape(h, {1, batch, width}));
      if (is_lstm) last_c.push_back(build_.reshape(c, {1, batch, c.shape[1]}));
    }
    x = sides.size() == 1 ? sides[0] : build_.cat(sides, 2);
    if (p > 0.0 && layer + 1 < layers) x = build_.dropout(x, p);
  }
  std::vector<TensorRef> results{batch_first ? build_.permute(x, {1, 0, 2}) : x, last_h.size() == 1 ? last_h[0] : build_.cat(last_h, 0)};
  if (is_lstm) results.push_back(last_c.size() == 1 ? last_c[0] : build_.cat(last_c, 0));
  return results;
}

}  // namespace ppengine::models
