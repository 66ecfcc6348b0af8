// Counting the work of a stage.
#include <ppengine/engine/predict/work.hpp>

#include <algorithm>
#include <string>

#include <ppengine/engine/graph/node.hpp>

namespace ppengine::engine {
namespace {

class Counter {
 public:
  Counter(const Graph& graph, const StageCut& stage, const WorkOptions& options) : graph_(graph), stage_(stage), options_(options) {
    uses_.resize(graph.values().size());
    for (const Node& node : graph.nodes())
      for (Value value : node.inputs) ++uses_[value];
  }

  StageWork count() {
    for (NodeId node : stage_.nodes()) add(graph_.nodes()[node]);
    for (ParameterId id : stage_.parameters) {
      const ParameterInfo& info = graph_.parameters()[id];
      result_.weight_bytes += double(info.shape.count() * options_.type_bytes);
      if (!info.frozen) result_.parameters += double(info.shape.count());
    }
    for (Value value : stage_.sends) result_.bytes_out += value_bytes(value);
    return std::move(result_);
  }

 private:
  const ValueInfo& info(Value value) const { return graph_.values()[value]; }
  double value_bytes(Value value) const {
    const ValueInfo& one = info(value);
    if (one.kind == ValueKind::loss) return 4;
    const std::int64_t rows = options_.batch * options_.length;
    const double elements =
        double(rows / one.row_parts) * double(one.width) + double(one.fixed) + double(rows) * double(rows) * double(one.square);
    return elements * (one.kind == ValueKind::activation ? double(options_.type_bytes) : 4.0);
  }
  double input_bytes(const Node& node, bool gradients) const {
    double bytes = 0;
    for (Value value : node.inputs)
      if (!gradients || info(value).needs_gradient) bytes += value_bytes(value);
    return bytes;
  }
  double parameter_bytes(const Node& node, double element, bool trained_alone) const {
    double elements = 0;
    for (ParameterId id : node.parameters) {
      const ParameterInfo& one = graph_.parameters()[id];
      if (!trained_alone || !one.frozen) elements += double(one.shape.count());
    }
    return elements * element;
  }

  // A sum whose one side is made by an op that adds the other: then it costs that op one more read.
  bool is_added_by_producer(const Node& node) const {
    return node.op->is_sum() && std::ranges::any_of(node.inputs, [&](Value value) {
             const NodeId producer = info(value).producer;
             return stage_.contains(producer) && uses_[value] == 1 && graph_.nodes()[producer].op->adds_residual();
           });
  }

  void add(const Node& node) {
    const std::string kind = node.op->kind();
    const bool needs_gradient = info(node.output).needs_gradient;
    const bool table = node.op->first_token().has_value(), sum = node.op->is_sum();
    const bool attention = node.op->multiplies_matrices() && node.parameters.empty();
    const double flops = node.op->flops(graph_, node, options_.batch, options_.length), out = value_bytes(node.output);
    // The cost of pointwise ops is their bytes; a product has far more arithmetic than values.
    const bool product = node.op->multiplies_matrices() || flops > 4 * (input_bytes(node, false) + out);
    if (is_added_by_producer(node)) {
      if (!result_.forward.empty()) result_.forward.back().bytes += out;
      return;  // its gradient is passed on as it is
    }
    if (const Exchange exchange = node.op->exchange(); exchange.forward + exchange.backward > 0) {
      const double whole = double(options_.batch * options_.length) *
                           double(std::max(info(node.output).width, info(node.inputs[0]).width)) * double(options_.type_bytes);
      if (exchange.forward > 0) result_.forward.push_back({.kind = kind, .bytes = 2 * whole, .exchanged = exchange.forward * whole});
      if (exchange.backward > 0 && needs_gradient)
        result_.backward_input.push_back({.kind = kind + " dX", .bytes = 2 * whole, .exchanged = exchange.backward * whole});
      return;
    }
    Work forward{.kind = kind, .flops = product ? flops : 0, .attention = attention};
    const double weights = table ? out : parameter_bytes(node, double(options_.type_bytes), false);
    forward.bytes = input_bytes(node, false) + weights + out;
    const double tokens = double(options_.batch * options_.length);
    if (product && !attention) forward.rows = tokens, forward.columns = double(info(node.output).width);
    result_.forward.push_back(forward);
    if (!needs_gradient && info(node.output).kind != ValueKind::loss) return;

    const bool to_inputs = std::ranges::any_of(node.inputs, [&](Value value) { return info(value).needs_gradient; });
    if (to_inputs && !sum) {
      Work input = forward;
      input.kind += " dX";
      if (attention) input.flops *= 2.5;                              // scores again, and two products for each of the two
      const bool reads_inputs = !product || node.parameters.empty();  // a product with weights needs only these
      input.bytes =
          out + (table ? 0 : weights) + (reads_inputs ? input_bytes(node, false) : 0) + (attention ? out : 0) + input_bytes(node, true);
      if (input.columns > 0) input.columns = double(info(node.inputs[0]).width);
      result_.backward_input.push_back(input);
    }
    const bool trained = std::ranges::any_of(node.parameters, [&](ParameterId id) { return !graph_.parameters()[id].frozen; });
    if (!trained) return;
    Work weight = forward;
    weight.kind += " dW";
    weight.bytes = input_bytes(node, false) + out + parameter_bytes(node, options_.accumulates && !table ? 8 : 4, true);
    if (weight.columns > 0) weight.rows = double(info(node.inputs[0]).width), weight.columns = double(info(node.output).width);
    result_.backward_weight.push_back(weight);
  }

  const Graph& graph_;
  const StageCut& stage_;
  const WorkOptions& options_;
  IdVector<Value, int> uses_;
  StageWork result_;
};

}  // namespace

StageWork count_work(const Graph& graph, const StageCut& stage, const WorkOptions& options) {
  return Counter(graph, stage, options).count();
}

}  // namespace ppengine::engine
