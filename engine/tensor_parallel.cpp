// Rewriting a graph for one of several tensor-parallel ranks.
#include <ppengine/engine/tensor_parallel.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {

class GraphSharder {
 public:
  GraphSharder(const Graph& whole, int rank, int ranks)
      : from_(whole), rank_(rank), ranks_(ranks), matched_(whole.tensor_plan().size()) {
    if (whole.tensor_plan().empty())
      throw ConfigError(
          fmt::format("--tp {}: the model does not say how to divide it: call Graph::tensor_plan", ranks));
    to_.parameters_ = whole.parameters();
    to_.tensor_plan_ = whole.tensor_plan();
  }

  std::shared_ptr<const Graph> run() {
    for (size_t id = 0; id < from_.values().size(); ++id) {  // every value is an input, or the output of one node
      const ValueInfo& info = from_.values()[id];
      if (info.producer < 0) {
        to_.values_.push_back(info);
        places_.push_back({{static_cast<int>(to_.values_.size() - 1)}, false, {}});
      } else {
        places_.push_back(rewrite(from_.nodes()[static_cast<size_t>(info.producer)], info));
      }
    }
    for (size_t i = 0; i < matched_.size(); ++i)
      if (!matched_[i])
        throw ConfigError(
            fmt::format("the tensor plan names {}, and the model has no such linear", from_.tensor_plan()[i].module));
    to_.loss_ = whole_value(from_.loss_value(), "the loss");
    to_.output_ = whole_value(from_.output_value(), "the output");
    return std::make_shared<const Graph>(std::move(to_));
  }

 private:
  // A value of the whole model in the new graph.
  struct Place {
    Value value;
    bool split = false;  // this rank has its part of the width
    Value copied = {};   // the input of divided linears, once there is one
  };

  Place& place(int id) { return places_[static_cast<size_t>(id)]; }

  int whole_value(int id, const char* what) {
    if (id < 0) return id;
    if (place(id).split)
      throw ConfigError(fmt::format(
          "{} is divided over tensor-parallel ranks: the tensor plan must end in a linear that is split by inputs",
          what));
    return place(id).value.id;
  }

  const TensorRule* rule_of(const Node& node) {
    if (std::string_view(node.op->kind()) != "linear") return nullptr;
    for (size_t i = 0; i < from_.tensor_plan().size(); ++i) {
      const TensorRule& rule = from_.tensor_plan()[i];
      if (node.module != rule.module && !node.module.ends_with("." + rule.module)) continue;
      matched_[i] = true;
      return &rule;
    }
    return nullptr;
  }

  Place rewrite(const Node& node, const ValueInfo& info) {
    if (const TensorRule* rule = rule_of(node))
      return rule->split == TensorSplit::outputs ? split_outputs(node, *rule) : split_inputs(node);
    const auto divided = [&](int id) { return place(id).split; };
    const bool split = std::ranges::any_of(node.inputs, divided);
    std::vector<Value> inputs;
    for (int id : node.inputs) inputs.push_back(place(id).value);
    if (!split) return {to_.add_node(node.module, node.op, inputs, node.parameters, info.width, info.kind), false, {}};
    auto part = std::ranges::all_of(node.inputs, divided) && node.parameters.empty()
                    ? node.op->part(ranks_, node.module)
                    : nullptr;
    if (!part)
      throw ConfigError(
          fmt::format("--tp {}: {} ({}) cannot work on a part of its input; the tensor plan must keep it whole", ranks_,
                      node.module, node.op->kind()));
    check_divides(info.width, "width", node.module);
    return {to_.add_node(node.module, std::move(part), inputs, {}, info.width / ranks_, info.kind), true, {}};
  }

  void check_divides(int64_t count, const char* what, const std::string& module) const {
    if (count % ranks_ != 0)
      throw ConfigError(fmt::format("--tp {} does not divide the {} of {}, which is {}", ranks_, what, module, count));
  }

  Place split_outputs(const Node& node, const TensorRule& rule) {
    const int64_t out = from_.values()[static_cast<size_t>(node.output)].width;
    const auto sections = rule.sections.empty() ? std::vector{out} : rule.sections;
    for (int64_t section : sections) check_divides(section, "output width", node.module);
    Place& src = place(node.inputs[0]);
    if (src.split)
      throw ConfigError(
          fmt::format("{}: the tensor plan splits it by outputs, and its input is divided already", node.module));
    const int64_t in = to_.info(src.value).width;
    // One for all that read the value: its gradient is summed over ranks once.
    if (src.copied.id < 0) src.copied = to_.add_node(node.module, make_tensor_copy_node(in), {src.value}, {}, in);
    divide_weight(node, /*outputs=*/true, sections);
    if (node.parameters.size() > 1) divide(node.parameters[1], 0, sections);
    return {to_.add_node(node.module, make_linear_node(in, {.out = out / ranks_, .bias = node.parameters.size() > 1}),
                         {src.copied}, node.parameters, out / ranks_),
            true,
            {}};
  }

  Place split_inputs(const Node& node) {
    const Place& src = place(node.inputs[0]);
    if (!src.split)
      throw ConfigError(fmt::format("{}: the tensor plan splits it by inputs, and its input is whole", node.module));
    const int64_t in = to_.info(src.value).width, out = from_.values()[static_cast<size_t>(node.output)].width;
    divide_weight(node, /*outputs=*/false, {in * ranks_});
    // The bias is the first rank's alone: so it is added once, and its gradient is whole.
    const bool bias = node.parameters.size() > 1 && rank_ == 0;
    std::vector<int> parameters{node.parameters[0]};
    if (bias) parameters.push_back(node.parameters[1]);
    const Value summand = to_.add_node(node.module, make_linear_node(in, {.out = out, .bias = bias}), {src.value},
                                       std::move(parameters), out);
    return {to_.add_node(node.module, make_tensor_sum_node(out), {summand}, {}, out), false, {}};
  }

  void divide_weight(const Node& node, bool outputs, const std::vector<int64_t>& sections) {
    const ParameterInfo& info = from_.parameters()[static_cast<size_t>(node.parameters[0])];
    const auto uses = std::ranges::count_if(from_.nodes(), [&](const Node& one) {
      return std::ranges::find(one.parameters, node.parameters[0]) != one.parameters.end();
    });
    if (uses > 1)
      throw ConfigError(fmt::format("{}: its weight {} is used elsewhere too and cannot be divided by the tensor plan",
                                    node.module, info.name));
    divide(node.parameters[0], outputs == (info.file_layout == ops::WeightLayout::out_in) ? 0 : 1, sections);
  }

  void divide(int id, int dimension, const std::vector<int64_t>& sections) {
    ParameterInfo& info = to_.parameters_[static_cast<size_t>(id)];
    int64_t sum = 0;
    for (int64_t section : sections) sum += section;
    if (sum != info.shape[dimension])
      throw ConfigError(fmt::format("{}: the sections of the tensor plan make {}, and the shape is {}", info.name, sum,
                                    info.shape.text()));
    info.placement = {dimension, rank_, ranks_, sections, info.shape};
    info.shape[dimension] /= ranks_;
  }

  const Graph& from_;
  Graph to_;
  int rank_, ranks_;
  std::vector<bool> matched_;  // by rule
  std::vector<Place> places_;  // by value of the whole graph
};

std::shared_ptr<const Graph> shard_graph(const std::shared_ptr<const Graph>& graph, int tensor_rank, int tensor_size) {
  return tensor_size == 1 ? graph : GraphSharder(*graph, tensor_rank, tensor_size).run();
}

}  // namespace ppengine::engine
