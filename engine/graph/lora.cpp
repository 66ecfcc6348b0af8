// Rewriting a graph with low-rank terms beside its linears.
#include <ppengine/engine/graph/lora.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/base/pattern.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {
namespace {

bool is_linear(const Node& node) { return node.op->is_linear() && !node.module.ends_with(".lora_A") && !node.module.ends_with(".lora_B"); }
bool fits(const std::string& module, const std::string& target) { return module == target || module.ends_with("." + target); }
// What has characters that no module's name has is a regular expression, as a text is in peft.
bool is_pattern(const std::string& target) { return target.find_first_of("*+?[](){}|\\^$") != std::string::npos; }
std::string last_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// The linear that makes the model's output, or what its loss is computed from.
bool is_head(const Graph& graph, const Node& node) {
  if (node.output == graph.output_value()) return true;
  const auto reads = [&](const Node& other) {
    return other.output == graph.loss_value() && std::ranges::find(other.inputs, node.output) != other.inputs.end();
  };
  return fits(node.module, "lm_head") || fits(node.module, "embed_out") || std::ranges::any_of(graph.nodes(), reads);
}

}  // namespace

class GraphAdapter {
 public:
  // side_by_side: of the adapters each sequence has one or none; otherwise there is one, and all have it.
  GraphAdapter(const Graph& graph, std::span<const LoraOptions> adapters, bool side_by_side)
      : from_(graph), adapters_(adapters), side_by_side_(side_by_side) {
    for (const LoraOptions& options : adapters) {
      auto& own = own_modules_.emplace_back();
      for (const std::string& module : lora_modules(graph, options.targets)) own.insert(module), modules_.insert(module);
    }
    to_.parameters_ = graph.parameters();
    for (ParameterInfo& one : to_.parameters_) one.frozen = true;
  }

  AdapterBank run() {
    for (const ValueInfo& info : from_.values()) {
      if (!info.producer) {
        values_.push_back(to_.values_.push_back(info));
        continue;
      }
      const Node& node = from_.nodes()[info.producer];
      std::vector<Value> inputs;
      for (Value input : node.inputs) inputs.push_back(values_[input]);
      const Value made = to_.add_node(node.module, node.op, inputs, node.parameters, info.width, info.kind);
      values_.push_back(is_linear(node) && modules_.contains(node.module) ? adapted(node, inputs.front(), made) : made);
    }
    if (from_.loss_value()) to_.loss_ = values_[from_.loss_value()];
    if (from_.output_value()) to_.output_ = values_[from_.output_value()];
    add_rules();
    return {std::make_shared<const Graph>(std::move(to_)), std::move(masks_)};
  }

 private:
  Value linear(Value src, const std::string& module, std::int64_t out, Init init, float scale) {
    const std::int64_t in = to_.info(src).width;
    ParameterInfo weight{module + ".weight", {out, in}, init, scale};
    weight.linear_weight = !side_by_side_;  // these stay in f32 however the model's weights are stored
    weight.frozen = side_by_side_;
    const ParameterId id = to_.add_parameter(std::move(weight));
    return to_.add_node(module, make_linear_node(in, {.out = out, .bias = false}), {src}, {id}, out);
  }

  // The mask of a module; modules that have the same adapters with the same ranks share one.
  Value mask_of(const std::string& module) {
    std::vector<int> columns;
    for (std::size_t k = 0; k < adapters_.size(); ++k)
      if (own_modules_[k].contains(module))
        columns.insert(columns.end(), static_cast<std::size_t>(adapters_[k].rank_of(module)), static_cast<int>(k));
    const auto found = std::ranges::find(masks_, columns, &AdapterMask::columns);
    if (found != masks_.end()) return mask_values_[static_cast<std::size_t>(found - masks_.begin())];
    masks_.push_back({fmt::format("adapters.{}", masks_.size()), columns});
    return mask_values_.emplace_back(to_.input(masks_.back().input, static_cast<std::int64_t>(columns.size())));
  }

  Value adapted(const Node& node, Value src, Value base) {
    const Value mask = side_by_side_ ? mask_of(node.module) : Value{};
    const LoraOptions& options = adapters_.front();
    const std::int64_t rank = side_by_side_ ? to_.info(mask).width : options.rank_of(node.module);
    const auto in = to_.info(src).width;
    if (options.dropout > 0 && !side_by_side_)
      src =
          to_.add_node(node.module + ".lora_dropout",
                       make_dropout_node(in, static_cast<float>(options.dropout), hash_text(node.module + ".lora_dropout")), {src}, {}, in);
    Value low = linear(src, node.module + ".lora_A", rank, Init::uniform, 1.0f / std::sqrt(static_cast<float>(in)));
    const auto factor = static_cast<float>(options.scale(node.module));
    if (side_by_side_)
      low = to_.add_node(node.module + ".lora_A", make_multiply_node(rank), {low, mask}, {}, rank);
    else if (factor != 1.0f)
      low = to_.add_node(node.module + ".lora_A", make_scale_node({rank, factor}), {low}, {}, rank);
    const Value term = linear(low, node.module + ".lora_B", to_.info(base).width, Init::zeros, 0.0f);
    return to_.add_node(node.module + ".lora_B", make_add_node(to_.info(base).width), {base, term}, {}, to_.info(base).width);
  }

  // Where a linear is divided by outputs, B is divided as it is and A is whole; where by inputs, A is divided and B whole.
  void add_rules() {
    TensorPlan plan = from_.tensor_plan();
    for (const TensorRule& rule : from_.tensor_plan()) {
      const bool used = std::ranges::any_of(modules_, [&](const std::string& module) { return fits(module, rule.module); });
      if (!used || rule.split == TensorSplit::vocabulary) continue;
      const bool outputs = rule.split == TensorSplit::outputs;
      plan.push_back({rule.module + (outputs ? ".lora_B" : ".lora_A"), rule.split, outputs ? rule.sections : std::vector<std::int64_t>()});
    }
    to_.tensor_plan_ = std::move(plan);
  }

  const Graph& from_;
  std::span<const LoraOptions> adapters_;
  bool side_by_side_;
  Graph to_;
  std::set<std::string> modules_;                   // of all adapters
  std::vector<std::set<std::string>> own_modules_;  // by adapter
  std::vector<AdapterMask> masks_;
  std::vector<Value> mask_values_;
  IdVector<Value, Value> values_;  // by value of the graph that is adapted
};

std::int64_t LoraOptions::rank_of(const std::string& module) const {
  const auto own = ranks.find(module);
  return own == ranks.end() ? rank : own->second;
}

double LoraOptions::scale(const std::string& module) const {
  const auto r = double(rank_of(module));
  const auto own = alphas.find(module);
  return (own == alphas.end() ? alpha : own->second) / (rank_stabilized ? std::sqrt(r) : r);
}

std::vector<std::string> lora_modules(const Graph& graph, const std::vector<std::string>& targets) {
  std::vector<std::string> found;
  std::set<std::string> names;
  std::vector<char> used(targets.size());
  std::map<std::string, Pattern> patterns;
  for (const std::string& target : targets)
    if (is_pattern(target)) patterns.try_emplace(target, "--lora-targets", target);
  const auto wants = [&](const std::string& module, const std::string& target) {
    const auto pattern = patterns.find(target);
    return pattern == patterns.end() ? fits(module, target) : pattern->second.fits(module);
  };
  for (const Node& node : graph.nodes()) {
    if (!is_linear(node)) continue;
    const bool head = is_head(graph, node);
    names.insert(last_name(node.module));
    bool wanted = false;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] == "all-linear" ? head : !wants(node.module, targets[i])) continue;
      wanted = true;
      used[i] = 1;
    }
    // A term beside a tied head alone could not be added to its weight, which is the embedding's too.
    if (wanted && !graph.find_parameter(node.module + ".weight"))
      throw ConfigError(fmt::format(
          "--lora-targets: {} has its weight from elsewhere (a tied embedding), and no adapter of its own; choose others", node.module));
    if (wanted) found.push_back(node.module);
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!used[i])
      throw ConfigError(
          fmt::format("--lora-targets: the model has no linear '{}'; it has {}, or all-linear", targets[i], fmt::join(names, ", ")));
  return found;
}

std::vector<std::string> default_lora_targets(const Graph& graph) {
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(graph.nodes(), [&](const Node& node) { return is_linear(node) && fits(node.module, name); });
  };
  if (has("q_proj") && has("v_proj")) return {"q_proj", "v_proj"};
  for (const char* packed : {"c_attn", "qkv_proj", "query_key_value"})
    if (has(packed)) return {packed};
  return {"all-linear"};
}

std::shared_ptr<const Graph> add_lora(const Graph& graph, const LoraOptions& options) {
  if (options.rank < 1) throw ConfigError(fmt::format("--lora-rank {}: a rank is at least 1", options.rank));
  return GraphAdapter(graph, {&options, 1}, false).run().graph;
}

AdapterBank add_adapters(const Graph& graph, std::span<const LoraOptions> adapters) { return GraphAdapter(graph, adapters, true).run(); }

std::shared_ptr<const Graph> pack_frozen(const Graph& graph, const ops::WeightStorage& storage) {
  std::set<std::string> kept;  // in f32
  for (const Node& node : graph.nodes())
    if (!is_linear(node) || is_head(graph, node))
      for (ParameterId id : node.parameters) kept.insert(graph.parameters()[id].name);
  auto result = std::make_shared<Graph>(graph);
  result->store_frozen(storage, [&](const ParameterInfo& info) { return !kept.contains(info.name); });
  return result;
}

}  // namespace ppengine::engine
