// Building a graph: names, shapes, parameters.
#include <ppengine/engine/graph/graph.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {

Graph::Scope::~Scope() {
  if (graph_) graph_->scope_.resize(length_);
}

Graph::Scope Graph::module(const std::string& name) {
  Scope scope(this, scope_.size());
  scope_ = qualified(name);
  return scope;
}

std::string Graph::qualified(const std::string& name) const {
  if (scope_.empty()) return name;
  return name.empty() ? scope_ : scope_ + "." + name;
}

Value Graph::tokens(const std::string& name) { return values_.push_back({.name = name, .kind = ValueKind::tokens}); }

Value Graph::input(const std::string& name, std::int64_t width) { return values_.push_back({.name = name, .width = width}); }

namespace {

// An op without a module of its own, named by where it stands and what it joins.
std::string joining(const char* op, const std::string& scope, const std::string& first) {
  return fmt::format("{}{}{} to {}", scope, scope.empty() ? "" : ": ", op, first);
}

}  // namespace

void Graph::expect_width(Value value, std::int64_t width, const std::string& what) const {
  const ValueInfo& got = info(value);
  if (got.kind == ValueKind::tokens)
    throw ConfigError(fmt::format("{}: expected [batch,length,{}], got the tokens '{}'", what, width, got.name));
  if (got.width != width)
    throw ConfigError(fmt::format("{}: expected [batch,length,{}], got [batch,length,{}] from {}", what, width, got.width, got.name));
}

ParameterId Graph::find_parameter(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, &ParameterInfo::name);
  return found == parameters_.end() ? ParameterId() : parameters_.id_of(found);
}

std::int64_t Graph::parameter_count() const {
  std::int64_t total = 0;
  for (const ParameterInfo& one : parameters_) total += one.shape.count();
  return total;
}

std::int64_t Graph::trained_count() const {
  std::int64_t total = 0;
  for (const ParameterInfo& one : parameters_) total += one.frozen ? 0 : one.shape.count();
  return total;
}

bool Graph::trains(const Node& node) const {
  return std::ranges::any_of(node.parameters, [&](ParameterId id) { return !parameters_[id].frozen; });
}

void Graph::freeze(const std::function<bool(const ParameterInfo&)>& which) {
  for (ParameterInfo& one : parameters_) one.frozen = one.frozen || which(one);
  for (const Node& node : nodes_) {  // producers come before their users
    bool reached = trains(node);
    for (Value id : node.inputs) reached = reached || values_[id].needs_gradient;
    bool& needs = values_[node.output].needs_gradient;
    needs = needs && reached;  // freezing takes gradients away, it gives none
  }
}

void Graph::freeze_unreached(const std::function<bool(const ParameterInfo&)>& but) {
  if (!loss_value()) return;
  IdVector<Value, bool> reached(values_.size(), false);
  IdVector<ParameterId, bool> trained(parameters_.size(), false);
  reached[loss_value()] = true;
  for (const Node& node : nodes_ | std::views::reverse) {
    ValueInfo& output = values_[node.output];
    output.needs_gradient = output.needs_gradient && reached[node.output];
    if (!output.needs_gradient) continue;
    for (Value id : node.inputs) reached[id] = true;
    for (ParameterId id : node.parameters) trained[id] = true;
  }
  for (ParameterId id : parameters_.ids())
    if (!trained[id] && !but(parameters_[id])) parameters_[id].frozen = true;
}

void Graph::store_frozen(const ops::WeightStorage& storage, const std::function<bool(const ParameterInfo&)>& which) {
  for (ParameterInfo& one : parameters_)
    if (one.frozen && one.linear_weight && !one.fixed_layout && which(one)) one.storage = storage;
}

ParameterId Graph::add_parameter(ParameterInfo info) {
  if (find_parameter(info.name))
    throw ConfigError(fmt::format("two parameters are named {}: use LinearOptions::weight to share one", info.name));
  if (std::ranges::any_of(info.shape.dims(), [](std::int64_t dim) { return dim <= 0; }))
    throw ConfigError(fmt::format("{}: a parameter of shape {} is empty", info.name, info.shape.text()));
  return parameters_.push_back(std::move(info));
}

Value Graph::add_node(const std::string& module, std::shared_ptr<const NodeOp> op, const std::vector<Value>& inputs,
                      std::vector<ParameterId> parameters, std::int64_t width, ValueKind kind) {
  Node node{module, std::move(op), inputs, std::move(parameters), values_.end_id()};
  bool needs_gradient = trains(node);
  for (Value value : inputs) {
    if (!values_.contains(value)) throw ConfigError(fmt::format("{}: an input is not a value of this graph", module));
    needs_gradient |= info(value).needs_gradient;
  }
  const NodeId producer = nodes_.push_back(std::move(node));
  return values_.push_back({.name = module, .kind = kind, .width = width, .producer = producer, .needs_gradient = needs_gradient});
}

Value Graph::embedding(Value ids, const std::string& module, const EmbeddingOptions& options) {
  const std::string name = qualified(module);
  if (info(ids).kind != ValueKind::tokens)
    throw ConfigError(fmt::format("{}: expected tokens [batch,length], got activations from {}", name, info(ids).name));
  std::vector<ParameterId> parameters{
      add_parameter({name + ".weight", {options.vocabulary, options.width}, Init::normal, options.init_scale})};
  if (options.positions > 0)
    parameters.push_back(add_parameter(
        {qualified(options.position_module) + ".weight", {options.positions, options.width}, Init::normal, options.init_scale}));
  return add_node(name, make_embedding_node(options), {ids}, std::move(parameters), options.width);
}

Value Graph::linear(Value src, const std::string& module, const LinearOptions& options) {
  const std::string name = qualified(module);
  const std::int64_t in = info(src).width, out = options.out;
  expect_width(src, in, name);
  std::vector<ParameterId> parameters;
  const ops::Shape shape = options.file_layout == ops::WeightLayout::out_in ? ops::Shape{out, in} : ops::Shape{in, out};
  if (options.weight.empty()) {
    ParameterInfo weight{name + ".weight", shape, Init::normal, options.init_scale};
    weight.linear_weight = true;
    weight.file_layout = options.file_layout;
    parameters.push_back(add_parameter(std::move(weight)));
  } else {
    const ParameterId shared = find_parameter(options.weight);
    if (!shared) throw ConfigError(fmt::format("{}: there is no parameter {} to share", name, options.weight));
    ParameterInfo& weight = parameters_[shared];
    if (!(weight.shape == shape))
      throw ConfigError(fmt::format("{}: expected a weight {}, got {} {}", name, shape.text(), weight.name, weight.shape.text()));
    if (!weight.linear_weight) {
      weight.linear_weight = weight.fixed_layout = true;
      weight.file_layout = options.file_layout;
    }
    parameters.push_back(shared);
  }
  if (options.bias) parameters.push_back(add_parameter({name + ".bias", {out}, Init::zeros}));
  return add_node(name, make_linear_node(in, options), {src}, std::move(parameters), out);
}

Value Graph::norm(Value src, const std::string& module, const NormOptions& options) {
  const std::string name = qualified(module);
  const std::int64_t width = info(src).width;
  expect_width(src, width, name);
  const std::int64_t row = options.group > 0 ? options.group : width;
  if (width % row != 0) throw ConfigError(fmt::format("{}: a width of {} does not consist of rows of {}", name, width, row));
  std::vector<ParameterId> parameters{add_parameter({name + ".weight", {row}, options.shift == 1.0f ? Init::zeros : Init::ones})};
  NormOptions checked = options;
  if (options.kind == ops::NormKind::rms) checked.bias = false;
  if (checked.bias) parameters.push_back(add_parameter({name + ".bias", {row}, Init::zeros}));
  return add_node(name, make_norm_node(width, checked), {src}, std::move(parameters), width);
}

Value Graph::activation(Value src, ops::ActivationKind kind) {
  return add_node(scope_, make_activation_node(kind, info(src).width), {src}, {}, info(src).width);
}
Value Graph::softmax(Value src) { return add_node(scope_, make_softmax_node(info(src).width), {src}, {}, info(src).width); }

Value Graph::gated_silu(Value gate, Value up) {
  expect_width(up, info(gate).width, scope_);
  return add_node(scope_, make_gated_silu_node(info(gate).width), {gate, up}, {}, info(gate).width);
}

Value Graph::gated_silu(Value packed) {
  const std::int64_t width = info(packed).width / 2;
  expect_width(packed, 2 * width, scope_);
  return add_node(scope_, make_packed_gated_silu_node(width), {packed}, {}, width);
}

Value Graph::scale(Value src, float factor) {
  if (factor == 1.0f) return src;
  return add_node(scope_, make_scale_node({info(src).width, factor}), {src}, {}, info(src).width);
}

Value Graph::soft_cap(Value src, float cap) {
  if (cap == 0.0f) return src;
  return add_node(scope_, make_scale_node({info(src).width, cap, true}), {src}, {}, info(src).width);
}

Value Graph::add(Value a, Value b) {
  expect_width(b, info(a).width, joining("add", scope_, info(a).name));
  return add_node(scope_, make_add_node(info(a).width), {a, b}, {}, info(a).width);
}

Value Graph::multiply(Value a, Value b) {
  expect_width(b, info(a).width, joining("multiply", scope_, info(a).name));
  return add_node(scope_, make_multiply_node(info(a).width), {a, b}, {}, info(a).width);
}

Value Graph::dropout(Value src, float p) {
  if (p < 0.0f || p >= 1.0f) throw ConfigError(fmt::format("{}: dropout takes a probability from 0 to below 1, not {}", scope_, p));
  if (p == 0.0f) return src;
  const std::uint64_t site = hash_text(fmt::format("{}#{}", scope_, nodes_.size()));
  return add_node(scope_, make_dropout_node(info(src).width, p, site), {src}, {}, info(src).width);
}

Value Graph::attention(Value packed_qkv, const AttentionOptions& options) {
  expect_width(packed_qkv, (options.heads + 2 * options.kv_heads) * options.head_dim, scope_);
  return add_node(scope_, make_attention_node(options, true), {packed_qkv}, {}, options.heads * options.head_dim);
}

Value Graph::attention(Value q, Value k, Value v, const AttentionOptions& options) {
  expect_width(q, options.heads * options.head_dim, scope_);
  expect_width(k, options.kv_heads * options.head_dim, scope_);
  expect_width(v, options.kv_heads * options.head_dim, scope_);
  return add_node(scope_, make_attention_node(options, false), {q, k, v}, {}, options.heads * options.head_dim);
}

Value Graph::rotary(Value src, const RotaryOptions& options) {
  expect_width(src, options.heads * options.head_dim, scope_);
  return add_node(scope_, make_rotary_node(options), {src}, {}, info(src).width);
}

Value Graph::cross_entropy(Value logits, Value targets) {
  if (info(targets).kind != ValueKind::tokens)
    throw ConfigError(fmt::format("{}: the targets of a cross entropy are tokens", qualified("loss")));
  return add_node(qualified("loss"), make_cross_entropy_node(info(logits).width), {logits, targets}, {}, 1, ValueKind::loss);
}

Value Graph::custom(std::shared_ptr<const NodeOp> op, const std::vector<Value>& inputs, const std::vector<ParameterInfo>& parameters,
                    std::int64_t width, ValueKind kind) {
  std::vector<ParameterId> ids;
  for (ParameterInfo one : parameters) {
    one.name = qualified(one.name);
    ids.push_back(add_parameter(std::move(one)));
  }
  return add_node(scope_, std::move(op), inputs, std::move(ids), width, kind);
}

Value Graph::node(const std::string& module, std::shared_ptr<const NodeOp> op, const std::vector<Value>& inputs,
                  std::vector<ParameterId> parameters, std::int64_t width, std::int64_t fixed, ValueKind kind, bool differentiable,
                  std::int64_t square) {
  const Value made = add_node(module, std::move(op), inputs, std::move(parameters), width, kind);
  ValueInfo& info = values_.back();
  info.fixed = fixed;
  info.square = square;
  info.needs_gradient = info.needs_gradient && differentiable && kind != ValueKind::tokens;
  return made;
}

Value Graph::tensor_input(const std::string& name, std::int64_t width, ValueKind kind) {
  return values_.push_back({.name = name, .kind = kind, .width = width});
}

void Graph::loss(Value value) {
  if (info(value).kind != ValueKind::loss) throw ConfigError(fmt::format("{}: only a loss can be minimised", info(value).name));
  loss_ = value;
}

void Graph::output(Value value) { output_ = value; }

}  // namespace ppengine::engine
