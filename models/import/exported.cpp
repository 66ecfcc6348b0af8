// Reading an exported program: model.json and the tensors beside it.
#include <ppengine/models/import/exported.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

constexpr std::int64_t most = INT64_MAX / 16;
constexpr std::size_t max_rank = 16, max_nodes = 1'000'000;

ExportedSize size_at(const JsonPlace& place) {
  if (const auto number = place.find("as_int")) return {number->integer(-most, most), {}, number->integer(-most, most)};
  const JsonPlace expression = place.at("as_expr");
  ExportedSize size{0, expression.at("expr_str").string(), 0};
  if (size.expression.size() > 4096) expression.refuse("is too long");
  if (const auto hint = expression.find("hint"))
    if (const auto number = hint->find("as_int")) size.hint = number->integer(-most, most);
  return size;
}

ExportedArgument::Integer integer_at(const JsonPlace& place) {
  if (place.json().is_number_integer()) return {place.integer(INT64_MIN, INT64_MAX), {}};
  if (const auto number = place.find("as_int")) return {number->integer(INT64_MIN, INT64_MAX), {}};
  return {0, place.at("as_name").string()};
}

double number_at(const JsonPlace& place) {  // also as text: "inf", "-inf", "nan"
  if (!place.json().is_string()) return place.number(-INFINITY, INFINITY);
  const std::string& text = place.string();
  if (text == "inf" || text == "Infinity") return INFINITY;
  if (text == "-inf" || text == "-Infinity") return -INFINITY;
  return NAN;
}

ExportedGraph graph_at(const JsonPlace& place, int depth);

ExportedArgument argument_at(const JsonPlace& place, int depth) {
  using Kind = ExportedArgument::Kind;
  place.expect_object();
  ExportedArgument argument;
  if (place.size() != 1) place.refuse("must have one field");
  const std::string key = place.json().begin().key();
  const JsonPlace value = place.find(key.c_str()).value_or(place);
  const auto each = [&](auto&& body) {
    value.expect_array();
    for (std::size_t i = 0; i < value.size(); ++i) body(value.element(i));
  };
  if (key == "as_none") return argument;
  if (key == "as_tensor") {
    argument.kind = Kind::tensor;
    argument.names.push_back(value.at("name").string());
  } else if (key == "as_tensors") {
    argument.kind = Kind::tensors;
    each([&](const JsonPlace& one) { argument.names.push_back(one.at("name").string()); });
  } else if (key == "as_optional_tensor") {
    if (const auto tensor = value.find("as_tensor")) argument.kind = Kind::tensor, argument.names.push_back(tensor->at("name").string());
  } else if (key == "as_optional_tensors") {
    argument.kind = Kind::tensors;
    each([&](const JsonPlace& one) {
      const auto tensor = one.find("as_tensor");
      argument.names.push_back(tensor ? tensor->at("name").string() : "");
    });
  } else if (key == "as_int" || key == "as_sym_int") {
    argument.kind = Kind::integer;
    argument.integers.push_back(integer_at(value));
  } else if (key == "as_ints" || key == "as_sym_ints") {
    argument.kind = Kind::integers;
    each([&](const JsonPlace& one) { argument.integers.push_back(integer_at(one)); });
  } else if (key == "as_float") {
    argument.kind = Kind::number;
    argument.numbers.push_back(number_at(value));
  } else if (key == "as_floats") {
    argument.kind = Kind::numbers;
    each([&](const JsonPlace& one) { argument.numbers.push_back(number_at(one)); });
  } else if (key == "as_bool") {
    argument.kind = Kind::boolean;
    argument.boolean = value.boolean();
  } else if (key == "as_string") {
    argument.kind = Kind::text;
    argument.text = value.string();
  } else if (key == "as_scalar_type") {
    argument.kind = Kind::type;
    argument.integers.push_back({value.integer(0, 100), {}});
  } else if (key == "as_graph") {
    argument.kind = Kind::graph;
    argument.graph = std::make_shared<ExportedGraph>(graph_at(value.at("graph"), depth + 1));
  } else {
    argument.kind = Kind::other;
    argument.text = key;
  }
  return argument;
}

std::vector<std::string> names_at(const JsonPlace& list, int depth) {
  std::vector<std::string> names;
  list.expect_array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const ExportedArgument one = argument_at(list.element(i), depth);
    if (one.names.empty())
      names.push_back(one.integers.empty() ? "" : one.integers.front().name);
    else
      names.insert(names.end(), one.names.begin(), one.names.end());
  }
  return names;
}

// "L__self__,,Net;L__self__layers.0,layers.0,Block": the module that comes last.
std::string module_of(const std::string& stack) {
  const std::size_t last = stack.rfind(';') == std::string::npos ? 0 : stack.rfind(';') + 1;
  const std::size_t first = stack.find(',', last);
  if (first == std::string::npos) return "";
  const std::string module = stack.substr(first + 1, stack.find(',', first + 1) - first - 1);
  return module.starts_with("_empty_nn_module_stack") ? "" : module;
}

// The user's own line: the last of the trace that lies in no installed package, or the first.
std::string place_of(const std::string& trace) {
  std::string found;
  for (std::size_t at = trace.find("File \""); at != std::string::npos; at = trace.find("File \"", at)) {
    at += 6;
    const std::size_t end = trace.find('"', at), line = trace.find("line ", at);
    if (end == std::string::npos || line == std::string::npos) break;
    const std::string file = trace.substr(at, end - at);
    std::string number;
    for (std::size_t i = line + 5; i < trace.size() && std::isdigit(static_cast<unsigned char>(trace[i])); ++i) number += trace[i];
    if (found.empty() || file.find("site-packages") == std::string::npos) found = file + ":" + number;
  }
  return found;
}

ExportedGraph graph_at(const JsonPlace& place, int depth) {
  if (depth > 8) place.refuse("is nested too deeply");
  ExportedGraph graph;
  graph.inputs = names_at(place.at("inputs"), depth);
  graph.outputs = names_at(place.at("outputs"), depth);
  for (const auto& [name, json] : place.at("tensor_values").expect_object().json().items()) {
    const JsonPlace value(json, place.file(), place.place() + ".tensor_values." + name);
    ExportedValue& to = graph.values[name];
    to.type = static_cast<int>(value.at("dtype").integer(0, 100));
    const JsonPlace sizes = value.at("sizes").expect_array();
    if (sizes.size() > max_rank) sizes.refuse("has too many dimensions");
    for (std::size_t i = 0; i < sizes.size(); ++i) to.sizes.push_back(size_at(sizes.element(i)));
  }
  if (const auto integers = place.find("sym_int_values"))
    for (const auto& [name, json] : integers->expect_object().json().items())
      graph.integers[name] = size_at(JsonPlace(json, place.file(), integers->place() + "." + name));
  const JsonPlace nodes = place.at("nodes").expect_array();
  if (nodes.size() > max_nodes) nodes.refuse("has too many nodes");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const JsonPlace from = nodes.element(i);
    ExportedNode node;
    node.target = from.at("target").string();
    if (node.target.starts_with("torch.ops.")) node.target.erase(0, 10);
    const JsonPlace inputs = from.at("inputs").expect_array();
    for (std::size_t k = 0; k < inputs.size(); ++k)
      node.arguments.emplace_back(inputs.element(k).string_or("name", ""), argument_at(inputs.element(k).at("arg"), depth));
    node.outputs = names_at(from.at("outputs"), depth);
    if (const auto metadata = from.find("metadata")) {
      node.module = module_of(metadata->string_or("nn_module_stack", ""));
      node.place = place_of(metadata->string_or("stack_trace", ""));
    }
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

StoredType type_of(int torch_type) {
  switch (torch_type) {
    case 1:
      return StoredType::u8;
    case 2:
      return StoredType::i8;
    case 3:
      return StoredType::i16;
    case 4:
      return StoredType::i32;
    case 5:
      return StoredType::i64;
    case 6:
      return StoredType::f16;
    case 7:
      return StoredType::f32;
    case 8:
      return StoredType::f64;
    case 12:
      return StoredType::boolean;
    case 13:
      return StoredType::bf16;
    default:
      return StoredType::other;
  }
}

// Tensors of one of the two folders.
void read_tensors(ExportedProgram& program, const std::string& folder, const std::string& config, bool state) {
  if (!program.archive->has(folder + config)) return;
  const auto text = program.archive->at(folder + config);
  const std::string file = program.archive->path().string() + ":" + config;
  const nlohmann::json json = parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, file);
  const JsonPlace root(json, file), list = root.at("config").expect_object();
  for (const auto& [name, entry] : list.json().items()) {
    const JsonPlace place(entry, file, name);
    if (place.boolean_or("use_pickle", false)) place.refuse("is a pickle, which is never read: export the model with plain tensors");
    const JsonPlace meta = place.at("tensor_meta"), sizes = meta.at("sizes").expect_array(), strides = meta.at("strides").expect_array();
    StoredTensor tensor;
    tensor.name = name;
    tensor.file = program.archive->path().string();
    tensor.type = type_of(static_cast<int>(meta.at("dtype").integer(0, 100)));
    tensor.type_name = stored_type_name(tensor.type);
    const std::size_t element = stored_type_size(tensor.type);
    if (element == 0) place.refuse("has a type that is not supported");
    if (sizes.size() > max_rank || strides.size() != sizes.size()) sizes.refuse("does not fit its strides");
    std::vector<std::int64_t> steps;
    __int128 count = 1, last = size_at(meta.at("storage_offset")).number;
    const std::int64_t first = static_cast<std::int64_t>(last);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t size = size_at(sizes.element(i)).number, stride = size_at(strides.element(i)).number;
      if (size < 0 || stride < 0) sizes.refuse("is negative");
      tensor.shape.push_back(size), steps.push_back(stride);
      count *= size, last += static_cast<__int128>(std::max<std::int64_t>(size - 1, 0)) * stride;
      if (count > most || last > most) sizes.refuse("is too large");
    }
    const auto bytes = program.archive->at(folder + place.at("path_name").string());
    if (first < 0 || (count > 0 && (last + 1) * static_cast<__int128>(element) > static_cast<__int128>(bytes.size())))
      place.refuse("ends behind its bytes");
    tensor.elements = static_cast<std::size_t>(count);
    tensor.bytes = tensor.elements * element;
    tensor.data = bytes.data() + static_cast<std::size_t>(first) * element;
    std::int64_t expected = 1;
    bool dense = true;
    for (std::size_t i = sizes.size(); i-- > 0; expected *= tensor.shape[i])
      dense = dense && (tensor.shape[i] == 1 || steps[i] == expected);
    if (!dense && tensor.elements > 0) {
      std::vector<std::byte>& copy = program.copies[name];
      if (tensor.bytes > bytes.size() * 64) place.refuse("is much larger than its bytes");
      copy.resize(tensor.bytes);
      for (std::size_t i = 0; i < tensor.elements; ++i) {
        std::size_t rest = i, from = 0;
        for (std::size_t d = sizes.size(); d-- > 0;) {
          from += rest % static_cast<std::size_t>(tensor.shape[d]) * static_cast<std::size_t>(steps[d]);
          rest /= static_cast<std::size_t>(tensor.shape[d]);
        }
        std::memcpy(copy.data() + i * element, tensor.data + from * element, element);
      }
      tensor.data = copy.data();
    }
    if (state) program.state.push_back(name);
    if (state && place.boolean_or("is_param", false) && !meta.boolean_or("requires_grad", true)) program.frozen.insert(name);
    program.tensors.insert_or_assign(name, std::move(tensor));
  }
}

}  // namespace

std::shared_ptr<ExportedProgram> ExportedProgram::read(const std::filesystem::path& path) {
  auto program = std::make_shared<ExportedProgram>();
  program->archive = std::make_shared<Archive>(path);
  const auto text = program->archive->at("models/model.json");
  const std::string file = path.string() + ":model.json";
  const nlohmann::json json = parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, file, {.max_depth = 64});
  const JsonPlace root(json, file), version = root.at("schema_version");
  if (version.at("major").integer(0, 1000) != 8) version.refuse("is another than 8: export the model with torch 2.6 or newer");
  const JsonPlace module = root.at("graph_module"), signature = module.at("signature");
  program->graph = graph_at(module.at("graph"), 0);
  const JsonPlace inputs = signature.at("input_specs").expect_array(), outputs = signature.at("output_specs").expect_array();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const JsonPlace one = inputs.element(i);
    if (one.find("constant_input")) continue;  // None, or a number that the export has taken as it was
    ExportedInput input;
    using Kind = ExportedInput::Kind;
    if (const auto p = one.find("parameter")) {
      input = {Kind::parameter, p->at("arg").at("name").string(), p->at("parameter_name").string()};
    } else if (const auto b = one.find("buffer")) {
      input = {Kind::buffer, b->at("arg").at("name").string(), b->at("buffer_name").string(), b->boolean_or("persistent", true)};
    } else if (const auto c = one.find("tensor_constant")) {
      input = {Kind::constant, c->at("arg").at("name").string(), c->at("tensor_constant_name").string()};
    } else if (const auto u = one.find("user_input")) {
      const ExportedArgument argument = argument_at(u->at("arg"), 0);
      input = {argument.kind == ExportedArgument::Kind::tensor ? Kind::input : Kind::other, argument.names.empty() ? "" : argument.names[0],
               ""};
      input.name = input.value;
    } else {
      input.kind = Kind::other;
    }
    program->inputs.push_back(std::move(input));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (const auto user = outputs.element(i).find("user_output")) {
      const ExportedArgument argument = argument_at(user->at("arg"), 0);
      if (argument.kind == ExportedArgument::Kind::tensor) program->outputs.push_back(argument.names[0]);
    }
  if (const auto ranges = root.find("range_constraints"))
    for (const auto& [name, entry] : ranges->expect_object().json().items()) {
      const JsonPlace place(entry, file, "range_constraints." + name);
      program->ranges[name] = {place.integer_or("min_val", 0, INT64_MIN, INT64_MAX),
                               place.integer_or("max_val", INT64_MAX, INT64_MIN, INT64_MAX)};
    }
  read_tensors(*program, "data/weights/", "model_weights_config.json", true);
  read_tensors(*program, "data/constants/", "model_constants_config.json", false);
  std::map<std::pair<const std::byte*, std::vector<std::int64_t>>, std::string> first;
  const auto tie = [&](const std::string& name) {
    const auto tensor = program->tensors.find(name);
    if (tensor == program->tensors.end() || tensor->second.elements == 0) return;
    const auto [owner, fresh] = first.try_emplace({tensor->second.data, tensor->second.shape}, name);
    if (!fresh && owner->second != name) program->tied[name] = owner->second;
  };
  for (const ExportedInput& input : program->inputs)
    if (input.kind == ExportedInput::Kind::parameter) tie(input.name);
  for (const std::string& name : program->state) tie(name);  // names that the graph does not have
  return program;
}

}  // namespace ppengine::models
