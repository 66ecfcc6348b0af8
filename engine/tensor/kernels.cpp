// Writing kernels: loops over rows of the iteration, lanes over its innermost dimension.
#include <ppengine/engine/tensor/kernels.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {
namespace {

using Sizes = std::vector<std::int64_t>;

const char* type_text(char type) { return type == 'i' ? "int" : "float"; }

std::int64_t product(const Sizes& sizes) {
  std::int64_t count = 1;
  for (std::int64_t one : sizes) count *= one;
  return count;
}

// Joins neighbours that every operand walks as one, within [begin, end) of the dimensions; drops dimensions of one.
void collapse(Sizes& dims, std::vector<Access*> operands, std::size_t begin, std::size_t& end) {
  const auto erase = [&](std::size_t i) {
    dims.erase(dims.begin() + static_cast<long>(i));
    for (Access* one : operands) one->strides.erase(one->strides.begin() + static_cast<long>(i));
    --end;
  };
  for (std::size_t i = begin; i < end;) {
    if (dims[i] == 1) {
      erase(i);
      continue;
    }
    const bool joins = i + 1 < end && std::ranges::all_of(operands, [&](const Access* one) {
                         return one->strides[i] == one->strides[i + 1] * dims[i + 1];
                       });
    if (!joins) {
      ++i;
      continue;
    }
    dims[i + 1] *= dims[i];
    erase(i);
  }
}

// Numbers of a launch, given out one after the other.
class NumberList {
 public:
  std::string add(std::int64_t value) {
    if (used_ >= ops::KernelNumbers::capacity) throw Error("a generated kernel has too many operands");
    numbers.n[used_] = value;
    return fmt::format("q.n[{}]", used_++);
  }
  ops::KernelNumbers numbers;

 private:
  int used_ = 0;
};

// "long x0 = ..." from a row number, last dimension fastest; the dimensions' numbers were added by the caller.
std::string coordinates(const std::string& prefix, const std::string& from, const std::vector<std::string>& dims) {
  std::string text;
  if (dims.size() == 1) return fmt::format("const long {}0 = {};\n", prefix, from);
  text += fmt::format("long {}_ = {};\n", prefix, from);
  for (std::size_t d = dims.size(); d-- > 0;) {
    if (d == 0)
      text += fmt::format("const long {}0 = {}_;\n", prefix, prefix);
    else
      text += fmt::format("const long {0}{1} = {0}_ % {2}; {0}_ /= {2};\n", prefix, d, dims[d]);
  }
  return text;
}

std::string base_of(NumberList& list, const Access& one, const std::string& prefix, std::size_t from, std::size_t count) {
  std::string text;
  for (std::size_t d = 0; d < count; ++d)
    if (one.strides[from + d] != 0) text += fmt::format(" + {}{} * {}", prefix, d, list.add(one.strides[from + d]));
  return text;
}

// "a0[j]": one element along the innermost dimension.
std::string element(NumberList& list, const std::string& pointer, std::int64_t stride) {
  if (stride == 0) return pointer + "[0]";
  if (stride == 1) return pointer + "[j]";
  return fmt::format("{}[j * {}]", pointer, list.add(stride));
}

struct Grid {
  std::size_t groups, size;
  std::int64_t per;
};

Grid grid_of(const ops::Device& device, std::int64_t units, std::int64_t lanes_wanted) {
  if (units == 0) return {0, 1, 1};
  if (device.info().is_cpu) {
    const std::int64_t groups = std::min<std::int64_t>(units, std::int64_t{device.info().compute_units} * 4);
    const std::int64_t per = (units + groups - 1) / groups;
    return {static_cast<std::size_t>((units + per - 1) / per), 16, per};
  }
  std::size_t size = 32;
  while (size < 256 && static_cast<std::int64_t>(size) < lanes_wanted) size *= 2;
  return {static_cast<std::size_t>(units), std::min(size, static_cast<std::size_t>(device.info().max_work_group)), 1};
}

std::string pointer_list(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format("void* p{}, ", i);
  return text;
}

constexpr const char* head =
    "  const auto item = item_1d(); const long lane = item.get_local_id(0), lanes = item.get_local_range(0);\n"
    "  const long first = item.get_group(0) * q.n[1], last = lesser(first + q.n[1], q.n[0]);\n";

std::int64_t smallest_stride(const std::vector<Access>& inputs, std::size_t dim) {
  std::int64_t found = 0;
  for (const Access& one : inputs)
    if (one.strides[dim] != 0) found = found == 0 ? std::abs(one.strides[dim]) : std::min(found, std::abs(one.strides[dim]));
  return found == 0 ? INT64_MAX : found;
}

}  // namespace

Launch make_map(const Kernels& kernels, MapSpec spec) {
  std::vector<Access*> operands;
  for (Access& one : spec.inputs) operands.push_back(&one);
  for (Access& one : spec.outputs) operands.push_back(&one);
  const bool empty = product(spec.dims) == 0;
  std::size_t end = spec.dims.size();
  if (empty) {
    spec.dims.assign(1, 0), end = 1;
    for (Access* one : operands) one->strides.assign(1, 0);
  } else {
    collapse(spec.dims, operands, 0, end);
  }
  if (spec.dims.empty()) {
    spec.dims.push_back(1);
    for (Access* one : operands) one->strides.push_back(1);
  }
  const std::size_t outer = spec.dims.size() - 1;
  const std::int64_t inner = spec.dims.back();
  const std::int64_t rows = product({spec.dims.begin(), spec.dims.end() - 1});
  const std::int64_t chunk = std::max<std::int64_t>(1, std::min<std::int64_t>(inner, 2048)), chunks = (inner + chunk - 1) / chunk;
  const std::int64_t units = rows * chunks;
  const Grid grid = grid_of(kernels->device(), units, inner);
  NumberList list;
  list.add(units), list.add(grid.per);
  const std::string inner_text = list.add(inner), chunk_text = list.add(chunk), chunks_text = list.add(chunks);
  std::vector<std::string> dims;
  for (std::size_t d = 0; d < outer; ++d) dims.push_back(list.add(spec.dims[d]));
  std::string bases, loads, stores;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const Access& one = *operands[k];
    const bool in = k < spec.inputs.size();
    const std::size_t number = in ? k : k - spec.inputs.size();
    const char* type = type_text(one.type);
    bases += fmt::format("    {}{}* {}{} = ({}*)p{} + {}{};\n", in ? "const " : "", type, in ? "a" : "o", number, type, k,
                         list.add(one.offset), base_of(list, one, "x", 0, outer));
    const std::string at = element(list, fmt::format("{}{}", in ? "a" : "o", number), one.strides.back());
    if (in)
      loads += fmt::format("      const {} v{} = {};\n", type, number, at);
    else
      stores += fmt::format("      {} = r{};\n", at, number);
  }
  std::string declared;
  for (std::size_t k = 0; k < spec.outputs.size(); ++k) declared += fmt::format("      {} r{};\n", type_text(spec.outputs[k].type), k);
  std::string text = fmt::format("KERNEL_1D NAME({}Numbers q) {{\n{}  const float s = q.f[1];\n  for (long u = first; u < last; ++u) {{\n",
                                 pointer_list(operands.size()), head);
  text += fmt::format("    const long row = u / {0}, begin = (u - row * {0}) * {1}, finish = lesser(begin + {1}, {2});\n", chunks_text,
                      chunk_text, inner_text);
  if (outer > 0) text += coordinates("x", "row", dims);
  text += bases + "    for (long j = begin + lane; j < finish; j += lanes) {\n" + loads + declared + spec.code + stores + "    }\n  }\n}\n";
  return {kernels, kernels->add(text), grid.groups, grid.size, list.numbers};
}

Launch make_reduce(const Kernels& kernels, ReduceSpec spec) {
  Sizes dims = spec.kept;
  dims.insert(dims.end(), spec.reduced.begin(), spec.reduced.end());
  std::size_t kept = spec.kept.size();
  const std::int64_t outputs = product(spec.kept);
  std::vector<Access*> operands;
  Access out{0, {}, spec.type};  // its dense strides must survive joins of kept dimensions
  out.strides.assign(dims.size(), 0);
  for (std::int64_t d = static_cast<std::int64_t>(kept) - 1, stride = 1; d >= 0; --d)
    out.strides[static_cast<std::size_t>(d)] = stride, stride *= dims[static_cast<std::size_t>(d)];
  for (Access& one : spec.inputs) operands.push_back(&one);
  operands.push_back(&out);
  const bool empty = product(dims) == 0;
  if (!empty) {
    std::size_t end = dims.size();
    collapse(dims, operands, kept, end);
    std::size_t kept_end = kept;
    collapse(dims, operands, 0, kept_end);
    kept = kept_end;
  }
  if (dims.size() == kept) {  // nothing is left to reduce: one element
    dims.push_back(1);
    for (Access* one : operands) one->strides.push_back(0);
  }
  const std::size_t reduced = dims.size() - kept;
  const bool across = kept > 0 && smallest_stride(spec.inputs, kept - 1) < smallest_stride(spec.inputs, dims.size() - 1);
  const char *type = type_text(spec.type), *start = "0", *join = "acc + x", *group = "sycl::plus<>()";
  if (spec.what == Reduction::largest)
    start = spec.type == 'i' ? "-2147483647 - 1" : "-__builtin_inff()", join = "(acc > x || acc != acc) ? acc : x",
    group = "sycl::maximum<>()";
  if (spec.what == Reduction::smallest)
    start = spec.type == 'i' ? "2147483647" : "__builtin_inff()", join = "(acc < x || acc != acc) ? acc : x", group = "sycl::minimum<>()";
  if (spec.what == Reduction::product) start = "1", join = "acc * x", group = "sycl::multiplies<>()";
  const std::string scaled = spec.type == 'f' ? "acc * q.f[0]" : "acc";
  NumberList list;
  std::string text = fmt::format("KERNEL_1D NAME({}Numbers q) {{\n{}", pointer_list(spec.inputs.size() + 1), head), bases, loads;
  const auto pointer = [&](std::size_t k) { return fmt::format("a{}", k); };
  std::vector<std::string> kept_dims, reduced_dims;
  Grid grid{};
  if (across) {  // lanes over the innermost kept dimension, each with its own sum
    const std::int64_t inner = dims[kept - 1], chunk = std::min<std::int64_t>(std::max<std::int64_t>(inner, 1), 64);
    const std::int64_t chunks = (inner + chunk - 1) / chunk, units = inner == 0 ? 0 : outputs / inner * chunks;
    grid = grid_of(kernels->device(), units, chunk);
    list.add(units), list.add(grid.per);
    const std::string inner_text = list.add(inner), chunk_text = list.add(chunk), chunks_text = list.add(chunks);
    std::int64_t points = 1;
    for (std::size_t d = kept; d < dims.size(); ++d) points *= dims[d];
    const std::string points_text = list.add(points);
    for (std::size_t d = 0; d + 1 < kept; ++d) kept_dims.push_back(list.add(dims[d]));
    for (std::size_t d = kept; d < dims.size(); ++d) reduced_dims.push_back(list.add(dims[d]));
    std::string moves;
    for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
      const Access& one = spec.inputs[k];
      bases += fmt::format("    const {0}* b{1} = (const {0}*)p{1} + {2}{3};\n", type_text(one.type), k, list.add(one.offset),
                           base_of(list, one, "x", 0, kept - 1));
      moves += fmt::format("        const {0}* a{1} = b{1}{2};\n", type_text(one.type), k, base_of(list, one, "y", kept, reduced));
      loads += fmt::format("        const {} v{} = {};\n", type_text(one.type), k, element(list, pointer(k), one.strides[kept - 1]));
    }
    text += "  for (long u = first; u < last; ++u) {\n";
    text += fmt::format("    const long row = u / {0}, begin = (u - row * {0}) * {1}, finish = lesser(begin + {1}, {2});\n", chunks_text,
                        chunk_text, inner_text);
    if (kept > 1) text += coordinates("x", "row", kept_dims);
    text += bases + fmt::format("    for (long j = begin + lane; j < finish; j += lanes) {{\n      {} acc = {};\n", type, start);
    text += fmt::format("      for (long m = 0; m < {}; ++m) {{\n", points_text) + coordinates("y", "m", reduced_dims) + moves + loads +
            spec.code +
            fmt::format("\n        acc = {};\n      }}\n      (({}*)p{})[row * {} + j] = {};\n    }}\n  }}\n}}\n", join, type,
                        spec.inputs.size(), inner_text, scaled);
  } else {  // lanes over the innermost reduced dimension, joined at the end of each output
    grid = grid_of(kernels->device(), outputs, dims.back());
    list.add(outputs), list.add(grid.per);
    const std::string inner_text = list.add(dims.back());
    std::int64_t rows = 1;
    for (std::size_t d = kept; d + 1 < dims.size(); ++d) rows *= dims[d];
    const std::string rows_text = list.add(rows);
    for (std::size_t d = 0; d < kept; ++d) kept_dims.push_back(list.add(dims[d]));
    for (std::size_t d = kept; d + 1 < dims.size(); ++d) reduced_dims.push_back(list.add(dims[d]));
    std::string moves;
    for (std::size_t k = 0; k < spec.inputs.size(); ++k) {
      const Access& one = spec.inputs[k];
      bases += fmt::format("    const {0}* b{1} = (const {0}*)p{1} + {2}{3};\n", type_text(one.type), k, list.add(one.offset),
                           base_of(list, one, "x", 0, kept));
      moves += fmt::format("      const {0}* a{1} = b{1}{2};\n", type_text(one.type), k, base_of(list, one, "y", kept, reduced - 1));
      loads += fmt::format("        const {} v{} = {};\n", type_text(one.type), k, element(list, pointer(k), one.strides.back()));
    }
    text += "  for (long u = first; u < last; ++u) {\n";
    if (kept > 0) text += coordinates("x", "u", kept_dims);
    text += bases + fmt::format("    {} acc = {};\n    for (long m = 0; m < {}; ++m) {{\n", type, start, rows_text);
    if (reduced > 1) text += coordinates("y", "m", reduced_dims);
    text += moves + fmt::format("      for (long j = lane; j < {}; j += lanes) {{\n", inner_text) + loads + spec.code +
            fmt::format("\n        acc = {};\n      }}\n    }}\n", join);
    text += fmt::format("    acc = sycl::reduce_over_group(item.get_group(), acc, {});\n    if (lane == 0) (({}*)p{})[u] = {};\n  }}\n}}\n",
                        group, type, spec.inputs.size(), scaled);
  }
  list.numbers.f[0] = spec.scale;
  return {kernels, kernels->add(text), grid.groups, grid.size, list.numbers};
}

Launch make_loop(const Kernels& kernels, std::int64_t count, int pointers, const std::string& body,
                 const std::vector<std::int64_t>& numbers) {
  const std::int64_t chunk = 64, units = (count + chunk - 1) / chunk;
  const Grid grid = grid_of(kernels->device(), units, chunk);
  ops::KernelNumbers list;
  list.n[0] = units, list.n[1] = grid.per, list.n[2] = count;
  PPENGINE_ASSERT(numbers.size() + 16 <= static_cast<std::size_t>(ops::KernelNumbers::capacity));
  std::ranges::copy(numbers, list.n + 16);
  const std::string text = fmt::format(
      "KERNEL_1D NAME({}Numbers q) {{\n{}  for (long u = first; u < last; ++u)\n    for (long i = u * 64 + lane, loop_end = lesser(u * 64 "
      "+ 64, q.n[2]); "
      "i < loop_end; i += lanes) {{\n{}\n    }}\n}}\n",
      pointer_list(static_cast<std::size_t>(pointers)), head, body);
  return {kernels, kernels->add(text), grid.groups, grid.size, list};
}

}  // namespace ppengine::engine
