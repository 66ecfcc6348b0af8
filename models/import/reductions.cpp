// Reductions, indexing, orders, and losses that programs compute themselves.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::number_text;
using engine::Reduction;

}  // namespace

std::optional<std::vector<TensorRef>> Lowering::lower_indexing(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
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
    if (op.starts_with("std")) out = build_.apply("sycl::sqrt($0)", {"$r > 0 ? $g * 0.5f / $r : 0.0f"}, {out});
    std::vector<TensorRef> results{out};
    if (op.ends_with("_mean")) results.push_back(build_.reshape(middle, out.shape));
    return results;
  }
  if (op == "norm" || op == "linalg_vector_norm" || op == "frobenius_norm") {
    const TensorRef x = cast(in.tensor("self"), 'f');
    const double p = in.number(op == "norm" ? "p" : "ord", 2.0);
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{};
    const bool keep = in.boolean("keepdim", false);
    if (p == 0.0) return one(build_.sum(build_.apply("$0 != 0 ? 1.0f : 0.0f", {""}, {x}), dims, keep));
    if (p == 1.0) return one(build_.sum(build_.apply("sycl::fabs($0)", {"$g * sign_of($0)"}, {x}), dims, keep));
    if (std::isinf(p))
      return one(build_.reduce(build_.apply("sycl::fabs($0)", {"$g * sign_of($0)"}, {x}), dims, keep,
                               p > 0 ? Reduction::largest : Reduction::smallest));
    if (p != 2.0) {
      const std::string order = number_text(p), less = number_text(p - 1.0), root = number_text(1.0 / p);
      const TensorRef powers = build_.apply(fmt::format("sycl::pow(sycl::fabs($0), {})", order),
                                            {fmt::format("$g * {} * sycl::pow(sycl::fabs($0), {}) * sign_of($0)", order, less)}, {x});
      return one(build_.apply(fmt::format("sycl::pow($0, {})", root), {fmt::format("$0 > 0 ? $g * {} * $r / $0 : 0.0f", root)},
                              {build_.sum(powers, dims, keep)}));
    }
    return one(build_.apply("sycl::sqrt($0)", {"$r > 0 ? $g * 0.5f / $r : 0.0f"},
                            {build_.sum(build_.apply("$0 * $0", {"2.0f * $g * $0"}, {x}), dims, keep)}));
  }
  if (op == "cosine_similarity" || op == "normalize") return {};
  if (op == "index") return one(index(in.tensor("self"), in.optional_tensors("indices")));
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
  if (op == "median" || op == "kthvalue") {  // of two in the middle the lower
    TensorRef x = build_.read(in.tensor("self"));
    if (in.node().outputs.size() < 2) x = build_.reshape(x, {count_of(x.shape)});
    const int d = in.dim("dim", -1, x.rank());
    const Dim size = x.shape[static_cast<std::size_t>(d)];
    if (!size.constant()) Arguments::refuse("goes along the batch");
    const TensorRef by =
        build_.slice(build_.order(x, d, size, false), d, op == "median" ? (size.fixed - 1) / 2 : in.integer("k", 1) - 1, 1);
    return std::vector<TensorRef>{build_.reshape(gather(x, by, d), in.out_shape()), build_.reshape(by, in.out_shape())};
  }
  if (op == "quantile" && !in.is_tensor("q") && in.has("dim") && in.text("interpolation", "linear") == "linear") {
    const TensorRef x = build_.read(in.tensor("self"));
    const int d = in.dim("dim", -1, x.rank());
    const Dim size = x.shape[static_cast<std::size_t>(d)];
    if (!size.constant()) Arguments::refuse("goes along the batch");
    const double rank = in.number("q", 0.5) * double(size.fixed - 1), low = std::floor(rank);
    const TensorRef order = build_.order(x, d, size, false);
    const auto at = [&](double k) { return gather(x, build_.slice(order, d, static_cast<std::int64_t>(k), 1), d); };
    const std::string part = number_text(rank - low);
    return one(build_.reshape(
        build_.apply("$0 + " + part + " * ($1 - $0)", {"$g * (1.0f - " + part + ")", "$g * " + part}, {at(low), at(std::ceil(rank))}),
        in.out_shape()));
  }
  if (op == "nansum" || op == "nanmean") {
    const TensorRef x = cast(in.tensor("self"), 'f');
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{};
    const bool keep = in.boolean("keepdim", false);
    const TensorRef sum = build_.sum(build_.apply("$0 == $0 ? $0 : 0.0f", {"$0 == $0 ? $g : 0.0f"}, {x}), dims, keep);
    if (op == "nansum") return one(sum);
    const TensorRef count = build_.sum(build_.apply("$0 == $0 ? 1.0f : 0.0f", {""}, {x}), dims, keep);
    return one(build_.apply("$0 / $1", {"$g / $1", ""}, {sum, count}));
  }
  if (op == "gather") return one(gather(build_.read(in.tensor("self")), in.tensor("index"), in.dim("dim", 0, in.tensor("self").rank())));
  if (op == "cumsum") {
    const TensorRef x = cast(in.tensor("self"), in.out_type());
    return one(x.rank() == 0 ? x : build_.cumulative_sum(x, in.dim("dim", 0, x.rank())));
  }
  if (op == "cumprod" || op == "logcumsumexp") {
    const TensorRef x = cast(in.tensor("self"), in.out_type());
    const int d = in.dim("dim", 0, x.rank());
    return one(x.rank() == 0 ? x : op == "cumprod" ? build_.cumulative_product(x, d) : build_.cumulative_log_sum(x, d));
  }
  if (op == "cummax" || op == "cummin") {
    const TensorRef x = build_.read(in.tensor("self"));
    const int d = in.dim("dim", 0, x.rank());
    const TensorRef by = build_.cumulative_order(x, d, op == "cummax");
    return std::vector<TensorRef>{gather(x, by, d), by};
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
      x = x.type == 'b' ? build_.apply("$0 != $1 ? 1 : 0", {"", ""}, {later, before}, 'b')
                        : build_.apply("$0 - $1", {"$g", "-$g"}, {later, before}, x.type);
    }
    return one(x);
  }
  if (op == "argmax" || op == "argmin") {
    TensorRef x = in.tensor("self");
    if (!in.has("dim")) x = build_.reshape(x, {count_of(x.shape)});
    return one(build_.reshape(build_.order(x, in.dim("dim", 0, x.rank()), 1, op == "argmax"), in.out_shape()));
  }
  if (op == "msort") {
    const TensorRef x = build_.read(in.tensor("self"));
    return one(gather(x, build_.order(x, 0, x.shape[0], false), 0));
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
    return reduced(build_.apply("($0 - $1) * ($0 - $1)", {"2.0f * ($0 - $1) * $g", "-2.0f * ($0 - $1) * $g"},
                                {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "l1_loss")
    return reduced(build_.apply("sycl::fabs($0 - $1)", {"$g * sign_of($0 - $1)", "-$g * sign_of($0 - $1)"},
                                {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "smooth_l1_loss" || op == "huber_loss") {
    const bool smooth = op == "smooth_l1_loss";
    const double b = in.number(smooth ? "beta" : "delta", 1.0);
    const std::string beta = number_text(b), unit = number_text(smooth ? 1.0 / b : 1.0), slope = number_text(smooth ? 1.0 : b);
    const std::string gradient =
        fmt::format("(sycl::fabs($0 - $1) < {0} ? ($0 - $1) * {1} : sign_of($0 - $1) * {2}) * $g", beta, unit, slope);
    return reduced(build_.apply(
        fmt::format("sycl::fabs($0 - $1) < {0} ? 0.5f * ($0 - $1) * ($0 - $1) * {1} : {2} * (sycl::fabs($0 - $1) - 0.5f * {0})", beta, unit,
                    slope),
        {gradient, "-" + gradient}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  }
  if (op == "binary_cross_entropy_with_logits" && in.has("pos_weight")) {
    TensorRef each =
        build_.apply("(1.0f - $1) * $0 + (1.0f + ($2 - 1.0f) * $1) * (sycl::log1p(sycl::exp(-sycl::fabs($0))) + ($0 < 0 ? -$0 : 0.0f))",
                     {"$g * ((1.0f - $1) - (1.0f + ($2 - 1.0f) * $1) * (1.0f - logistic($0)))", "", ""},
                     {in.tensor("self"), cast(in.tensor("target"), 'f'), in.tensor("pos_weight")});
    if (in.has("weight")) each = build_.apply("$0 * $1", {"$g * $1", ""}, {each, in.tensor("weight")});
    return reduced(each);
  }
  if (op == "binary_cross_entropy_with_logits" && in.has("weight"))
    return reduced(build_.apply("$2 * (($0 > 0 ? $0 : 0.0f) - $0 * $1 + sycl::log1p(sycl::exp(-sycl::fabs($0))))",
                                {"$2 * (logistic($0) - $1) * $g", "", ""},
                                {in.tensor("self"), cast(in.tensor("target"), 'f'), in.tensor("weight")}));
  if (op == "binary_cross_entropy_with_logits")
    return reduced(build_.apply("($0 > 0 ? $0 : 0.0f) - $0 * $1 + sycl::log1p(sycl::exp(-sycl::fabs($0)))",
                                {"(logistic($0) - $1) * $g", "-$0 * $g"}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
  if (op == "binary_cross_entropy") {
    TensorRef each =
        (build_.apply("-$1 * sycl::fmax(sycl::log($0), -100.0f) - (1.0f - $1) * sycl::fmax(sycl::log1p(-$0), -100.0f)",
                      {"$g * ($0 - $1) / sycl::fmax($0 * (1.0f - $0), 1e-12f)", ""}, {in.tensor("self"), cast(in.tensor("target"), 'f')}));
    if (in.has("weight")) each = build_.apply("$0 * $1", {"$g * $1", ""}, {each, in.tensor("weight")});
    return reduced(each);
  }
  if (op == "kl_div") {
    const bool log_target = in.boolean("log_target", false);
    return reduced(
        log_target ? build_.apply("sycl::exp($1) * ($1 - $0)", {"-sycl::exp($1) * $g", ""}, {in.tensor("self"), in.tensor("target")})
                   : build_.apply("$1 > 0 ? $1 * (sycl::log($1) - $0) : 0.0f", {"-$1 * $g", ""}, {in.tensor("self"), in.tensor("target")}));
  }
  if (op == "cross_entropy_loss" || op == "nll_loss" || op == "nll_loss_nd") {
    TensorRef x = in.tensor("self");
    const TensorRef target = in.tensor("target");
    const int d = x.rank() == 1 ? 0 : 1;
    if (op == "cross_entropy_loss") x = log_softmax(x, d);
    const double smoothing = in.number("label_smoothing", 0.0);
    const auto by_class = [&](const TensorRef& weights) {
      Dims shape(x.shape.size(), Dim(1));
      shape[static_cast<std::size_t>(d)] = weights.shape[0];
      return build_.reshape(weights, shape);
    };
    if (target.type == 'f') {  // probabilities
      TensorRef share = target;
      if (smoothing != 0.0) {
        if (!x.shape[static_cast<std::size_t>(d)].constant()) Arguments::refuse("smooths over as many classes as samples");
        const std::string keep = number_text(1.0 - smoothing),
                          even = number_text(smoothing / double(x.shape[static_cast<std::size_t>(d)].fixed));
        share = build_.apply(fmt::format("$0 * {} + {}", keep, even), {"$g * " + keep}, {share});
      }
      if (in.has("weight")) share = build_.apply("$0 * $1", {"$g * $1", ""}, {share, by_class(in.tensor("weight"))});
      const TensorRef each =
          build_.apply("-$0", {"-$g"}, {build_.sum(build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {x, share}), {d}, false)});
      return reduced(each);
    }
    const std::int64_t ignored = in.integer("ignore_index", -100);
    TensorRef by = target;
    by.shape.insert(by.shape.begin() + d, Dim(1)), by.strides.insert(by.strides.begin() + d, Dim(0));
    const std::string valid = fmt::format("$1 != {}", ignored);
    const TensorRef inside = build_.apply(fmt::format("$0 == {} ? 0 : $0", ignored), {""}, {by}, 'i');
    const Dims along{count_of({x.shape.begin(), x.shape.begin() + d}), x.shape[static_cast<std::size_t>(d)],
                     count_of({x.shape.begin() + d + 1, x.shape.end()})};
    const TensorRef index = build_.reshape(inside, {along[0], 1, along[2]});
    TensorRef picked = build_.reshape(build_.take(build_.reshape(x, along), index), target.shape);
    TensorRef each = build_.apply(valid + " ? -$0 : 0.0f", {valid + " ? -$g : 0.0f", ""}, {picked, target});
    TensorRef counts = build_.apply(fmt::format("$0 != {} ? 1.0f : 0.0f", ignored), {""}, {target});
    if (in.has("weight")) {
      const TensorRef w = in.tensor("weight");
      const TensorRef of = build_.reshape(
          build_.take(build_.reshape(w, {1, w.shape[0], 1}), build_.reshape(inside, {1, count_of(inside.shape), 1})), target.shape);
      each = build_.apply("$0 * $1", {"$g * $1", ""}, {each, of});
      counts = build_.apply("$0 * $1", {"", ""}, {counts, of});
    }
    if (smoothing != 0.0) {
      const TensorRef weighted = in.has("weight") ? build_.apply("$0 * $1", {"$g * $1", ""}, {x, by_class(in.tensor("weight"))}) : x;
      const TensorRef rest =
          build_.apply(valid + " ? -$0 : 0.0f", {valid + " ? -$g : 0.0f", ""}, {build_.mean(weighted, {d}, false), target});
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
