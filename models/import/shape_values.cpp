// Values that follow from shapes alone: a small interpreter for the ops that masks and positions are made of.
#include <ppengine/models/import/shape_values.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/lowering.hpp>
#include <ppengine/models/import/stored.hpp>

namespace ppengine::models {
namespace {

using Known = ShapeValues::Known;
using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t batch = 2, most_elements = std::int64_t{1} << 26;
constexpr int most_depth = 500;

struct NotKnown {};

std::int64_t count(const Sizes& shape) { return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()); }

Sizes strides_in(const Sizes& shape, const Sizes& wide) {
  Sizes strides(wide.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i])
    if (shape[i] != 1) strides[wide.size() - shape.size() + i] = stride;
  return strides;
}

// body(places of the operands) for every element of the shape, last dimension fastest.
void walk(const Sizes& shape, const std::vector<Sizes>& strides, const std::function<void(const std::vector<std::int64_t>&)>& body) {
  if (count(shape) == 0) return;
  Sizes at(shape.size(), 0);
  std::vector<std::int64_t> places(strides.size(), 0);
  for (;;) {
    body(places);
    std::size_t d = shape.size();
    for (; d-- > 0;) {
      for (std::size_t k = 0; k < places.size(); ++k) places[k] += strides[k][d];
      if (++at[d] < shape[d]) break;
      for (std::size_t k = 0; k < places.size(); ++k) places[k] -= strides[k][d] * shape[d];
      at[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

Known elementwise(const std::vector<const Known*>& inputs, const Sizes& shape,
                  const std::function<float(const std::vector<float>&)>& value) {
  Known out{shape, {}, false};
  out.data.reserve(static_cast<std::size_t>(count(shape)));
  std::vector<Sizes> strides;
  for (const Known* one : inputs) {
    strides.push_back(strides_in(one->shape, shape));
    out.varies = out.varies || one->varies;
  }
  std::vector<float> arguments(inputs.size());
  walk(shape, strides, [&](const std::vector<std::int64_t>& places) {
    for (std::size_t k = 0; k < inputs.size(); ++k) arguments[k] = inputs[k]->data[static_cast<std::size_t>(places[k])];
    out.data.push_back(value(arguments));
  });
  return out;
}

const std::map<std::string, float (*)(float, float)>& binary() {
  static const std::map<std::string, float (*)(float, float)> table{
      {"add", [](float a, float b) { return a + b; }},
      {"sub", [](float a, float b) { return a - b; }},
      {"mul", [](float a, float b) { return a * b; }},
      {"eq", [](float a, float b) { return a == b ? 1.0f : 0.0f; }},
      {"ne", [](float a, float b) { return a != b ? 1.0f : 0.0f; }},
      {"lt", [](float a, float b) { return a < b ? 1.0f : 0.0f; }},
      {"le", [](float a, float b) { return a <= b ? 1.0f : 0.0f; }},
      {"gt", [](float a, float b) { return a > b ? 1.0f : 0.0f; }},
      {"ge", [](float a, float b) { return a >= b ? 1.0f : 0.0f; }},
      {"and", [](float a, float b) { return a != 0 && b != 0 ? 1.0f : 0.0f; }},
      {"or", [](float a, float b) { return a != 0 || b != 0 ? 1.0f : 0.0f; }},
  };
  return table;
}

// Names that mean the same for booleans.
std::string plain_name(const std::string& op) {
  static const std::map<std::string, std::string> table{{"__and__", "and"},     {"bitwise_and", "and"}, {"logical_and", "and"},
                                                        {"__or__", "or"},       {"bitwise_or", "or"},   {"logical_or", "or"},
                                                        {"bitwise_not", "not"}, {"logical_not", "not"}};
  const auto found = table.find(op);
  return found == table.end() ? op : found->second;
}

}  // namespace

const Known& ShapeValues::value_of(const Arguments& in, const char* argument) {
  const Known* const found = in.is_tensor(argument) ? find(in.first_name(argument)) : nullptr;
  if (!found) throw NotKnown{};
  return *found;
}

void ShapeValues::note_makers() {
  for (const ExportedNode& node : lowering_.program_.graph.nodes) {
    for (const std::string& output : node.outputs) makers_.emplace(output, &node);
    const std::string op = node.target.substr(0, node.target.rfind('.'));
    if (!op.ends_with("_") || op.ends_with("__")) continue;
    // What it changes, and whatever that may be a view of.
    for (const ExportedNode* at = &node; at && !at->arguments.empty() && !at->arguments[0].second.names.empty();) {
      const std::string& name = at->arguments[0].second.names[0];
      if (!overwritten_.insert(name).second) break;
      const auto maker = makers_.find(name);
      at = maker == makers_.end() ? nullptr : maker->second;
    }
  }
}

const Known* ShapeValues::find(const std::string& name) {
  if (makers_.empty()) note_makers();
  if (overwritten_.contains(name)) return nullptr;
  if (const auto found = known_.find(name); found != known_.end()) return found->second ? &*found->second : nullptr;
  std::optional<Known> made;
  ++depth_;
  try {
    if (const auto buffer = lowering_.buffers_.find(name); buffer != lowering_.buffers_.end()) {
      const StoredTensor& stored = lowering_.tensor_(buffer->second);
      if (static_cast<std::int64_t>(stored.elements) <= most_elements) made = Known{stored.shape, stored_floats(stored), false};
    } else if (const auto maker = makers_.find(name); maker != makers_.end() && depth_ < most_depth) {
      made = compute(*maker->second, name);
    }
  } catch (const NotKnown&) {
  } catch (const Lowering::Unknown&) {
  } catch (const Error&) {
  }
  --depth_;
  auto& kept = known_[name] = std::move(made);
  return kept ? &*kept : nullptr;
}

std::optional<Known> ShapeValues::compute(const ExportedNode& node, const std::string& name) {
  if (!node.target.starts_with("aten.")) return {};
  const std::string op = plain_name(node.target.substr(5, node.target.rfind('.') - 5));
  const Arguments in(lowering_, node);
  const Dims dims = lowering_.shape_of(name);
  const Sizes shape = at(dims, batch);
  const char type = lowering_.type_of(name);
  if (count(shape) > most_elements) return {};
  if (op == "arange") {
    Known out{shape, {}, !dims[0].constant()};
    const double start = in.number("start", 0.0), step = in.number("step", 1.0);
    for (std::int64_t i = 0; i < shape[0]; ++i) out.data.push_back(static_cast<float>(start + static_cast<double>(i) * step));
    return out;
  }
  const auto filled = [&](double value) {
    return Known{shape, std::vector<float>(static_cast<std::size_t>(count(shape)), static_cast<float>(value)), false};
  };
  if (op == "ones" || op == "new_ones" || op == "ones_like") return filled(1.0);
  if (op == "zeros" || op == "new_zeros" || op == "zeros_like") return filled(0.0);
  if (op == "full" || op == "new_full" || op == "full_like") return filled(in.number("fill_value", 0.0));
  if (op == "scalar_tensor") return filled(in.number("s", 0.0));
  const bool chooses = op == "where";
  const Known& self = value_of(in, chooses ? "condition" : in.has("self") ? "self" : "input");
  std::optional<Known> made = moved(op, in, self);
  if (!made) made = along(op, in, self);
  if (!made && op == "index") made = indexed(in, self);
  if (!made) made = joined(op, in, self);
  if (!made) return {};
  if (made->shape != shape) {
    if (count(made->shape) != count(shape)) return {};
    made->shape = shape;
  }
  if (type == 'b') std::ranges::for_each(made->data, [](float& one) { one = one != 0 ? 1.0f : 0.0f; });
  if (type == 'i') std::ranges::for_each(made->data, [](float& one) { one = std::trunc(one); });
  return made;
}

// Views and casts.
std::optional<Known> ShapeValues::moved(const std::string& op, const Arguments& in, Known value) {
  static const std::set<std::string> same{"view",       "reshape", "flatten", "unsqueeze", "squeeze", "_unsafe_view",    "alias",
                                          "contiguous", "clone",   "to",      "_to_copy",  "detach",  "lift_fresh_copy", "bool",
                                          "long",       "int"};
  const Sizes shape = at(in.out_shape(), batch);
  if (same.contains(op)) {
    value.shape = shape;
    return value;
  }
  if (op == "expand" || op == "expand_as" || op == "broadcast_to")
    return elementwise({&value}, shape, [](const std::vector<float>& v) { return v[0]; });
  const auto rank = static_cast<int>(value.shape.size());
  Sizes strides = strides_in(value.shape, value.shape);
  std::int64_t offset = 0;
  if (op == "slice" || op == "select") {
    const auto d = static_cast<std::size_t>(in.dim("dim", 0, rank));
    std::int64_t start = in.integer(op == "slice" ? "start" : "index", 0);
    if (start < 0) start = std::max<std::int64_t>(0, start + value.shape[d]);
    offset = std::min(start, value.shape[d]) * strides[d];
    if (op == "slice")
      strides[d] *= in.integer("step", 1);
    else
      strides.erase(strides.begin() + static_cast<long>(d));
  } else if (op == "transpose") {
    std::swap(strides[static_cast<std::size_t>(in.dim("dim0", 0, rank))], strides[static_cast<std::size_t>(in.dim("dim1", 1, rank))]);
  } else {
    return {};
  }
  Known out{shape, {}, value.varies};
  walk(shape, {strides},
       [&](const std::vector<std::int64_t>& places) { out.data.push_back(value.data[static_cast<std::size_t>(offset + places[0])]); });
  return out;
}

// Running sums, differences and triangles.
std::optional<Known> ShapeValues::along(const std::string& op, const Arguments& in, Known value) {
  const auto rank = static_cast<int>(value.shape.size());
  if (op == "tril" || op == "triu") {
    const std::int64_t rows = value.shape[value.shape.size() - 2], columns = value.shape.back(), diagonal = in.integer("diagonal", 0);
    for (std::size_t i = 0; i < value.data.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i), past = at % columns - at / columns % rows;
      if (op == "tril" ? past > diagonal : past < diagonal) value.data[i] = 0;
    }
    return value;
  }
  if ((op != "cumsum" && op != "diff") || rank == 0 || in.integer("n", 1) != 1 || in.has("append")) return {};
  const auto d = static_cast<std::size_t>(in.dim("dim", -1, rank));
  // Along the batch it tells samples apart.
  if (!in.out_shape()[d].constant()) value.varies = true;
  Known before;
  if (op == "diff" && in.has("prepend")) before = value_of(in, "prepend");
  const std::int64_t first = before.shape.empty() ? 0 : before.shape[d],
                     inner = count({value.shape.begin() + static_cast<long>(d) + 1, value.shape.end()});
  const std::int64_t outer = count({value.shape.begin(), value.shape.begin() + static_cast<long>(d)}), size = value.shape[d],
                     all = first + size;
  const auto at = [&](std::int64_t o, std::int64_t k, std::int64_t i) {
    return k < first ? before.data[static_cast<std::size_t>((o * first + k) * inner + i)]
                     : value.data[static_cast<std::size_t>((o * size + k - first) * inner + i)];
  };
  Known out{value.shape, {}, value.varies || before.varies};
  out.shape[d] = op == "diff" ? all - 1 : size;
  out.data.resize(static_cast<std::size_t>(count(out.shape)));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < out.shape[d]; ++k)
        out.data[static_cast<std::size_t>((o * out.shape[d] + k) * inner + i)] =
            op == "diff" ? at(o, k + 1, i) - at(o, k, i) : (sum += at(o, k, i));
    }
  return out;
}

// Arithmetic of one to three operands.
std::optional<Known> ShapeValues::joined(const std::string& op, const Arguments& in, const Known& first) {
  const Sizes shape = at(in.out_shape(), batch);
  const auto operand = [&](const char* name) {
    return in.is_tensor(name) ? value_of(in, name) : Known{{}, {static_cast<float>(in.number(name, 0.0))}, false};
  };
  if (op == "not") return elementwise({&first}, shape, [](const std::vector<float>& v) { return v[0] == 0 ? 1.0f : 0.0f; });
  if (op == "neg") return elementwise({&first}, shape, [](const std::vector<float>& v) { return -v[0]; });
  if (op == "where" || op == "masked_fill") {
    const Known second = operand(op == "where" ? "self" : "mask"), third = operand(op == "where" ? "other" : "value");
    if (op == "where")
      return elementwise({&first, &second, &third}, shape, [](const std::vector<float>& v) { return v[0] != 0 ? v[1] : v[2]; });
    return elementwise({&first, &second, &third}, shape, [](const std::vector<float>& v) { return v[1] != 0 ? v[2] : v[0]; });
  }
  const auto found = binary().find(op);
  if (found == binary().end() || in.number("alpha", 1.0) != 1.0) return {};
  const Known second = operand("other");
  return elementwise({&first, &second}, shape, [value = found->second](const std::vector<float>& v) { return value(v[0], v[1]); });
}

// table[indices...] with an index for each of its dimensions.
std::optional<Known> ShapeValues::indexed(const Arguments& in, const Known& table) {
  const ExportedArgument* const names = in.find("indices");
  if (!names || names->names.size() != table.shape.size()) return {};
  const Dims dims = lowering_.shape_of(in.first_name("self"));
  std::vector<const Known*> indices;
  Known out{at(in.out_shape(), batch), {}, table.varies};
  std::vector<Sizes> strides;
  for (std::size_t d = 0; d < names->names.size(); ++d) {
    const Known* const index = names->names[d].empty() ? nullptr : find(names->names[d]);
    if (!index || index->shape.size() > out.shape.size()) return {};
    // Of a table that is the same for every sample, each sample finds the same in its own row.
    if (index->varies && (dims[d].constant() || table.varies)) out.varies = true;
    indices.push_back(index);
    strides.push_back(strides_in(index->shape, out.shape));
  }
  bool inside = true;
  walk(out.shape, strides, [&](const std::vector<std::int64_t>& places) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      auto at = static_cast<std::int64_t>(indices[d]->data[static_cast<std::size_t>(places[d])]);
      if (at < 0) at += table.shape[d];
      inside = inside && at >= 0 && at < table.shape[d];
      place = place * table.shape[d] + at;
    }
    out.data.push_back(inside ? table.data[static_cast<std::size_t>(place)] : 0.0f);
  });
  if (!inside) return {};
  return out;
}

std::optional<MaskKind> mask_kind(const ShapeValues::Known& mask, bool boolean) {
  if (mask.varies || mask.shape.size() < 2 || mask.data.empty()) return {};
  const std::int64_t queries = mask.shape[mask.shape.size() - 2], keys = mask.shape.back();
  const auto seen = [&](std::size_t i) { return boolean ? mask.data[i] != 0 : mask.data[i] == 0; };
  for (std::size_t i = 0; !boolean && i < mask.data.size(); ++i)
    if (mask.data[i] != 0 && !(mask.data[i] <= -1e30f)) return {};
  // The last query of the first picture says which kind it can be; then all elements must agree.
  std::int64_t of_last = 0;
  for (std::int64_t k = 0; k < keys; ++k) of_last += seen(static_cast<std::size_t>((queries - 1) * keys + k)) ? 1 : 0;
  const bool all = seen(static_cast<std::size_t>(keys - 1)) && of_last == keys;
  if (!all && queries != keys) return {};
  const MaskKind kind{!all || (queries == keys && keys > 1 && !seen(static_cast<std::size_t>(keys - 1))), of_last == keys ? 0 : of_last};
  for (std::size_t i = 0; i < mask.data.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), key = at % keys, query = at / keys % queries;
    const bool expected = !kind.causal || (key <= query && (kind.window == 0 || query - key < kind.window));
    if (seen(i) != expected) return {};
  }
  return kind;
}

}  // namespace ppengine::models
