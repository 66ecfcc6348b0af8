// Lowering an exported program: symbols, inputs, nodes in order, loss and outputs.
#include <ppengine/models/import/lowering.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/stored.hpp>

namespace ppengine::models {
namespace {

char char_of(int torch_type) {
  if (torch_type == 12) return 'b';
  if (torch_type == 6 || torch_type == 7 || torch_type == 8 || torch_type == 13) return 'f';
  if (torch_type >= 1 && torch_type <= 5) return 'i';
  if (torch_type >= 9 && torch_type <= 11) throw ConfigError("complex numbers are not supported");
  throw ConfigError(fmt::format("values of torch's type {} are not supported", torch_type));
}

// Sizes are taken to be a polynomial of the batch: they are looked at for four batches that all small numbers divide.
constexpr std::int64_t looked_at = 5040;

}  // namespace

Lowering::Lowering(const ExportedProgram& program, const std::function<const StoredTensor&(const std::string&)>& tensor,
                   const ProgramOptions& options, ProgramGraph& into)
    : program_(program), tensor_(tensor), options_(options), into_(into), build_(*into.graph) {
  build_.set_patterns(options.patterns);
}

void Lowering::bind_symbols() {
  std::set<std::string> batches;
  for (const ExportedInput& input : program_.inputs) {
    if (input.kind != ExportedInput::Kind::input) continue;
    const auto found = program_.graph.values.find(input.value);
    if (found == program_.graph.values.end()) throw FileError(fmt::format("the program's input '{}' has no shape", input.value));
    const auto& sizes = found->second.sizes;
    const auto given = options_.sizes.find(input.name);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto symbols = symbols_of(sizes[d].expression);
      if (d == 0) {
        for (const std::string& one : symbols) batches.insert(one), batch_symbol_ = batch_symbol_.empty() ? one : batch_symbol_;
        if (symbols.empty() && into_.fixed_batch == 0 && batch_symbol_.empty()) into_.fixed_batch = sizes[d].number;
        continue;
      }
      if (symbols.size() != 1 || batches.contains(symbols[0])) continue;
      std::int64_t value = sizes[d].hint;
      if (given != options_.sizes.end() && given->second.size() + 1 == sizes.size()) value = given->second[d - 1];
      symbols_.try_emplace(symbols[0], value);
    }
  }
  if (!batch_symbol_.empty()) into_.fixed_batch = 0;
  for (const std::string& one : batches) symbols_[one] = -1;  // marks the batch
  build_.set_fixed_batch(into_.fixed_batch);
}

Dim Lowering::dim_of(const ExportedSize& size) const {
  if (size.expression.empty()) return {size.number};
  std::int64_t seen[4];
  for (std::int64_t i = 0; i < 4; ++i) {
    auto symbols = symbols_;
    for (auto& [name, value] : symbols)
      if (value == -1) value = looked_at * (i + 1);
    seen[i] = value_of(size, symbols);
    if (std::abs(seen[i]) > std::int64_t{1} << 54) throw ConfigError(fmt::format("the size {} is too large", size.expression));
  }
  const std::int64_t first = seen[1] - seen[0], bend = seen[2] - seen[1] - first, square = bend / (2 * looked_at * looked_at),
                     slope = (first - 3 * square * looked_at * looked_at) / looked_at;
  const Dim found{slope, seen[0] - (square * looked_at + slope) * looked_at, square};
  for (std::int64_t i = 0; i < 4; ++i)
    if (found.at(looked_at * (i + 1)) != seen[i])
      throw ConfigError(fmt::format("the size {} does not grow evenly with the batch, nor with its square", size.expression));
  return found;
}

Dims Lowering::shape_of(const std::string& value) const {
  const auto found = names_->graph->values.find(value);
  if (found == names_->graph->values.end()) throw FileError(fmt::format("the program's value '{}' has no shape", value));
  Dims shape;
  for (const ExportedSize& one : found->second.sizes) {
    shape.push_back(dim_of(one));
    const Dim& last = shape.back();
    if (last.square < 0 || (last.square == 0 && last.batch < 0) || (last.constant() && last.fixed < 0))
      throw FileError(fmt::format("the program's value '{}' has a negative size", value));
  }
  return shape;
}

char Lowering::type_of(const std::string& value) const {
  const auto found = names_->graph->values.find(value);
  if (found == names_->graph->values.end()) throw FileError(fmt::format("the program's value '{}' has no type", value));
  return char_of(found->second.type);
}

int Lowering::parameter_of(const std::string& given, bool frozen) {
  const auto tied = program_.tied.find(given);
  const std::string& name = tied == program_.tied.end() ? given : tied->second;
  const auto found = parameters_.find(name);
  if (found != parameters_.end()) return found->second;
  const StoredTensor& stored = tensor_(name);
  if (stored.shape.size() > static_cast<std::size_t>(ops::Shape::max_rank))
    throw ConfigError(fmt::format("{} has {} dimensions: {} are supported", name, stored.shape.size(), ops::Shape::max_rank));
  engine::ParameterInfo info;
  info.name = name;
  info.shape = ops::Shape(std::span(stored.shape));
  info.init = engine::Init::zeros;
  info.frozen = !frozen && (program_.frozen.contains(given) || (options_.frozen && options_.frozen(name)));
  const int id = into_.graph->parameter(std::move(info)).number();
  parameters_[name] = id;
  if (frozen) into_.running.push_back(name);
  return id;
}

TensorRef Lowering::stored_constant(const std::string& name) {
  const StoredTensor& stored = tensor_(name);
  Dims shape;
  for (std::int64_t size : stored.shape) shape.emplace_back(size);
  const bool is_float =
      stored.type == StoredType::f32 || stored.type == StoredType::f16 || stored.type == StoredType::bf16 || stored.type == StoredType::f64;
  return build_.constant(is_float ? bits_of(stored_floats(stored)) : stored_integers(stored), shape,
                         is_float                             ? 'f'
                         : stored.type == StoredType::boolean ? 'b'
                                                              : 'i');
}

// What the data has for an input must be of its shape, dimensions of one apart.
void Lowering::check_sample(const std::string& input, const Dims& shape) const {
  const auto given = options_.sizes.find(input);
  if (given == options_.sizes.end() || shape.empty()) return;
  std::vector<std::int64_t> wanted, found;
  for (std::size_t d = 1; d < shape.size(); ++d) {
    if (!shape[d].constant()) return;
    if (!shape[d].is(1)) wanted.push_back(shape[d].fixed);
  }
  std::ranges::copy_if(given->second, std::back_inserter(found), [](std::int64_t size) { return size != 1; });
  if (wanted != found)
    throw ConfigError(fmt::format("--data: a sample of tensor '{}' is [{}], the program reads {}", input, fmt::join(given->second, ","),
                                  text_of(Dims(shape.begin() + 1, shape.end()))));
}

void Lowering::bind_inputs() {
  for (const ExportedInput& input : program_.inputs) {
    if (input.kind == ExportedInput::Kind::parameter) {
      const TensorRef ref = build_.parameter(parameter_of(input.name, false));
      names_->tensors[input.value] = into_.graph->parameters()[engine::ParameterId(ref.parameter)].frozen ? build_.read(ref, false) : ref;
    } else if (input.kind == ExportedInput::Kind::buffer || input.kind == ExportedInput::Kind::constant) {
      buffers_[input.value] = input.name;  // made a value when it is read
    } else if (input.kind == ExportedInput::Kind::input) {
      const Dims shape = shape_of(input.value);
      const char type = type_of(input.value);
      check_sample(input.name, shape);
      names_->tensors[input.value] = build_.input(input.name, shape, type == 'b' ? 'i' : type);
      names_->tensors[input.value].type = type;
      into_.inputs.push_back({input.name, text_of(shape), type != 'f'});
    } else {
      into_.unsupported.push_back({"input", "", "", "an input that is no tensor"});
    }
  }
}

void Lowering::run() {
  bind_symbols();
  const auto writes = [](const ExportedNode& node) {  // into a part of something, or something that others see
    static const std::set<std::string> some{"copy_",       "fill_",        "zero_",    "masked_fill_", "index_put_",      "add_",
                                            "mul_",        "sub_",         "div_",     "clamp_",       "uniform_",        "normal_",
                                            "bernoulli_",  "exponential_", "scatter_", "scatter_add_", "scatter_reduce_", "index_add_",
                                            "index_copy_", "index_fill_"};
    return node.target.starts_with("aten.") && some.contains(node.target.substr(5, node.target.rfind('.') - 5));
  };
  copies_ = std::ranges::any_of(program_.graph.nodes, writes);
  Names names{&program_.graph, {}, {}};
  names_ = &names;
  bind_inputs();
  bind_state();
  std::vector<TensorRef> outputs;
  lower_graph(program_.graph, names, &outputs);
  if (!into_.unsupported.empty()) return;
  // Of all outputs, the user's.
  std::vector<TensorRef> wanted;
  for (const std::string& name : program_.outputs)
    for (std::size_t i = 0; i < program_.graph.outputs.size(); ++i)
      if (program_.graph.outputs[i] == name) {
        wanted.push_back(outputs[i]);
        break;
      }
  if (wanted.empty()) throw ConfigError("the program has no output");
  for (std::size_t i = 0; i < wanted.size(); ++i) into_.outputs.push_back({program_.outputs[i], {}, false, 0});
  build_.set_module("loss");
  add_loss(wanted);
  const std::set<std::string> running(into_.running.begin(), into_.running.end());
  into_.graph->freeze_unreached([&](const engine::ParameterInfo& one) { return running.contains(one.name); });
  build_.set_module("outputs");
  add_outputs(wanted);
}

// With those around it. A module of nothing but views has no node of its own.
void Lowering::note_module(const std::string& module) {
  for (std::size_t end = module.find('.'); !module.empty(); end = module.find('.', end + 1)) {
    const std::string name = module.substr(0, end);
    if (modules_.insert(name).second) into_.modules.emplace_back(name, static_cast<int>(into_.graph->nodes().size()));
    if (end == std::string::npos) return;
  }
}

void Lowering::lower_graph(const ExportedGraph& graph, Names& inner, std::vector<TensorRef>* results) {
  Names* const before = names_;
  names_ = &inner;
  for (const ExportedNode& node : graph.nodes) {
    ++into_.ops[node.target];
    const bool gives_tensors = std::ranges::any_of(node.outputs, [&](const std::string& one) { return graph.values.contains(one); });
    if (!gives_tensors) continue;  // sizes and assertions: sizes are known from their expressions
    build_.set_module(node.module);
    note_module(node.module);
    try {
      const std::vector<TensorRef> made = lower(node);
      for (std::size_t i = 0; i < node.outputs.size() && i < made.size(); ++i)
        if (!node.outputs[i].empty() && made[i].exists()) inner.tensors[node.outputs[i]] = made[i];
      if (&graph == &program_.graph) keep_state();
    } catch (const Unknown& unknown) {
      into_.unsupported.push_back({node.target, node.module, node.place, unknown.reason});
    } catch (const ConfigError& error) {
      into_.unsupported.push_back({node.target, node.module, node.place, error.what()});
    }
    // So that what depends on it is looked at too.
    if (!into_.unsupported.empty())
      for (const std::string& name : node.outputs)
        if (graph.values.contains(name) && !inner.tensors.contains(name)) try {
            inner.tensors[name] = build_.full(shape_of(name), 0.0, type_of(name));
          } catch (const Error&) {  // nothing can be said about it
          }
  }
  if (results)
    for (const std::string& name : graph.outputs) {
      const auto found = inner.tensors.find(name);
      if (found != inner.tensors.end())
        results->push_back(found->second);
      else if (buffers_.contains(name))
        results->push_back(TensorRef{});
      else if (into_.unsupported.empty() && graph.values.contains(name))
        throw FileError(fmt::format("the program's output '{}' is made by no node", name));
      else
        results->push_back(TensorRef{});
    }
  names_ = before;
}

std::vector<TensorRef> Lowering::lower(const ExportedNode& node) {
  const Arguments in(*this, node);
  if (node.target.starts_with("higher_order.")) return lower_higher_order(node);
  if (node.target.starts_with("transformers.grouped_mm_fallback."))
    if (auto made = lower_experts("grouped_mm_fallback", in)) return {*made};
  if (!node.target.starts_with("aten.")) Arguments::refuse("is not an op of PyTorch's own library");
  std::string op = node.target.substr(5, node.target.rfind('.') - 5);
  const bool given_out = node.target.ends_with("out") && in.is_tensor("out");  // the result goes into a tensor that is there
  const bool in_place = given_out || (op.ends_with("_") && !op.starts_with("__"));
  if (in_place && !given_out) op.pop_back();
  writes_in_place_ = writes_in_place_ || in_place;
  const char* const target = given_out ? "out" : "self";
  static const std::map<std::string, std::string> other_names{{"multiply", "mul"},
                                                              {"subtract", "sub"},
                                                              {"greater", "gt"},
                                                              {"greater_equal", "ge"},
                                                              {"less", "lt"},
                                                              {"less_equal", "le"},
                                                              {"not_equal", "ne"},
                                                              {"absolute", "abs"},
                                                              {"negative", "neg"},
                                                              {"special_expit", "sigmoid"},
                                                              {"special_erf", "erf"},
                                                              {"special_log1p", "log1p"},
                                                              {"special_expm1", "expm1"},
                                                              {"special_softmax", "softmax"},
                                                              {"special_log_softmax", "log_softmax"},
                                                              {"special_logsumexp", "logsumexp"},
                                                              {"arctan", "atan"},
                                                              {"arcsin", "asin"},
                                                              {"arccos", "acos"},
                                                              {"swapdims", "transpose"},
                                                              {"moveaxis", "movedim"},
                                                              {"row_stack", "vstack"},
                                                              {"arctan2", "atan2"},
                                                              {"fix", "trunc"}};
  if (const auto other = other_names.find(op); other != other_names.end()) op = other->second;
  if (in_place) {
    const std::string self = in.first_name(target);
    if (const auto buffer = buffers_.find(self); buffer != buffers_.end() && !state_.contains(self)) {
      const StoredTensor& stored = tensor_(buffer->second);
      if (op == "add" && stored.type == StoredType::i64 && stored.elements == 1 && in.number("other", 0.0) == 1.0) {
        const std::string counter = buffer->second;
        into_.counters.push_back(counter);
        if (!node.outputs.empty()) buffers_[node.outputs[0]] = counter;  // a module that is used twice counts on
        return {TensorRef{}};
      }
      const auto counted = std::ranges::find_if(
          names_->graph->nodes, [&](const ExportedNode& one) { return !one.outputs.empty() && one.outputs[0] == in.first_name("src"); });
      if (op == "copy" && std::ranges::count(into_.counters, buffer->second) > 0 && counted != names_->graph->nodes.end() &&
          counted->target.starts_with("aten.add_."))
        return {TensorRef{}};
      Arguments::refuse(fmt::format("changes the buffer {}", buffer->second));
    }
  }
  const char type = in.out_type();
  std::vector<TensorRef> made;
  if (auto turned = op == "add" && !in_place && options_.patterns ? known_rotary(in) : std::nullopt)
    made = {*turned};
  else if (auto norm = op == "mul" && !in_place && options_.patterns ? known_rms_norm(in) : std::nullopt)
    made = {*norm};
  else if (auto one = lower_pointwise(op, in, type))
    made = {*one};
  else if (auto views = lower_views(op, in))
    made = *views;
  else if (auto created = lower_made(op, in, type))
    made = {copies_ ? build_.dense(*created) : *created};
  else if (auto drawn = lower_random(op, in, type))
    made = {*drawn};
  else if (auto windows = lower_windows(op, in))
    made = *windows;
  else if (auto normal = lower_norms(op, in))
    made = {*normal};
  else if (auto layers = lower_layers(op, in))
    made = *layers;
  else if (auto scattered = lower_scatter(op, in))
    made = *scattered;
  else if (auto sampled = lower_sampling(op, in))
    made = *sampled;
  else if (auto indexed = lower_indexing(op, in))
    made = *indexed;
  else if (auto of_experts = lower_experts(op, in))
    made = {*of_experts};
  else if (auto loss = lower_losses(op, in))
    made = {*loss};
  else if (auto products = lower_algebra(op, in))
    made = *products;
  else if (auto composed = lower_composites(op, in))
    made = *composed;
  else
    Arguments::refuse("is not supported yet");
  // The program's own shapes are the truth; what differs is a mistake here.
  for (std::size_t i = 0; i < made.size() && i < node.outputs.size(); ++i) {
    if (!made[i].exists() || node.outputs[i].empty()) continue;
    const Dims expected = shape_of(node.outputs[i]);
    if (!(made[i].shape == expected))
      Arguments::refuse(fmt::format("gives {} here and {} in PyTorch", text_of(made[i].shape), text_of(expected)));
    const char wanted = type_of(node.outputs[i]);
    if ((made[i].type == 'f') != (wanted == 'f')) made[i] = cast(made[i], wanted);
    made[i].type = wanted;
  }
  if (in_place && !made.empty() && made[0].exists()) return {written(in.tensor(target), made[0])};
  return made;
}

// An op has written `made` into `self`: whatever else sees the same memory sees it too.
TensorRef Lowering::written(const TensorRef& self, TensorRef made) {
  if (self.value < 0) Arguments::refuse("changes a parameter");
  made = build_.dense(build_.read(build_.expand(made, self.shape)));
  if (made.value == self.value) made = build_.apply("$0", {"$g"}, {made}, self.type);  // a copy of itself
  const TensorRef whole = self.dense() ? made : build_.overwrite(self, made);
  for (auto& [name, other] : names_->tensors)
    if (other.value == self.value) other.value = whole.value;
  TensorRef result = self;
  result.value = whole.value;
  return result;
}

// A size that grows with the batch is the last of 0, 1, 2, ...
TensorRef Lowering::number_of(const Dim& size) {
  if (size.constant()) return build_.full({}, static_cast<double>(size.fixed), 'i');
  return build_.reshape(build_.slice(build_.arange(size + Dim(1), 0, 1, 'i'), 0, size, 1), {});
}

TensorRef Lowering::cast(const TensorRef& src, char type) {
  if (src.type == type) return src;
  if (type == 'b') return build_.apply("$0 != 0 ? 1 : 0", {""}, {src}, 'b');
  if (type == 'i' && src.type == 'b') {
    TensorRef out = src;
    out.type = 'i';
    return out;
  }
  return build_.apply(type == 'i' ? "(int)$0" : "(float)$0", {type == 'f' && src.type == 'f' ? "$g" : ""}, {src}, type);
}

}  // namespace ppengine::models
