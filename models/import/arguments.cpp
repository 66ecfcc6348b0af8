// A node's arguments by name.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

using Kind = ExportedArgument::Kind;

void Arguments::refuse(const std::string& reason) { throw Lowering::Unknown{reason}; }

const ExportedArgument* Arguments::find(const char* name) const {
  for (const auto& [key, argument] : node_.arguments)
    if (key == name && argument.kind != Kind::none) return &argument;
  return nullptr;
}

bool Arguments::has(const char* name) const { return find(name) != nullptr; }
bool Arguments::is_tensor(const char* name) const {
  const ExportedArgument* argument = find(name);
  return argument && argument->kind == Kind::tensor;
}
std::string Arguments::first_name(const char* name) const {
  const ExportedArgument* argument = find(name);
  return argument && !argument->names.empty() ? argument->names[0] : "";
}

Dim Arguments::dim_of(const ExportedArgument::Integer& one) const {
  if (one.name.empty()) return {one.value};
  const auto found = lowering_.names_->graph->integers.find(one.name);
  if (found != lowering_.names_->graph->integers.end()) return lowering_.dim_of(found->second);
  const auto outer = lowering_.program_.graph.integers.find(one.name);
  if (outer == lowering_.program_.graph.integers.end()) refuse(fmt::format("uses the integer {}, which depends on data", one.name));
  return lowering_.dim_of(outer->second);
}

TensorRef Arguments::tensor_or_none(const char* name) const {
  const ExportedArgument* argument = find(name);
  if (!argument) return {};
  if (argument->kind != Kind::tensor) return tensor(name);
  const std::string& value = argument->names[0];
  lowering_.read_state(value);
  const auto found = lowering_.names_->tensors.find(value);
  if (found != lowering_.names_->tensors.end()) return found->second;
  if (const auto buffer = lowering_.buffers_.find(value); buffer != lowering_.buffers_.end()) {
    const auto& counters = lowering_.into_.counters;
    if (std::ranges::find(counters, buffer->second) != counters.end())
      refuse(fmt::format("reads the counter {}, which the program changes", buffer->second));
    return lowering_.stored_constant(buffer->second);
  }
  refuse(fmt::format("reads '{}', which nothing before it makes", value));
}

TensorRef Arguments::tensor(const char* name) const {
  const ExportedArgument* argument = find(name);
  if (!argument) refuse(fmt::format("has no argument '{}'", name));
  switch (argument->kind) {
    case Kind::tensor:
      return tensor_or_none(name);
    case Kind::number:
      return lowering_.build_.full({}, argument->numbers[0], 'f');
    case Kind::boolean:
      return lowering_.build_.full({}, argument->boolean ? 1.0 : 0.0, 'b');
    case Kind::integer:
      return lowering_.number_of(dim_of(argument->integers[0]));
    default:
      refuse(fmt::format("has an argument '{}' that is not supported", name));
  }
}

std::vector<std::optional<TensorRef>> Arguments::optional_tensors(const char* name) const {
  std::vector<std::optional<TensorRef>> list;
  const ExportedArgument* argument = find(name);
  if (!argument) return list;
  for (const std::string& one : argument->names) {
    if (one.empty()) {
      list.emplace_back();
      continue;
    }
    lowering_.read_state(one);
    const auto found = lowering_.names_->tensors.find(one);
    if (found != lowering_.names_->tensors.end())
      list.emplace_back(found->second);
    else if (const auto buffer = lowering_.buffers_.find(one); buffer != lowering_.buffers_.end())
      list.emplace_back(lowering_.stored_constant(buffer->second));
    else
      refuse(fmt::format("reads '{}', which nothing before it makes", one));
  }
  return list;
}

std::vector<TensorRef> Arguments::tensors(const char* name) const {
  std::vector<TensorRef> list;
  for (auto& one : optional_tensors(name)) {
    if (!one) refuse(fmt::format("has an argument '{}' with nothing in it", name));
    list.push_back(*one);
  }
  return list;
}

std::optional<double> Arguments::number(const char* name) const {
  const ExportedArgument* argument = find(name);
  if (!argument) return {};
  if (argument->kind == Kind::number) return argument->numbers[0];
  if (argument->kind == Kind::boolean) return argument->boolean ? 1.0 : 0.0;
  if (argument->kind == Kind::integer && argument->integers[0].name.empty()) return static_cast<double>(argument->integers[0].value);
  if (argument->kind == Kind::integer && dim_of(argument->integers[0]).constant())
    return static_cast<double>(dim_of(argument->integers[0]).fixed);
  refuse(fmt::format("has an argument '{}' that is no plain number", name));
}
double Arguments::number(const char* name, double otherwise) const { return number(name).value_or(otherwise); }

std::optional<Dim> Arguments::size(const char* name) const {
  const ExportedArgument* argument = find(name);
  if (!argument) return {};
  if (argument->kind == Kind::number) return Dim(static_cast<std::int64_t>(argument->numbers[0]));
  if (argument->kind != Kind::integer) refuse(fmt::format("has an argument '{}' that is no integer", name));
  return dim_of(argument->integers[0]);
}
Dim Arguments::size(const char* name, const Dim& otherwise) const { return size(name).value_or(otherwise); }

Dims Arguments::sizes(const char* name) const {
  Dims list;
  if (const ExportedArgument* argument = find(name))
    for (const auto& one : argument->integers) list.push_back(dim_of(one));
  return list;
}

std::vector<std::int64_t> Arguments::integers(const char* name) const {
  std::vector<std::int64_t> list;
  for (const Dim& one : sizes(name)) {
    if (!one.constant()) refuse(fmt::format("has an argument '{}' that depends on the batch", name));
    list.push_back(one.fixed);
  }
  return list;
}

std::int64_t Arguments::integer(const char* name, std::int64_t otherwise) const {
  const Dim value = size(name, Dim(otherwise));
  if (!value.constant()) refuse(fmt::format("has an argument '{}' that depends on the batch", name));
  return value.fixed;
}

bool Arguments::boolean(const char* name, bool otherwise) const {
  const ExportedArgument* argument = find(name);
  return argument && argument->kind == Kind::boolean ? argument->boolean : otherwise;
}

std::string Arguments::text(const char* name, const std::string& otherwise) const {
  const ExportedArgument* argument = find(name);
  return argument && argument->kind == Kind::text ? argument->text : otherwise;
}

int Arguments::dim(const char* name, int otherwise, int rank) const {
  const std::int64_t given = integer(name, otherwise);
  const std::int64_t value = given < 0 ? given + std::max(rank, 1) : given;
  if (value < 0 || value >= std::max(rank, 1)) refuse(fmt::format("has a dimension {} of {}", given, rank));
  return static_cast<int>(value);
}

std::vector<int> Arguments::dims(const char* name, int rank) const {
  std::vector<int> list;
  const ExportedArgument* argument = find(name);
  if (!argument) return list;
  for (std::int64_t one : integers(name)) {
    const std::int64_t value = one < 0 ? one + rank : one;
    if (value < 0 || value >= std::max(rank, 1)) refuse(fmt::format("has a dimension {} of {}", one, rank));
    if (rank > 0) list.push_back(static_cast<int>(value));
  }
  return list;
}

Dims Arguments::out_shape(std::size_t i) const { return lowering_.shape_of(node_.outputs.at(i)); }
char Arguments::out_type(std::size_t i) const {
  for (; i < node_.outputs.size(); ++i)
    if (lowering_.names_->graph->values.contains(node_.outputs[i])) return lowering_.type_of(node_.outputs[i]);
  return 'f';
}

}  // namespace ppengine::models
