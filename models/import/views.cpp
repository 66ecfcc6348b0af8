// Views, and ops that move elements: no arithmetic.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

Dim from_end(const Dim& value, const Dim& size) { return value.constant() && value.fixed < 0 ? size + value : value; }
// Sizes are compared for a large batch.
std::int64_t large(const Dim& dim) { return dim.at(1000003); }

}  // namespace

std::optional<std::vector<TensorRef>> Lowering::lower_views(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  static const std::set<std::string> same{"alias",
                                          "contiguous",
                                          "detach_copy",
                                          "lift_fresh_copy",
                                          "lift_fresh",
                                          "clone",
                                          "positive",
                                          "pin_memory",
                                          "_to_copy",
                                          "to",
                                          "type_as",
                                          "float",
                                          "long",
                                          "bool",
                                          "int",
                                          "double",
                                          "view_as_real_copy",
                                          "expand_as_same",
                                          "requires_grad"};
  if (op == "clone" && copies_) return one(build_.apply("$0", {"$g"}, {in.tensor("self")}, in.out_type()));
  if (op == "copy") return one(build_.expand(cast(in.tensor("src"), in.out_type()), in.out_shape()));
  if (op == "broadcast_tensors") {
    std::vector<TensorRef> parts = in.tensors("tensors");
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = build_.expand(parts[i], in.out_shape(i));
    return parts;
  }
  if (same.contains(op)) return one(cast(in.tensor(in.has("self") ? "self" : "input"), in.out_type()));
  if (op == "detach") {
    const TensorRef x = build_.read(in.tensor("self"));
    if (!into_.graph->info(engine::Value(x.value)).needs_gradient) return one(x);
    return one(build_.apply("$0", {""}, {x}, x.type));
  }
  static const std::set<std::string> reshapes{"view",    "reshape",    "flatten", "unflatten",  "unsqueeze",  "squeeze",   "_unsafe_view",
                                              "view_as", "reshape_as", "ravel",   "atleast_1d", "atleast_2d", "atleast_3d"};
  if (reshapes.contains(op)) {
    if (op == "unsqueeze" || op == "squeeze") {  // also of views that are not dense
      TensorRef x = in.tensor("self");
      const Dims shape = in.out_shape();
      if (op == "unsqueeze") {
        const int d = in.dim("dim", 0, x.rank() + 1);
        x.shape.insert(x.shape.begin() + d, Dim(1));
        x.strides.insert(x.strides.begin() + d, Dim(0));
        return one(x);
      }
      return one(build_.reshape(x, shape));
    }
    return one(build_.reshape(in.tensor("self"), in.out_shape()));
  }
  if (op == "expand" || op == "expand_as" || op == "broadcast_to") return one(build_.expand(in.tensor("self"), in.out_shape()));
  if (op == "transpose" || op == "swapaxes" || op == "t" || op == "numpy_T" || op == "mT" || op == "mH" || op == "matrix_H" ||
      op == "adjoint" || op == "permute" || op == "movedim") {
    const TensorRef x = in.tensor("self");
    std::vector<int> order(static_cast<std::size_t>(x.rank()));
    std::iota(order.begin(), order.end(), 0);
    if (op == "permute") {
      order = in.dims("dims", x.rank());
    } else if (op == "numpy_T" || op == "t") {
      std::ranges::reverse(order);
    } else if (op == "mT" || op == "mH" || op == "matrix_H" || op == "adjoint") {
      if (x.rank() < 2) Arguments::refuse("has fewer than two dimensions");
      std::swap(order[order.size() - 1], order[order.size() - 2]);
    } else if (op == "movedim") {
      const auto from = in.dims("source", x.rank()), to = in.dims("destination", x.rank());
      std::vector<int> rest, moved(order.size(), -1);
      for (int d : order)
        if (std::ranges::find(from, d) == from.end()) rest.push_back(d);
      for (std::size_t i = 0; i < from.size() && i < to.size(); ++i) moved[static_cast<std::size_t>(to[i])] = from[i];
      std::size_t next = 0;
      for (int& d : moved)
        if (d < 0 && next < rest.size()) d = rest[next++];
      order = moved;
    } else if (x.rank() > 0) {
      std::swap(order[static_cast<std::size_t>(in.dim(in.has("dim0") ? "dim0" : "axis0", 0, x.rank()))],
                order[static_cast<std::size_t>(in.dim(in.has("dim1") ? "dim1" : "axis1", 1, x.rank()))]);
    }
    return one(build_.permute(x, order));
  }
  if (op == "slice") {
    const TensorRef x = in.tensor("self");
    const int d = in.dim("dim", 0, x.rank());
    const Dim size = x.shape[static_cast<std::size_t>(d)];
    Dim start = from_end(in.size("start", 0), size);
    if (large(start) < 0) start = 0;
    if (large(start) > large(size)) start = size;
    return one(build_.slice(x, d, start, in.out_shape()[static_cast<std::size_t>(d)], in.integer("step", 1)));
  }
  if (op == "narrow") {
    const TensorRef x = in.tensor("self");
    const int d = in.dim("dim", 0, x.rank());
    return one(build_.slice(x, d, from_end(in.size("start", 0), x.shape[static_cast<std::size_t>(d)]), in.size("length", 0)));
  }
  if (op == "select") {
    const TensorRef x = in.tensor("self");
    const int d = in.dim("dim", 0, x.rank());
    TensorRef cut = build_.slice(x, d, from_end(in.size("index", 0), x.shape[static_cast<std::size_t>(d)]), 1);
    cut.shape.erase(cut.shape.begin() + d);
    cut.strides.erase(cut.strides.begin() + d);
    return one(cut);
  }
  if (op == "split" || op == "split_with_sizes" || op == "chunk" || op == "tensor_split" || op == "unbind" || op == "unsafe_split" ||
      op == "unsafe_chunk" || op == "hsplit" || op == "vsplit") {
    const TensorRef x = in.tensor("self");
    const int d = op == "hsplit" && x.rank() > 1 ? 1 : in.dim("dim", 0, x.rank());
    std::vector<TensorRef> parts;
    Dim start = 0;
    for (std::size_t i = 0; i < in.node().outputs.size(); ++i) {
      const Dim size = op == "unbind" ? Dim(1) : in.out_shape(i)[static_cast<std::size_t>(d)];
      TensorRef part = build_.slice(x, d, start, size);
      if (op == "unbind") part.shape.erase(part.shape.begin() + d), part.strides.erase(part.strides.begin() + d);
      parts.push_back(part);
      start = start + size;
    }
    return parts;
  }
  if (op == "diagonal") {
    TensorRef x = in.tensor("self");
    const auto a = static_cast<std::size_t>(in.dim("dim1", 0, x.rank())), b = static_cast<std::size_t>(in.dim("dim2", 1, x.rank()));
    const std::int64_t off = in.integer("offset", 0);
    x.offset = x.offset + x.strides[off < 0 ? a : b] * Dim(off < 0 ? -off : off);
    const Dim size = in.out_shape().back(), stride = x.strides[a] + x.strides[b];
    for (const std::size_t d : {std::max(a, b), std::min(a, b)})
      x.shape.erase(x.shape.begin() + static_cast<long>(d)), x.strides.erase(x.strides.begin() + static_cast<long>(d));
    x.shape.push_back(size), x.strides.push_back(stride);
    return one(x);
  }
  if (op == "rot90") {
    TensorRef x = in.tensor("self");
    const auto dims = in.has("dims") ? in.dims("dims", x.rank()) : std::vector<int>{0, 1};
    if (dims.size() != 2) Arguments::refuse("turns in other than two dimensions");
    const auto a = static_cast<std::size_t>(dims[0]), b = static_cast<std::size_t>(dims[1]);
    for (std::int64_t turns = ((in.integer("k", 1) % 4) + 4) % 4; turns > 0;
         --turns) {  // the second dimension backwards, then both change places
      x.offset = x.offset + (x.shape[b] - Dim(1)) * x.strides[b];
      x.strides[b] = Dim(0) - x.strides[b];
      std::swap(x.shape[a], x.shape[b]), std::swap(x.strides[a], x.strides[b]);
    }
    return one(build_.apply("$0", {"$g"}, {x}, x.type));
  }
  if (op == "flip" || op == "fliplr" || op == "flipud") {
    TensorRef x = in.tensor("self");
    for (int d : op == "flip" ? in.dims("dims", x.rank()) : std::vector<int>{op == "fliplr" ? 1 : 0}) {
      const auto k = static_cast<std::size_t>(d);
      x.offset = x.offset + (x.shape[k] - Dim(1)) * x.strides[k];
      x.strides[k] = Dim(0) - x.strides[k];
    }
    return one(build_.apply("$0", {"$g"}, {x}, x.type));
  }
  if (op == "cat" || op == "concat" || op == "concatenate") {
    auto parts = in.tensors("tensors");
    for (TensorRef& part : parts) part = cast(part, in.out_type());
    return one(build_.cat(parts, in.dim("dim", 0, static_cast<int>(in.out_shape().size()))));
  }
  if (op == "stack") {
    auto parts = in.tensors("tensors");
    const int d = in.dim("dim", 0, static_cast<int>(in.out_shape().size()));
    for (TensorRef& part : parts) {
      part = cast(part, in.out_type());
      part.shape.insert(part.shape.begin() + d, Dim(1));
      part.strides.insert(part.strides.begin() + d, Dim(0));
    }
    return one(build_.cat(parts, d));
  }
  if (op == "constant_pad_nd" || op == "pad") {
    const TensorRef x = in.tensor("self");
    const std::string mode = in.text("mode", "constant");
    const auto given = in.integers("pad");
    if (mode != "constant") return one(pad_by_places(x, given, mode));
    std::vector<std::pair<std::int64_t, std::int64_t>> by_dim(static_cast<std::size_t>(x.rank()));
    for (std::size_t i = 0; 2 * i + 1 < given.size(); ++i) by_dim[by_dim.size() - 1 - i] = {given[2 * i], given[2 * i + 1]};
    return one(build_.pad(x, by_dim, in.number("value", 0.0)));
  }
  if (op.starts_with("reflection_pad") || op.starts_with("replication_pad"))
    return one(pad_by_places(in.tensor("self"), in.integers("padding"), op.starts_with("reflection") ? "reflect" : "replicate"));
  if (op == "repeat" || op == "tile") {
    TensorRef x = in.tensor("self");
    Dims times = in.sizes(op == "repeat" ? "repeats" : "dims");  // also as often as there are samples
    while (times.size() < x.shape.size()) times.insert(times.begin(), Dim(1));
    while (x.shape.size() < times.size()) x.shape.insert(x.shape.begin(), Dim(1)), x.strides.insert(x.strides.begin(), Dim(0));
    Dims wide, out;
    TensorRef split = x;
    split.shape.clear(), split.strides.clear();
    for (std::size_t i = 0; i < times.size(); ++i) {
      split.shape.insert(split.shape.end(), {Dim(1), x.shape[i]});
      split.strides.insert(split.strides.end(), {Dim(0), x.strides[i]});
      wide.insert(wide.end(), {times[i], x.shape[i]});
      out.push_back(x.shape[i] * times[i]);
    }
    return one(build_.reshape(build_.expand(split, wide), out));
  }
  if (op == "repeat_interleave") {
    TensorRef x = in.tensor("self");
    if (!in.has("dim")) x = build_.reshape(x, {count_of(x.shape)});
    if (in.is_tensor("repeats")) {  // each place of the result counts the sums of repeats that end before it
      if (!in.has("output_size")) Arguments::refuse("repeats by a tensor: give output_size");
      const int d = in.dim("dim", 0, x.rank());
      const Dim size = in.out_shape()[static_cast<std::size_t>(d)];
      const TensorRef ends = build_.cumulative_sum(build_.reshape(in.tensor("repeats"), {1, count_of(in.tensor("repeats").shape)}), 1);
      const TensorRef place = build_.reshape(build_.arange(size, 0, 1, 'i'), {size, 1});
      const TensorRef by = build_.sum(build_.apply("$1 <= $0 ? 1 : 0", {"", ""}, {place, ends}, 'i'), {1}, false);
      std::vector<std::optional<TensorRef>> indices(static_cast<std::size_t>(d) + 1);
      indices.back() = by;
      return one(index(x, indices));
    }
    const auto d = static_cast<std::size_t>(in.dim("dim", 0, x.rank()));
    Dims wide = x.shape, out = in.out_shape();
    x.shape.insert(x.shape.begin() + static_cast<long>(d) + 1, Dim(1)),
        x.strides.insert(x.strides.begin() + static_cast<long>(d) + 1, Dim(0));
    wide.insert(wide.begin() + static_cast<long>(d) + 1, in.size("repeats", 1));
    return one(build_.reshape(build_.expand(x, wide), out));
  }
  if (op == "roll") {
    TensorRef x = in.tensor("self");
    const auto shifts = in.integers("shifts");
    auto dims = in.dims("dims", x.rank());
    const Dims shape = x.shape;
    if (dims.empty()) x = build_.reshape(x, {count_of(shape)}), dims = {0};  // all elements in a row
    if (shifts.size() != dims.size()) Arguments::refuse("has another number of shifts than dimensions");
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const Dim size = x.shape[static_cast<std::size_t>(dims[i])];
      if (size.is(0)) continue;
      if (!size.constant()) {  // along the batch
        const std::string place = fmt::format("$0 - ({})", shifts[i] % std::int64_t{INT32_MAX});
        const TensorRef from =
            build_.apply(fmt::format("(({0}) % $1 + $1) % $1", place), {"", ""}, {build_.arange(size, 0, 1, 'i'), number_of(size)}, 'i');
        const auto at = x.shape.begin() + dims[i];
        const Dims rows{count_of({x.shape.begin(), at}), size, count_of({at + 1, x.shape.end()})};
        x = build_.reshape(build_.take(build_.reshape(x, rows), build_.reshape(from, {1, size, 1})), x.shape);
        continue;
      }
      const std::int64_t shift = ((shifts[i] % size.fixed) + size.fixed) % size.fixed;
      if (shift == 0) continue;
      x = build_.cat({build_.slice(x, dims[i], size.fixed - shift, shift), build_.slice(x, dims[i], 0, size.fixed - shift)}, dims[i]);
    }
    return one(build_.reshape(x, shape));
  }
  if (op == "unfold") {
    TensorRef x = in.tensor("self");
    const auto d = static_cast<std::size_t>(in.dim("dimension", 0, x.rank()));
    const std::int64_t size = in.integer("size", 1), step = in.integer("step", 1);
    const std::int64_t count = (x.shape[d].fixed - size) / step + 1;
    std::vector<TensorRef> windows;  // each a slice: gradients of places that overlap add up
    for (std::int64_t i = 0; i < count; ++i) {
      TensorRef window = build_.slice(x, static_cast<int>(d), i * step, size);
      std::vector<int> order;
      for (int k = 0; k < window.rank(); ++k)
        if (k != static_cast<int>(d)) order.push_back(k);
      order.push_back(static_cast<int>(d));
      window = build_.permute(window, order);
      window.shape.insert(window.shape.begin() + static_cast<long>(d), Dim(1));
      window.strides.insert(window.strides.begin() + static_cast<long>(d), Dim(0));
      windows.push_back(window);
    }
    return one(build_.cat(windows, static_cast<int>(d)));
  }
  if (op == "pixel_shuffle" || op == "pixel_unshuffle") {
    const TensorRef x = in.tensor("self");
    const std::size_t r = x.shape.size();
    if (r < 3) Arguments::refuse("of fewer than three dimensions");
    const Dim b = engine::count_of({x.shape.begin(), x.shape.end() - 3}), c = x.shape[r - 3], h = x.shape[r - 2], w = x.shape[r - 1];
    if (op == "pixel_shuffle") {
      const Dim f = in.integer("upscale_factor", 1);
      const TensorRef split = build_.reshape(x, {b, c / (f * f), f, f, h, w});
      return one(build_.reshape(build_.permute(split, {0, 1, 4, 2, 5, 3}), in.out_shape()));
    }
    const Dim f = in.integer("downscale_factor", 1);
    const TensorRef split = build_.reshape(x, {b, c, h / f, f, w / f, f});
    return one(build_.reshape(build_.permute(split, {0, 1, 3, 5, 2, 4}), in.out_shape()));
  }
  return {};
}

std::optional<TensorRef> Lowering::lower_made(const std::string& op, const Arguments& in, char type) {
  if (op == "arange") {
    const double start = in.number("start", 0.0), step = in.number("step", 1.0);
    return build_.arange(in.out_shape()[0], start, step, type);
  }
  if (op == "zeros" || op == "zeros_like" || op == "new_zeros" || op == "empty" || op == "empty_like" || op == "new_empty")
    return build_.full(in.out_shape(), 0.0, type);
  if (op == "ones" || op == "ones_like" || op == "new_ones") return build_.full(in.out_shape(), 1.0, type);
  if (op == "full" || op == "full_like" || op == "new_full") return build_.full(in.out_shape(), in.number("fill_value", 0.0), type);
  if (op == "zero") return build_.full(in.out_shape(), 0.0, type);
  if (op == "fill" && in.is_tensor("value")) return build_.expand(cast(in.tensor("value"), type), in.out_shape());
  if (op == "fill") return build_.full(in.out_shape(), in.number("value", 0.0), type);
  if (op == "scalar_tensor") return build_.full({}, in.number("s", 0.0), type);
  if (op == "linspace") {
    const double start = in.number("start", 0.0), end = in.number("end", 0.0);
    const Dim steps = in.out_shape()[0];
    if (!steps.constant()) Arguments::refuse("depends on the batch");
    return build_.arange(steps, start, steps.fixed > 1 ? (end - start) / static_cast<double>(steps.fixed - 1) : 0.0, type);
  }
  if (op == "tril_indices" || op == "triu_indices") {
    const std::int64_t rows = in.integer("row", 0), columns = in.integer("col", 0), offset = in.integer("offset", 0);
    std::vector<std::int32_t> first, second;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        if (op == "tril_indices" ? j - i <= offset : j - i >= offset)
          first.push_back(static_cast<std::int32_t>(i)), second.push_back(static_cast<std::int32_t>(j));
    first.insert(first.end(), second.begin(), second.end());
    return build_.constant(first, in.out_shape(), 'i');
  }
  if (op == "eye" || op == "tril" || op == "triu") {
    const Dims shape = in.out_shape();
    const Dim rows = shape[shape.size() - 2], columns = shape.back();
    TensorRef i = build_.arange(rows, 0, 1, 'i'), j = build_.arange(columns, 0, 1, 'i');
    i = build_.reshape(i, {rows, 1}), j = build_.reshape(j, {1, columns});
    if (op == "eye") return build_.apply("$0 == $1 ? 1 : 0", {"", ""}, {i, j}, type == 'f' ? 'f' : 'i');
    const std::string diagonal = std::to_string(in.integer("diagonal", 0));
    const std::string inside = op == "tril" ? "$2 - $1 <= " + diagonal : "$2 - $1 >= " + diagonal;
    return build_.apply(inside + " ? $0 : 0", {inside + " ? $g : 0.0f", "", ""}, {in.tensor("self"), i, j}, type);
  }
  return {};
}

}  // namespace ppengine::models
