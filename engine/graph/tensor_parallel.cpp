// Rewriting a graph for one of several tensor-parallel ranks.
#include <ppengine/engine/graph/tensor_parallel.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {

class GraphSharder {
 public:
  GraphSharder(const Graph& whole, int rank, int ranks, bool sequence_parallel)
      : from_(whole), rank_(rank), ranks_(ranks), rows_(sequence_parallel), matched_(whole.tensor_plan().size()) {
    if (whole.tensor_plan().empty())
      throw ConfigError(fmt::format("--tp {}: the model does not say how to divide it: call Graph::tensor_plan", ranks));
    to_.parameters_ = whole.parameters();
    to_.tensor_plan_ = whole.tensor_plan();
  }

  std::shared_ptr<const Graph> run() {
    for (const ValueInfo& info : from_.values()) {  // every value is an input, or the output of one node
      if (!info.producer) {
        places_.push_back({to_.values_.push_back(info), Has::all});
      } else {
        places_.push_back(rewrite(from_.nodes()[info.producer], info));
      }
    }
    for (std::size_t i = 0; i < matched_.size(); ++i)
      if (!matched_[i])
        throw ConfigError(
            fmt::format("the tensor plan names {}, and the model has no such linear or embedding", from_.tensor_plan()[i].module));
    // At the end, since only runs that ask for the output need what is added for it.
    to_.loss_ = !from_.loss_value() ? Value() : outside(from_.loss_value(), "the loss");
    to_.output_ = !from_.output_value() ? Value() : outside(from_.output_value(), "the output");
    return std::make_shared<const Graph>(std::move(to_));
  }

 private:
  // What this rank has of a value: everything, a part of the width or heads that some ops can work on, a stretch of the
  // vocabulary (parts need not be even), or a part of the tokens.
  enum class Has { all, width, vocabulary, rows };

  // A value of the whole model in the new graph.
  struct Place {
    Value value;
    Has has = Has::all;
    Value copied = {};    // the input of divided linears, once there is one
    Value gathered = {};  // all of it, once somebody wanted that
  };

  Place& place(Value id) { return places_[id]; }
  std::int64_t whole_width(Value id) const { return from_.values()[id].width; }

  Value meet(TensorMeeting what, const std::string& module, Value value, std::int64_t width) {
    const Value result = to_.add_node(module, make_tensor_node(what, width, ranks_), {value}, {}, width);
    if (what == TensorMeeting::sum_rows || what == TensorMeeting::take_rows) set_row_parts(result);
    return result;
  }
  void set_row_parts(Value value) { to_.values_[value].row_parts = ranks_; }

  // All of a value, on every rank.
  Value everything(Value id) {
    Place& from = place(id);
    if (from.has == Has::all) return from.value;
    if (!from.gathered)
      from.gathered = meet(from.has == Has::rows ? TensorMeeting::gather_rows : TensorMeeting::gather_width, to_.info(from.value).name,
                           from.value, whole_width(id));
    return from.gathered;
  }

  Value outside(Value id, const char* what) {
    if (place(id).has == Has::width)
      throw ConfigError(
          fmt::format("{} is divided over tensor-parallel ranks: the tensor plan must end in a linear that is split by inputs "
                      "or by the vocabulary",
                      what));
    return everything(id);
  }

  static bool is_embedding(const Node& node) { return node.op->first_token().has_value(); }

  const TensorRule* rule_of(const Node& node) {
    const bool embedding = is_embedding(node);
    if (!node.op->is_linear() && !embedding) return nullptr;
    for (std::size_t i = 0; i < from_.tensor_plan().size(); ++i) {
      const TensorRule& rule = from_.tensor_plan()[i];
      if (node.module != rule.module && !node.module.ends_with("." + rule.module)) continue;
      if (embedding && rule.split != TensorSplit::vocabulary)
        throw ConfigError(fmt::format("{}: the tensor plan can split an embedding by the vocabulary only", node.module));
      matched_[i] = true;
      return &rule;
    }
    return nullptr;
  }

  Place rewrite(const Node& node, const ValueInfo& info) {
    if (const TensorRule* rule = rule_of(node)) {
      if (is_embedding(node)) return split_embedding(node);
      return rule->split == TensorSplit::inputs ? split_inputs(node) : split_outputs(node, *rule);
    }
    if (!node.inputs.empty() && place(node.inputs[0]).has == Has::vocabulary)
      if (auto op = node.op->classes_part(whole_width(node.inputs[0]), rank_, ranks_))
        return {
            to_.add_node(node.module, std::move(op), {place(node.inputs[0]).value, everything(node.inputs[1])}, {}, info.width, info.kind)};
    if (node.inputs.size() == 1 && place(node.inputs[0]).has == Has::vocabulary) {
      const Place& src = place(node.inputs[0]);
      const std::int64_t mine = to_.info(src.value).width;
      if (auto op = node.op->with_width(mine, stretch_of(info.width, 0, ranks_).count))
        return {to_.add_node(node.module, std::move(op), {src.value}, {}, mine), Has::vocabulary};
    }
    const auto any = [&](Has has) { return std::ranges::any_of(node.inputs, [&](Value id) { return place(id).has == has; }); };
    if (any(Has::width)) return on_part_of_width(node, info);
    if (any(Has::rows))
      if (auto part = node.op->rows_part(rank_, ranks_)) return on_part_of_rows(node, info, std::move(part));
    const auto inputs = each_input(node, [&](Value id) { return everything(id); });
    return {to_.add_node(node.module, node.op, inputs, node.parameters, info.width, info.kind)};
  }

  static std::vector<Value> each_input(const Node& node, const auto& made_of) {
    std::vector<Value> values;
    values.reserve(node.inputs.size());
    for (Value id : node.inputs) values.push_back(made_of(id));
    return values;
  }

  Place on_part_of_width(const Node& node, const ValueInfo& info) {
    const auto tokens = [&](Value id) { return from_.values()[id].kind == ValueKind::tokens; };
    const auto divided = [&](Value id) { return place(id).has == Has::width || tokens(id); };
    if (node.op->gathers_width()) {
      const auto inputs = each_input(node, [&](Value id) { return everything(id); });
      const Value whole = to_.add_node(node.module, node.op, inputs, node.parameters, info.width, info.kind);
      check_divides(info.width, "width", node.module);
      const auto take = make_tensor_node(TensorMeeting::take_width, info.width, ranks_);
      return {to_.add_node(node.module, take, {whole}, {}, info.width / ranks_, info.kind), Has::width};
    }
    auto part = std::ranges::all_of(node.inputs, divided) ? node.op->part(ranks_, node.module) : nullptr;
    if (!part)
      throw ConfigError(fmt::format("--tp {}: {} ({}) cannot work on a part of its input; the tensor plan must keep it whole", ranks_,
                                    node.module, node.op->kind()));
    check_divides(info.width, "width", node.module);
    const auto inputs = each_input(node, [&](Value id) { return place(id).value; });
    return {to_.add_node(node.module, std::move(part), inputs, node.parameters, info.width / ranks_, info.kind), Has::width};
  }

  Place on_part_of_rows(const Node& node, const ValueInfo& info, std::shared_ptr<const NodeOp> part) {
    const auto inputs = each_input(node, [&](Value id) {
      if (place(id).has == Has::rows) return place(id).value;
      return meet(TensorMeeting::take_rows, node.module, everything(id), whole_width(id));
    });
    const Value result = to_.add_node(node.module, std::move(part), inputs, node.parameters, info.width, info.kind);
    set_row_parts(result);
    return {result, Has::rows};
  }

  void check_divides(std::int64_t count, const char* what, const std::string& module) const {
    if (count % ranks_ != 0)
      throw ConfigError(fmt::format("--tp {} does not divide the {} of {}, which is {}", ranks_, what, module, count));
  }

  // What each rank has of the result is a summand of it.
  Place sum(const std::string& module, Value summand, std::int64_t width) {
    return {meet(rows_ ? TensorMeeting::sum_rows : TensorMeeting::sum, module, summand, width), rows_ ? Has::rows : Has::all};
  }

  // Each token is in one rank's part of the table; the others' summands are zeros, also for its position.
  Place split_embedding(const Node& node) {
    const ops::Shape& table = from_.parameters()[node.parameters[0]].shape;
    EmbeddingOptions options{.vocabulary = table[0], .width = table[1], .padding = node.op->padding_token()};
    if (node.parameters.size() > 1) options.positions = from_.parameters()[node.parameters[1]].shape[0];
    check_vocabulary(table[0], node.module);
    check_uses(node, 0, TensorSplit::vocabulary);
    divide(node.parameters[0], 0, {table[0]});
    auto op = make_embedding_node(options, rank_, ranks_);
    if (node.inputs.size() > 1) op = op->packed();
    const auto inputs = each_input(node, [&](Value id) { return everything(id); });
    const Value summand = to_.add_node(node.module, std::move(op), inputs, node.parameters, options.width);
    return sum(node.module, summand, options.width);
  }

  Place split_outputs(const Node& node, const TensorRule& rule) {
    const bool vocabulary = rule.split == TensorSplit::vocabulary;
    const std::int64_t out = whole_width(node.output);
    const auto sections = rule.sections.empty() ? std::vector{out} : rule.sections;
    if (vocabulary) check_vocabulary(out, node.module);
    for (std::int64_t section : sections)
      if (!vocabulary && sections.size() > 1 && section % ranks_ != 0)
        throw ConfigError(fmt::format("--tp {} does not divide the {} outputs of a section of {}, which has {} in {} sections", ranks_,
                                      section, node.module, out, sections.size()));
      else if (!vocabulary)
        check_divides(section, "output width", node.module);
    Place& src = place(node.inputs[0]);
    if (src.has == Has::width || src.has == Has::vocabulary)
      throw ConfigError(fmt::format("{}: the tensor plan splits it by outputs, and its input is divided already", node.module));
    const std::int64_t in = to_.info(src.value).width;
    // One for all that read the value: its gradient is summed over ranks once.
    if (!src.copied) src.copied = meet(src.has == Has::rows ? TensorMeeting::copy_rows : TensorMeeting::copy, node.module, src.value, in);
    divide_weight(node, rule, sections);
    const bool bias = node.parameters.size() > 1;
    if (bias) divide(node.parameters[1], 0, sections);
    const std::int64_t mine = vocabulary ? stretch_of(out, rank_, ranks_).count : out / ranks_;
    auto op = make_linear_node(in, {.out = mine, .bias = bias}, stretch_of(out, 0, ranks_).count);
    return {to_.add_node(node.module, std::move(op), {src.copied}, node.parameters, mine), vocabulary ? Has::vocabulary : Has::width};
  }

  Place split_inputs(const Node& node) {
    const Place& src = place(node.inputs[0]);
    if (src.has != Has::width)
      throw ConfigError(fmt::format("{}: the tensor plan splits it by inputs, and its input is whole", node.module));
    const std::int64_t in = to_.info(src.value).width, out = whole_width(node.output);
    divide_weight(node, {.module = "", .split = TensorSplit::inputs}, {in * ranks_});
    // The bias is the first rank's alone: so it is added once, and its gradient is whole.
    const bool bias = node.parameters.size() > 1 && rank_ == 0;
    std::vector<ParameterId> parameters{node.parameters[0]};
    if (bias) parameters.push_back(node.parameters[1]);
    const Value summand =
        to_.add_node(node.module, make_linear_node(in, {.out = out, .bias = bias}), {src.value}, std::move(parameters), out);
    return sum(node.module, summand, out);
  }

  void check_vocabulary(std::int64_t size, const std::string& module) const {
    if (size < ranks_)
      throw ConfigError(fmt::format("--tp {}: {} has a vocabulary of {}, which is not enough for so many ranks", ranks_, module, size));
  }

  // A weight that several nodes use (a tied embedding and head) must be divided in the same way by all of them.
  void check_uses(const Node& node, std::size_t which, TensorSplit split) {
    for (const Node& other : from_.nodes()) {
      if (std::ranges::find(other.parameters, node.parameters[which]) == other.parameters.end() || other.module == node.module) continue;
      const TensorRule* rule = rule_of(other);
      if (split == TensorSplit::vocabulary && rule && rule->split == split) continue;
      throw ConfigError(fmt::format("{}: its weight {} is used elsewhere too and cannot be divided by the tensor plan", node.module,
                                    from_.parameters()[node.parameters[which]].name));
    }
  }

  void divide_weight(const Node& node, const TensorRule& rule, const std::vector<std::int64_t>& sections) {
    const ParameterInfo& info = from_.parameters()[node.parameters[0]];
    check_uses(node, 0, rule.split);
    const bool outputs = rule.split != TensorSplit::inputs;
    divide(node.parameters[0], outputs == (info.file_layout == ops::WeightLayout::out_in) ? 0 : 1, sections);
  }

  void divide(ParameterId id, int dimension, const std::vector<std::int64_t>& sections) {
    ParameterInfo& info = to_.parameters_[id];
    const ops::Shape whole = info.whole_shape();
    std::int64_t sum = 0;
    for (std::int64_t section : sections) sum += section;
    if (sum != whole[dimension])
      throw ConfigError(fmt::format("{}: the sections of the tensor plan make {}, and the shape is {}", info.name, sum, whole.text()));
    const Placement placement{dimension, rank_, ranks_, sections, whole};
    PPENGINE_ASSERT(!info.placement.is_split() || info.placement == placement);
    info.placement = placement;
    info.shape = placement.part();
  }

  const Graph& from_;
  Graph to_;
  int rank_, ranks_;
  bool rows_;
  std::vector<bool> matched_;      // by rule
  IdVector<Value, Place> places_;  // by value of the whole graph
};

std::shared_ptr<const Graph> shard_graph(const std::shared_ptr<const Graph>& graph, int tensor_rank, int tensor_size,
                                         bool sequence_parallel) {
  return tensor_size == 1 ? graph : GraphSharder(*graph, tensor_rank, tensor_size, sequence_parallel).run();
}

}  // namespace ppengine::engine
