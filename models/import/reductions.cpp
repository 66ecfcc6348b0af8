// Reductions, indexing, orders, and losses that programs compute themselves.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::Reduction;
using engine::number_text;

}  // namespace

// Elements by one index per leading dimension that is not left out, as PyTorch has it.
TensorRef Lowering::index(const TensorRef& given, const std::vector<std::optional<TensorRef>>& indices) {
  TensorRef src = build_.read(given);
  std::vector<int> by, others;
  for (int d = 0; d < src.rank(); ++d) (static_cast<std::size_t>(d) < indices.size() && indices[static_cast<std::size_t>(d)] ? by : others).push_back(d);
  if (by.empty()) return src;
  const bool together = by.back() - by.front() + 1 == static_cast<int>(by.size());
  const int place = together ? by.front() : 0;  // where the index's dimensions come to stand
  std::vector<int> order(others.begin(), others.begin() + place);
  order.insert(order.end(), by.begin(), by.end());
  order.insert(order.end(), others.begin() + place, others.end());
  Dims shape;
  for (int d : by) {
    const TensorRef& one = *indices[static_cast<std::size_t>(d)];
    if (one.type == 'b') Arguments::refuse("takes elements by a mask: how many depends on the data");
    shape = broadcast(shape, one.shape);
  }
  // One number for all indexed dimensions together.
  TensorRef flat;
  Dim along = 1;
  for (std::size_t i = by.size(); i-- > 0;) {
    const Dim size = src.shape[static_cast<std::size_t>(by[i])];
    const TensorRef one = *indices[static_cast<std::size_t>(by[i])];
    const TensorRef wide = size.constant() ? build_.full({}, static_cast<double>(size.fixed), 'i')
                                           : build_.reshape(build_.slice(build_.arange(size + Dim(1), 0, 1, 'i'), 0, size, 1), {});
    const TensorRef inside = build_.apply("$0 < 0 ? $0 + $1 : $0", {"", ""}, {one, wide}, 'i');
    const TensorRef step = along.constant() ? build_.full({}, static_cast<double>(along.fixed), 'i')
                                            : build_.reshape(build_.slice(build_.arange(along + Dim(1), 0, 1, 'i'), 0, along, 1), {});
    flat = flat.exists() ? build_.apply("$0 + $1 * $2", {"", "", ""}, {flat, inside, step}, 'i') : inside;
    along = along * size;
  }
  flat = build_.dense(build_.expand(flat, shape));
  const TensorRef turned = build_.permute(src, order);
  Dims before(turned.shape.begin(), turned.shape.begin() + place), behind(turned.shape.begin() + place + static_cast<long>(by.size()), turned.shape.end());
  const TensorRef taken = build_.take(build_.reshape(turned, {count_of(before), along, count_of(behind)}), build_.reshape(flat, {1, count_of(shape), 1}));
  Dims out = before;
  out.insert(out.end(), shape.begin(), shape.end());
  out.insert(out.end(), behind.begin(), behind.end());
  return build_.reshape(taken, out);
}

std::optional<std::vector<TensorRef>> Lowering::lower_indexing(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  const auto around = [&](const TensorRef& x, int d) {  // [before, along, behind]
    return Dims{count_of({x.shape.begin(), x.shape.begin() + d}), x.shape[static_cast<std::size_t>(d)], count_of({x.shape.begin() + d + 1, x.shape.end()})};
  };
  const auto gather = [&](const TensorRef& x, const TensorRef& by, int d) {
    TensorRef cut = x;  // other dimensions may be longer than the index's
    for (int i = 0; i < x.rank(); ++i)
      if (i != d && !(x.shape[static_cast<std::size_t>(i)] == by.shape[static_cast<std::size_t>(i)]))
        cut = build_.slice(cut, i, 0, by.shape[static_cast<std::size_t>(i)]);
    return build_.reshape(build_.take(build_.reshape(cut, around(cut, d)), build_.reshape(by, around(by, d))), by.shape);
  };
  if (op == "sum" || op == "mean" || op == "amax" || op == "amin" || op == "prod" || op == "any" || op == "all" ||
      ((op == "max" || op == "min") && !in.has("other") && in.node().outputs.size() < 2)) {
    TensorRef x = in.tensor("self");
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{};
    const bool keep = in.boolean("keepdim", false);
    if (op == "any" || op == "all") {
      const TensorRef flags = cast(cast(x, 'b'), 'i');
      return one(build_.reduce(flags, dims, keep, op == "any" ? Reduction::largest : Reduction::smallest));
    }
    x = cast(x, in.out_type() == 'f' ? 'f' : 'i');
    if (op == "mean") return one(build_.mean(x, dims, keep));
    if (op == "sum") return one(build_.sum(x, dims, keep));
    if (op == "prod") return one(build_.reduce(x, dims, keep, Reduction::product));
    return one(build_.reduce(x, dims, keep, op.ends_with("max") ? Reduction::largest : Reduction::smallest));
  }
  if ((op == "max" || op == "min") && in.has("other"))
    return one(build_.apply(op == "max" ? "$0 > $1 ? $0 : $1" : "$0 < $1 ? $0 : $1",
                            {op == "max" ? "$0 > $1 ? $g : $0 == $1 ? 0.5f * $g : 0.0f" : "$0 < $1 ? $g : $0 == $1 ? 0.5f * $g : 0.0f",
                             op == "max" ? "$1 > $0 ? $g : $0 == $1 ? 0.5f * $g : 0.0f" : "$1 < $0 ? $g : $0 == $1 ? 0.5f * $g : 0.0f"},
                            {in.tensor("self"), in.tensor("other")}, in.out_type()));
  if (op == "var" || op == "std" || op == "var_mean" || op == "std_mean") {
    const TensorRef x = cast(in.tensor("self"), 'f');
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{};
    const bool keep = in.boolean("keepdim", false);
    const double correction = in.has("correction") ? in.number("correction", 1.0) : in.boolean("unbiased", true) ? 1.0 : 0.0;
    std::vector<int> all = dims;
    if (all.empty()) {
      all.resize(static_cast<std::size_t>(x.rank()));
      std::iota(all.begin(), all.end(), 0);
    }
    Dim count = 1;
    for (int d : all) count = count * x.shape[static_cast<std::size_t>(d)];
    const TensorRef middle = build_.mean(x, all, true);
    const TensorRef centered = build_.apply("$0 - $1", {"$g", "-$g"}, {x, middle});
    TensorRef out = build_.sum(build_.apply("$0 * $0", {"2.0f * $g * $0"}, {centered}), all, keep);
    if (count.constant()) {
      const std::string scale = number_text(1.0 / (double(count.fixed) - correction));
      out = build_.apply("$0 * " + scale, {"$g * " + scale}, {out});
    } else {  // along the batch
      const TensorRef number = build_.reshape(build_.slice(build_.arange(count + Dim(1), 0, 1, 'i'), 0, count, 1), {});
      const std::string part = "((float)$1 - " + number_text(correction) + ")";
      out = build_.apply("$0 / " + part, {"$g / " + part, ""}, {out, number});
    }
    if (op.starts_with("std")) out = build_.apply("sycl::sqrt($0)", {"$g * 0.5f / $r"}, {out});
    std::vector<TensorRef> results{out};
    if (op.ends_with("_mean")) results.push_back(build_.reshape(middle, out.shape));
    return results;
  }
  if (op == "norm" || op == "linalg_vector_norm" || op == "frobenius_norm") {
    const TensorRef x = cast(in.tensor("self"), 'f');
    const double p = in.number(op == "norm" ? "p" : "ord", 2.0);
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{};
    const bool keep = in.boolean("keepdim", false);
    if (p == 1.0) return one(build_.sum(build_.apply("sycl::fabs($0)", {"$g * sign_of($0)"}, {x}), dims, keep));
    if (std::isinf(p)) return one(build_.reduce(build_.apply("sycl::fabs($0)", {"$g * sign_of($0)"}, {x}), dims, keep, p > 0 ? Reduction::largest : Reduction::smallest));
    if (p != 2.0) {
      const std::string order = number_text(p), less = number_text(p - 1.0), root = number_text(1.0 / p);
      const TensorRef powers = build_.apply(fmt::format("sycl::pow(sycl::fabs($0), {})", order), {fmt::format("$g * {} * sycl::pow(sycl::fabs($0), {}) * sign_of($0)", order, less)}, {x});
      return one(build_.apply(fmt::format("sycl::pow($0, {})", root), {fmt::format("$0 > 0 ? $g * {} * $r / $0 : 0.0f", root)}, {build_.sum(powers, dims, keep)}));
    }
    return one(build_.apply("sycl::sqrt($0)", {"$r > 0 ? $g * 0.5f / $r : 0.0f"}, {build_.sum(build_.apply("$0 * $0", {"2.0f * $g * $0"}, {x}), dims, keep)}));
  }
  if (op == "cosine_similarity" || op == "normalize") return {};
  if (op == "index") return one(index(in.tensor("self"), in.optional_tensors("indices")));
  if (op == "index_put") {  // by a mask over the leading dimensions
    const auto by = in.optional_tensors("indices");
    const TensorRef x = in.tensor("self"), values = in.tensor("values");
    if (by.size() != 1 || !by[0] || by[0]->type != 'b' || in.boolean("accumulate", false) || !count_of(values.shape).is(1)) Arguments::refuse("writes anything but one number where a mask is set");
    TensorRef mask = *by[0];
    while (mask.rank() < x.rank()) mask.shape.emplace_back(1), mask.strides.emplace_back(0);
    return one(build_.apply("$1 != 0 ? $2 : $0", {"$1 != 0 ? 0.0f : $g", "", "$1 != 0 ? $g : 0.0f"}, {x, mask, build_.reshape(cast(values, in.out_type()), {})}, in.out_type()));
  }
  if (op == "take_along_dim" && in.has("dim")) {
    const TensorRef x = build_.read(in.tensor("self")), by = in.tensor("indices");
    const int d = in.dim("dim", 0, x.rank());
    Dims wide = in.out_shape(), source = wide;
    source[static_cast<std::size_t>(d)] = x.shape[static_cast<std::size_t>(d)];
    return one(gather(build_.expand(x, source), build_.expand(by, wide), d));
  }
  if (op == "index_select") {
    const TensorRef x = in.tensor("self");
    std::vector<std::optional<TensorRef>> by(static_cast<std::size_t>(in.dim("dim", 0, x.rank())) + 1);
    by.back() = in.tensor("index");
    return one(index(x, by));
  }
  if (op == "scatter" || op == "scatter_add" || op == "index_add" || op == "index_copy" || op == "index_fill") {
    const TensorRef x = build_.read(in.tensor("self"));
    TensorRef by = in.tensor("index");
    if (in.has("reduce")) Arguments::refuse("reduces");
    const int d = in.dim("dim", 0, x.rank());
    const auto k = static_cast<std::size_t>(d);
    Dims along = x.shape;
    along[k] = count_of(by.shape);
    if (op.starts_with("index_")) {  // one list for all
      by = build_.reshape(by, {1, along[k], 1});
      TensorRef what = op == "index_fill" ? in.tensor("value") : in.tensor("source");
      if (op == "index_add" && in.number("alpha", 1.0) != 1.0) what = build_.apply("$0 * $1", {"$g * $1", ""}, {what, build_.full({}, in.number("alpha", 1.0), 'f')});
      what = build_.reshape(build_.expand(cast(what, in.out_type()), along), around(build_.expand(cast(what, in.out_type()), along), d));
      return one(build_.reshape(build_.put(build_.reshape(x, around(x, d)), by, what, op == "index_add"), x.shape));
    }
    for (int i = 0; i < x.rank(); ++i)
      if (i != d && !(x.shape[static_cast<std::size_t>(i)] == by.shape[static_cast<std::size_t>(i)])) Arguments::refuse("has an index of another shape");
    TensorRef what = build_.expand(cast(in.tensor(in.has("src") ? "src" : "value"), in.out_type()), by.shape);
    return one(build_.reshape(build_.put(build_.reshape(x, around(x, d)), build_.reshape(by, around(by, d)), build_.reshape(what, around(what, d)), op == "scatter_add"), x.shape));
  }
  if (op == "aminmax") {
    const TensorRef x = cast(in.tensor("self"), 'f');
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{};
    const bool keep = in.boolean("keepdim", false);
    return std::vector<TensorRef>{build_.reduce(x, dims, keep, Reduction::smallest), build_.reduce(x, dims, keep, Reduction::largest)};
  }
  if (op == "count_nonzero") {
    const TensorRef x = in.tensor("self");
    return one(build_.sum(cast(cast(x, 'b'), 'i'), in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{}, false));
  }
  if (op == "median" && in.node().outputs.size() > 1) {  // the lower of the two in the middle
    const TensorRef x = build_.read(in.tensor("self"));
    const int d = in.dim("dim", -1, x.rank());
    const Dim size = x.shape[static_cast<std::size_t>(d)];
    if (!size.constant()) Arguments::refuse("goes along the batch");
    const TensorRef by = build_.slice(build_.order(x, d, size, false), d, (size.fixed - 1) / 2, 1);
    return std::vector<TensorRef>{build_.reshape(gather(x, by, d), in.out_shape()), build_.reshape(by, in.out_shape())};
  }
  if (op == "gather") return one(gather(build_.read(in.tensor("self")), in.tensor("index"), in.dim("dim", 0, in.tensor("self").rank())));
  if (op == "cumsum") {
    const TensorRef x = cast(in.tensor("self"), in.out_type());
    return one(x.rank() == 0 ? x : build_.cumulative_sum(x, in.dim("dim", 0, x.rank())));
  }
  if (op == "diff") {
    TensorRef x = in.tensor("self");
    const int d = in.dim("dim", -1, x.rank());
    const auto k = static_cast<std::size_t>(d);
    std::vector<TensorRef> parts;
    if (in.has("prepend")) parts.push_back(in.tensor("prepend"));
    parts.push_back(x);
    if (in.has("append")) parts.push_back(in.tensor("append"));
    if (parts.size() > 1) x = build_.cat(parts, d);
    for (std::int64_t i = 0; i < in.integer("n", 1); ++i) {
      const Dim fewer = x.shape[k] - Dim(1);
      const TensorRef later = build_.slice(x, d, 1, fewer), before = build_.slice(x, d, 0, fewer);
      x = x.type == 'b' ? build_.apply("$0 != $1 ? 1 : 0", {"", ""}, {later, before}, 'b') : build_.apply("$0 - $1", {"$g", "-$g"}, {later, before}, x.type);
    }
    return one(x);
  }
  if (op == "argmax" || op == "argmin") {
    TensorRef x = in.tensor("self");
    if (!in.has("dim")) x = build_.reshape(x, {count_of(x.shape)});
    return one(build_.reshape(build_.order(x, in.dim("dim", 0, x.rank()), 1, op == "argmax"), in.out_shape()));
  }
  if (op == "topk" || op == "sort" || op == "argsort" || op == "max" || op == "min") {
    const TensorRef x = build_.read(in.tensor("self"));
    const bool picks = op == "max" || op == "min";
    const int d = in.dim("dim", -1, x.rank());
    const Dim k = picks ? Dim(1) : op == "topk" ? in.size("k", 1) : x.shape[static_cast<std::size_t>(d)];
    const bool largest = op == "topk" ? in.boolean("largest", true) : op == "max" || in.boolean("descending", false);
    const TensorRef by = build_.order(x, d, k, largest);
    if (op == "argsort") return one(by);
    const TensorRef values = gather(x, by, d);
    if (picks) return std::vector<TensorRef>{build_.reshape(values, in.out_shape()), build_.reshape(by, in.out_shape())};
    return std::vector<TensorRef>{values, by};
  }
  if (op == "one_hot") {
    const TensorRef x = in.tensor("self");
    const Dims shape = in.out_shape();
    Dims wide = x.shape;
    wide.emplace_back(1);
    return one(build_.apply("$0 == $1 ? 1 : 0", {"", ""}, {build_.reshape(x, wide), build_.arange(shape.back(), 0, 1, 'i')}, 'i'));
  }
  return {};
}

std::optional<TensorRef> Lowering::lower_losses(const std::string& op, const Arguments& in) {
  const std::int64_t reduction = in.integer("reduction", 1);  // 0: none, 1: mean, 2: sum
  const auto reduced = [&](const TensorRef& each) {
    return reduction == 0 ? each : reduction == 1 ? build_.mean(each, {}, false) : build_.sum(each, {}, false);
  };
  if (op == "mse_loss")
    return reduced(build_.apply("($0 - $1) * ($0 - $1)", {"2.0f * ($0 - $1) * $g", "-2.0f * ($0 - $1) * $g"}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "l1_loss")
    return reduced(build_.apply("sycl::fabs($0 - $1)", {"$g * sign_of($0 - $1)", "-$g * sign_of($0 - $1)"}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "smooth_l1_loss" || op == "huber_loss") {
    const bool smooth = op == "smooth_l1_loss";
    const double b = in.number(smooth ? "beta" : "delta", 1.0);
    const std::string beta = number_text(b), unit = number_text(smooth ? 1.0 / b : 1.0), slope = number_text(smooth ? 1.0 : b);
    const std::string gradient = fmt::format("(sycl::fabs($0 - $1) < {0} ? ($0 - $1) * {1} : sign_of($0 - $1) * {2}) * $g", beta, unit, slope);
    return reduced(build_.apply(fmt::format("sycl::fabs($0 - $1) < {0} ? 0.5f * ($0 - $1) * ($0 - $1) * {1} : {2} * (sycl::fabs($0 - $1) - 0.5f * {0})", beta, unit, slope),
                                {gradient, "-" + gradient}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  }
  if (op == "binary_cross_entropy_with_logits" && in.has("pos_weight")) {
    TensorRef each = build_.apply("(1.0f - $1) * $0 + (1.0f + ($2 - 1.0f) * $1) * (sycl::log1p(sycl::exp(-sycl::fabs($0))) + ($0 < 0 ? -$0 : 0.0f))",
                                  {"$g * ((1.0f - $1) - (1.0f + ($2 - 1.0f) * $1) * (1.0f - logistic($0)))", "", ""}, {in.tensor("self"), cast(in.tensor("target"), 'f'), in.tensor("pos_weight")});
    if (in.has("weight")) each = build_.apply("$0 * $1", {"$g * $1", ""}, {each, in.tensor("weight")});
    return reduced(each);
  }
  if (op == "binary_cross_entropy_with_logits" && in.has("weight"))
    return reduced(build_.apply("$2 * (($0 > 0 ? $0 : 0.0f) - $0 * $1 + sycl::log1p(sycl::exp(-sycl::fabs($0))))", {"$2 * (logistic($0) - $1) * $g", "", ""},
                                {in.tensor("self"), cast(in.tensor("target"), 'f'), in.tensor("weight")}));
  if (op == "binary_cross_entropy_with_logits")
    return reduced(build_.apply("($0 > 0 ? $0 : 0.0f) - $0 * $1 + sycl::log1p(sycl::exp(-sycl::fabs($0)))", {"(logistic($0) - $1) * $g", "-$0 * $g"},
                                {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "binary_cross_entropy" && !in.has("weight"))
    return reduced(build_.apply("-$1 * sycl::fmax(sycl::log($0), -100.0f) - (1.0f - $1) * sycl::fmax(sycl::log1p(-$0), -100.0f)",
                                {"$g * ($0 - $1) / sycl::fmax($0 * (1.0f - $0), 1e-12f)", ""}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "kl_div") {
    const bool log_target = in.boolean("log_target", false);
    return reduced(log_target ? build_.apply("sycl::exp($1) * ($1 - $0)", {"-sycl::exp($1) * $g", ""}, {in.tensor("self"), in.tensor("target")})
                              : build_.apply("$1 > 0 ? $1 * (sycl::log($1) - $0) : 0.0f", {"-$1 * $g", ""}, {in.tensor("self"), in.tensor("target")}));
  }
  if (op == "cross_entropy_loss" || op == "nll_loss" || op == "nll_loss_nd") {
    TensorRef x = in.tensor("self");
    const TensorRef target = in.tensor("target");
    const int d = x.rank() == 1 ? 0 : 1;
    if (op == "cross_entropy_loss") x = log_softmax(x, d);
    const double smoothing = in.number("label_smoothing", 0.0);
    if (target.type == 'f') {  // probabilities
      if (in.has("weight") || smoothing != 0.0) Arguments::refuse("has weights beside probabilities");
      const TensorRef each = build_.apply("-$0", {"-$g"}, {build_.sum(build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {x, target}), {d}, false)});
      return reduced(each);
    }
    const std::int64_t ignored = in.integer("ignore_index", -100);
    TensorRef by = target;
    by.shape.insert(by.shape.begin() + d, Dim(1)), by.strides.insert(by.strides.begin() + d, Dim(0));
    const std::string valid = fmt::format("$1 != {}", ignored);
    const TensorRef inside = build_.apply(fmt::format("$0 == {} ? 0 : $0", ignored), {""}, {by}, 'i');
    const Dims along{count_of({x.shape.begin(), x.shape.begin() + d}), x.shape[static_cast<std::size_t>(d)], count_of({x.shape.begin() + d + 1, x.shape.end()})};
    const TensorRef index = build_.reshape(inside, {along[0], 1, along[2]});
    TensorRef picked = build_.reshape(build_.take(build_.reshape(x, along), index), target.shape);
    TensorRef each = build_.apply(valid + " ? -$0 : 0.0f", {valid + " ? -$g : 0.0f", ""}, {picked, target});
    TensorRef counts = build_.apply(fmt::format("$0 != {} ? 1.0f : 0.0f", ignored), {""}, {target});
    if (in.has("weight")) {
      const TensorRef w = in.tensor("weight");
      const TensorRef of = build_.reshape(build_.take(build_.reshape(w, {1, w.shape[0], 1}), build_.reshape(inside, {1, count_of(inside.shape), 1})), target.shape);
      each = build_.apply("$0 * $1", {"$g * $1", ""}, {each, of});
      counts = build_.apply("$0 * $1", {"", ""}, {counts, of});
    }
    if (smoothing != 0.0) {
      if (in.has("weight")) Arguments::refuse("smooths labels with weights");
      const TensorRef rest = build_.apply(valid + " ? -$0 : 0.0f", {valid + " ? -$g : 0.0f", ""}, {build_.mean(x, {d}, false), target});
      const std::string a = number_text(1.0 - smoothing), b = number_text(smoothing);
      each = build_.apply(fmt::format("{} * $0 + {} * $1", a, b), {"$g * " + a, "$g * " + b}, {each, rest});
    }
    if (reduction == 0) return each;
    const TensorRef total = build_.sum(each, {}, false);
    if (reduction == 2) return total;
    return build_.apply("$0 / $1", {"$g / $1", ""}, {total, build_.sum(counts, {}, false)});
  }
  return {};
}

}  // namespace ppengine::models
