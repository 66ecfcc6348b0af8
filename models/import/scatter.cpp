// Taking and writing by index: indexing, index_put, scatter, bags of embeddings.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

constexpr const char* times = "$0 * $1";

std::vector<int> inverse(const std::vector<int>& order) {
  std::vector<int> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return back;
}

}  // namespace

TensorRef Lowering::size_value(const Dim& size) {
  if (size.constant()) return build_.full({}, static_cast<double>(size.fixed), 'i');
  return build_.reshape(build_.slice(build_.arange(size + Dim(1), 0, 1, 'i'), 0, size, 1), {});  // the last of 0, 1, 2, ...
}

Dims Lowering::Indexed::result() const {
  Dims out = before;
  out.insert(out.end(), shape.begin(), shape.end());
  out.insert(out.end(), behind.begin(), behind.end());
  return out;
}

Lowering::Indexed Lowering::indexed(const TensorRef& given, const std::vector<std::optional<TensorRef>>& indices) {
  const TensorRef src = build_.read(given);
  Indexed found;
  std::vector<int> by, others;
  for (int d = 0; d < src.rank(); ++d)
    (static_cast<std::size_t>(d) < indices.size() && indices[static_cast<std::size_t>(d)] ? by : others).push_back(d);
  if (by.empty()) Arguments::refuse("has no index");
  const bool together = by.back() - by.front() + 1 == static_cast<int>(by.size());
  const int place = together ? by.front() : 0;  // where the index's dimensions come to stand
  found.order.assign(others.begin(), others.begin() + place);
  found.order.insert(found.order.end(), by.begin(), by.end());
  found.order.insert(found.order.end(), others.begin() + place, others.end());
  for (int d : by) {
    const TensorRef& one = *indices[static_cast<std::size_t>(d)];
    if (one.type == 'b') Arguments::refuse("takes elements by a mask: how many depends on the data");
    found.shape = broadcast(found.shape, one.shape);
  }
  for (std::size_t i = by.size(); i-- > 0;) {
    const Dim size = src.shape[static_cast<std::size_t>(by[i])];
    const TensorRef inside =
        build_.apply("$0 < 0 ? $0 + $1 : $0", {"", ""}, {*indices[static_cast<std::size_t>(by[i])], size_value(size)}, 'i');
    found.flat =
        found.flat.exists() ? build_.apply("$0 + $1 * $2", {"", "", ""}, {found.flat, inside, size_value(found.along)}, 'i') : inside;
    found.along = found.along * size;
  }
  found.flat = build_.dense(build_.expand(found.flat, found.shape));
  found.turned = build_.permute(src, found.order);
  const auto first = found.turned.shape.begin() + place, last = first + static_cast<long>(by.size());
  found.before.assign(found.turned.shape.begin(), first), found.behind.assign(last, found.turned.shape.end());
  return found;
}

// Elements by one index per leading dimension that is not left out, as PyTorch has it.
TensorRef Lowering::index(const TensorRef& src, const std::vector<std::optional<TensorRef>>& indices) {
  if (std::ranges::none_of(indices, [](const auto& one) { return one.has_value(); })) return build_.read(src);
  const Indexed at = indexed(src, indices);
  const TensorRef from = build_.reshape(at.turned, {count_of(at.before), at.along, count_of(at.behind)});
  return build_.reshape(build_.take(from, build_.reshape(at.flat, {1, count_of(at.shape), 1})), at.result());
}

TensorRef Lowering::index_put(const TensorRef& src, const std::vector<std::optional<TensorRef>>& indices, const TensorRef& values,
                              bool add) {
  const auto first = std::ranges::find_if(indices, [](const auto& one) { return one.has_value(); });
  if (first != indices.end() && (*first)->type == 'b') {  // where a mask is set: what does not depend on how often that is
    TensorRef mask = **first, value = values;
    const bool alone = std::none_of(first + 1, indices.end(), [](const auto& one) { return one.has_value(); });
    const int behind = src.rank() - static_cast<int>(first - indices.begin()) - mask.rank();
    while (value.rank() > 0 && value.shape[0].is(1)) value.shape.erase(value.shape.begin()), value.strides.erase(value.strides.begin());
    if (!alone || add || behind < 0 || value.rank() > behind)
      Arguments::refuse("writes as many elements as a mask has set, which depends on the data");
    for (int i = 0; i < behind; ++i) mask.shape.emplace_back(1), mask.strides.emplace_back(0);
    return build_.apply("$1 != 0 ? $2 : $0", {"$1 != 0 ? 0.0f : $g", "", "$1 != 0 ? $g : 0.0f"}, {src, mask, value}, src.type);
  }
  const Indexed at = indexed(src, indices);
  const Dim before = count_of(at.before), many = count_of(at.shape), behind = count_of(at.behind);
  const TensorRef base = build_.reshape(at.turned, {before, at.along, behind}),
                  what = build_.reshape(build_.expand(build_.read(values), at.result()), {before, many, behind});
  const TensorRef made = build_.put(base, build_.reshape(at.flat, {1, many, 1}), what, add);
  return build_.permute(build_.reshape(made, at.turned.shape), inverse(at.order));
}

TensorRef Lowering::gather(const TensorRef& src, const TensorRef& by, int dim) {
  TensorRef cut = build_.read(src);  // other dimensions may be longer than the index's
  for (int i = 0; i < cut.rank(); ++i)
    if (const auto k = static_cast<std::size_t>(i); i != dim && !(cut.shape[k] == by.shape[k])) cut = build_.slice(cut, i, 0, by.shape[k]);
  return build_.reshape(build_.take(build_.reshape(cut, around(cut, dim)), build_.reshape(by, around(by, dim))), by.shape);
}

// how: "" puts values, "sum", "mean", "amax" and "amin" join them with what is there (include_self) or among themselves.
TensorRef Lowering::scatter(const TensorRef& src, const TensorRef& index, int dim, const TensorRef& given, const std::string& how,
                            bool include_self) {
  TensorRef part = build_.dense(build_.read(src));  // other dimensions may be longer than the index's
  const TensorRef whole = part;
  for (int i = 0; i < part.rank(); ++i)
    if (const auto k = static_cast<std::size_t>(i); i != dim && !(part.shape[k] == index.shape[k]))
      part = build_.slice(part, i, 0, index.shape[k]);
  TensorRef values = build_.read(given);
  for (int i = 0; i < values.rank(); ++i)
    if (const auto k = static_cast<std::size_t>(i); !(values.shape[k] == index.shape[k]) && !values.shape[k].is(1))
      values = build_.slice(values, i, 0, index.shape[k]);
  values = build_.expand(values, index.shape);
  const Dims lines = around(part, dim);
  const TensorRef by = build_.reshape(index, around(index, dim)), what = build_.reshape(values, around(values, dim));
  TensorRef base = build_.reshape(part, lines), made;
  const auto put = [&](const TensorRef& to, const TensorRef& from, bool add) { return build_.put(to, by, from, add); };
  const auto numbers = [&](const Dims& shape, double value) { return build_.dense(build_.full(shape, value, 'f')); };
  if (!how.empty() && how != "sum" && base.type != 'f') Arguments::refuse(fmt::format("reduces integers by {}", how));
  if (!include_self && !how.empty())
    base = put(base, build_.dense(build_.full(what.shape, how == "amax" ? -INFINITY : how == "amin" ? INFINITY : 0.0, base.type)), false);
  if (how.empty() || how == "sum") {
    made = put(base, what, how == "sum");
  } else if (how == "mean") {
    TensorRef counts = numbers(lines, 1.0);
    if (!include_self) counts = put(counts, numbers(what.shape, 0.0), false);
    counts = build_.apply("$0 > 1.0f ? $0 : 1.0f", {""}, {put(counts, numbers(what.shape, 1.0), true)});
    made = build_.apply("$0 / $1", {"$g / $1", ""}, {put(base, what, true), counts});
  } else if (how == "amax" || how == "amin") {
    // All elements that equal the result share its gradient: the result is the mean of them.
    const TensorRef most = build_.put_extreme(base, by, what, how == "amax");
    const auto equal = [&](const TensorRef& x, const TensorRef& y) { return build_.apply("$0 == $1 ? 1.0f : 0.0f", {"", ""}, {x, y}); };
    const TensorRef own = equal(base, most), others = equal(what, build_.take(most, by)), count = put(own, others, true);
    const auto share = [&](const TensorRef& x, const TensorRef& wanted, const TensorRef& among) {
      return build_.apply("$1 > 0 ? $0 / $2 : 0.0f", {"$1 > 0 ? $g / $2 : 0.0f", "", ""}, {x, wanted, among});
    };
    made = put(share(base, own, count), share(what, others, build_.take(count, by)), true);
  } else {
    Arguments::refuse(fmt::format("reduces by {}", how));
  }
  made = build_.reshape(made, part.shape);
  if (part.shape == whole.shape) return made;
  return build_.reshape(build_.overwrite(part, build_.dense(made)), whole.shape);
}

TensorRef Lowering::embedding_bag(const Arguments& in) {
  const TensorRef table = in.tensor("weight"), ids = in.tensor("indices");
  const std::int64_t mode = in.integer("mode", 0), padding = in.integer("padding_idx", -1);  // 0: sum, 1: mean, 2: max
  const Dims out = in.out_shape();
  const Dim bags = out[0], width = table.shape[1], many = count_of(ids.shape);
  TensorRef rows = build_.reshape(build_.embedding(build_.reshape(ids, {many}), table, padding), {many, width});
  TensorRef valid = build_.apply(fmt::format("$0 == {} ? 0.0f : 1.0f", padding), {""}, {build_.reshape(ids, {many, 1})});
  if (in.has("per_sample_weights"))
    rows = build_.apply(times, {"$g * $1", "$g * $0"}, {rows, build_.reshape(in.tensor("per_sample_weights"), {many, 1})});
  // Bags of one size, which is what a matrix of ids becomes: offsets that are a range with that step.
  const auto maker = std::ranges::find_if(
      names_->graph->nodes, [&](const ExportedNode& node) { return !node.outputs.empty() && node.outputs[0] == in.first_name("offsets"); });
  Dim each = 0;
  if (maker != names_->graph->nodes.end() && maker->target.starts_with("aten.arange.")) {
    const Arguments range(*this, *maker);
    const std::int64_t step = range.integer("step", 1);
    if (range.number("start", 0.0) == 0.0 && bags * Dim(step) == many) each = step;
  }
  const auto counted = [&](const TensorRef& sums, const TensorRef& counts) {
    return mode == 0 ? sums : build_.apply("$1 > 0 ? $0 / $1 : 0.0f", {"$1 > 0 ? $g / $1 : 0.0f", ""}, {sums, counts});
  };
  const auto kept = [&] { return build_.apply(times, {"$g * $1", ""}, {rows, valid}); };
  if (!each.is(0)) {
    const Dims split{bags, each, width}, thin{bags, each, 1};
    if (mode < 2)
      return build_.reshape(
          counted(build_.sum(build_.reshape(kept(), split), {1}, false), build_.sum(build_.reshape(valid, thin), {1}, false)), out);
    const TensorRef all = build_.reshape(
        padding < 0 ? rows : build_.apply("$1 > 0 ? $0 : -__builtin_inff()", {"$1 > 0 ? $g : 0.0f", ""}, {rows, valid}), split);
    return build_.reshape(gather(all, build_.order(all, 1, 1, true), 1), out);
  }
  if (mode == 2) Arguments::refuse("takes the largest of bags whose sizes depend on the data");
  const TensorRef numbers = build_.reshape(build_.bag_numbers(build_.slice(in.tensor("offsets"), 0, 0, bags), many), {1, many, 1});
  const auto total = [&](const TensorRef& src, const Dim& wide) {
    return build_.reshape(
        build_.put(build_.dense(build_.full({1, bags, wide}, 0.0, 'f')), numbers, build_.reshape(src, {1, many, wide}), true),
        {bags, wide});
  };
  return counted(total(kept(), width), total(valid, 1));
}

std::optional<std::vector<TensorRef>> Lowering::lower_scatter(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  if (op == "embedding_bag" || op == "_embedding_bag") return one(embedding_bag(in));
  if (op == "index_put" || op == "_unsafe_index_put")
    return one(index_put(in.tensor("self"), in.optional_tensors("indices"), cast(in.tensor("values"), in.out_type()),
                         in.boolean("accumulate", false)));
  if (op == "take") {
    const TensorRef x = in.tensor("self"), by = in.tensor("index");
    return one(build_.reshape(build_.take(build_.reshape(x, {1, count_of(x.shape), 1}), build_.reshape(by, {1, count_of(by.shape), 1})),
                              by.shape));
  }
  if (op == "index_add" || op == "index_copy" || op == "index_fill") {  // one list for all
    const TensorRef x = build_.read(in.tensor("self"));
    const int d = in.dim("dim", 0, x.rank());
    const Dim many = count_of(in.tensor("index").shape);
    Dims along = x.shape;
    along[static_cast<std::size_t>(d)] = many;
    TensorRef what = cast(op == "index_fill" ? in.tensor("value") : in.tensor("source"), in.out_type());
    if (op == "index_add" && in.number("alpha", 1.0) != 1.0)
      what = build_.apply(times, {"$g * $1", ""}, {what, build_.full({}, in.number("alpha", 1.0), 'f')});
    what = build_.expand(what, along);
    const TensorRef made = build_.put(build_.reshape(x, around(x, d)), build_.reshape(in.tensor("index"), {1, many, 1}),
                                      build_.reshape(what, around(what, d)), op == "index_add");
    return one(build_.reshape(made, x.shape));
  }
  if (op == "scatter" || op == "scatter_add" || op == "scatter_reduce") {
    const TensorRef x = in.tensor("self");
    std::string how = op == "scatter_add" ? "sum" : in.text("reduce", "");
    if (how == "add") how = "sum";
    return one(scatter(x, in.tensor("index"), in.dim("dim", 0, x.rank()), cast(in.tensor(in.has("src") ? "src" : "value"), in.out_type()),
                       how, in.boolean("include_self", true)));
  }
  if (op == "select_scatter" || op == "slice_scatter") {
    const TensorRef x = build_.dense(build_.read(in.tensor("self")));
    const int d = in.dim("dim", 0, x.rank());
    const Dim size = x.shape[static_cast<std::size_t>(d)];
    const auto from_end = [&](const Dim& value) { return value.constant() && value.fixed < 0 ? size + value : value; };
    TensorRef src = cast(in.tensor("src"), in.out_type());
    if (op == "select_scatter") src.shape.insert(src.shape.begin() + d, Dim(1)), src.strides.insert(src.strides.begin() + d, Dim(0));
    const TensorRef view = op == "select_scatter" ? build_.slice(x, d, from_end(in.size("index", 0)), 1)
                                                  : build_.slice(x, d, from_end(in.size("start", 0)),
                                                                 src.shape[static_cast<std::size_t>(d)], in.integer("step", 1));
    return one(build_.reshape(build_.overwrite(view, build_.dense(build_.read(build_.expand(src, view.shape)))), x.shape));
  }
  if (op == "masked_scatter") Arguments::refuse("writes as many elements as a mask has set, which depends on the data");
  if (op == "isin") {
    TensorRef elements = in.tensor("elements");
    const TensorRef test = in.tensor("test_elements");
    elements.shape.emplace_back(1), elements.strides.emplace_back(0);
    const bool invert = in.boolean("invert", false);
    const TensorRef equal = build_.apply("$0 == $1 ? 1 : 0", {"", ""}, {elements, build_.reshape(test, {count_of(test.shape)})}, 'i');
    const TensorRef any = build_.reduce(equal, {equal.rank() - 1}, false, engine::Reduction::largest);
    return one(invert ? build_.apply("$0 == 0 ? 1 : 0", {""}, {any}, 'b') : any);
  }
  if (op == "bucketize" || op == "searchsorted") {  // how many boundaries come before
    TensorRef x = in.tensor("self");
    const TensorRef limits = in.tensor(op == "bucketize" ? "boundaries" : "sorted_sequence");
    if (limits.rank() != 1) Arguments::refuse("has boundaries of more than one dimension");
    const bool right = in.boolean("right", false) || in.text("side", "left") == "right";
    x = build_.read(x);
    x.shape.emplace_back(1), x.strides.emplace_back(0);
    const TensorRef before = build_.apply(right ? "$1 <= $0 ? 1 : 0" : "$1 < $0 ? 1 : 0", {"", ""}, {x, limits}, 'i');
    return one(build_.sum(before, {before.rank() - 1}, false));
  }
  return {};
}

}  // namespace ppengine::models
