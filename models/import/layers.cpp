// Layers: products, norms, attention, convolutions, pooling.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::number_text;

TensorRef unsqueezed(TensorRef ref, int dim) {
  ref.shape.insert(ref.shape.begin() + dim, Dim(1));
  ref.strides.insert(ref.strides.begin() + dim, Dim(0));
  return ref;
}

// Two values for height and width from one or two; one spatial dimension has height 1.
void spread(std::vector<std::int64_t> given, std::int64_t (&to)[2], std::size_t spatial, std::int64_t none) {
  if (given.empty()) return;
  if (spatial == 1) given = {none, given[0]};
  if (given.size() == 1) given.push_back(given[0]);
  to[0] = given[0], to[1] = given[1];
}

}  // namespace

TensorRef Lowering::product(TensorRef a, TensorRef b) {
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = unsqueezed(a, 0);
  if (column) b = unsqueezed(b, 1);
  TensorRef out = build_.matmul(cast(a, 'f'), cast(b, 'f'));
  Dims shape = out.shape;
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  return build_.reshape(out, shape);
}

TensorRef Lowering::log_softmax(const TensorRef& src, int dim) {
  const TensorRef x = build_.dense(build_.read(src));
  const TensorRef most = build_.reduce(x, {dim}, true, engine::Reduction::largest);
  const TensorRef shifted = build_.apply("$0 - $1", {"$g", ""}, {x, most});
  const TensorRef total = build_.sum(build_.apply("sycl::exp($0)", {"$g * $r"}, {shifted}), {dim}, true);
  return build_.apply("$0 - sycl::log($1)", {"$g", "-$g / $1"}, {shifted, total});
}

// Attention without a mask, or with one that turns out to be plain for every sample.
std::optional<TensorRef> Lowering::known_attention(const Arguments& in, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                                   double scale) {
  if (!options_.patterns || (in.number("dropout_p", 0.0) > 0.0 && options_.dropout)) return {};
  MaskKind kind{in.boolean("is_causal", false), 0};
  if (in.has("attn_mask")) {
    if (kind.causal || names_->graph != &program_.graph) return {};
    const ShapeValues::Known* const mask = shape_values_.find(in.first_name("attn_mask"));
    const auto found = mask ? mask_kind(*mask, type_of(in.first_name("attn_mask")) == 'b') : std::nullopt;
    if (!found) return {};
    kind = *found;
  }
  const engine::AttentionMask mask{kind.causal, kind.window};
  if (!engine::TensorBuilder::attends(q, k, v, mask)) return {};
  return build_.attention(q, k, v, mask, scale);
}

TensorRef Lowering::attention(const Arguments& in) {
  TensorRef q = in.tensor("query"), k = in.tensor("key"), v = in.tensor("value");
  const std::size_t rank = q.shape.size();
  const Dim length = q.shape[rank - 2], keys = k.shape[k.shape.size() - 2];
  const double scale = in.number("scale", 1.0 / std::sqrt(static_cast<double>(q.shape.back().fixed)));
  if (const auto known = known_attention(in, q, k, v, scale)) return *known;
  if (in.boolean("enable_gqa", false) && !(q.shape[rank - 3] == k.shape[rank - 3])) {  // each key head serves several query heads
    const Dim heads = q.shape[rank - 3], groups = k.shape[rank - 3];
    for (TensorRef* one : {&k, &v}) {
      Dims wide = one->shape;
      TensorRef more = unsqueezed(*one, static_cast<int>(rank) - 2);
      wide.insert(wide.begin() + static_cast<long>(rank) - 2, heads / groups);
      Dims shape = one->shape;
      shape[rank - 3] = heads;
      *one = build_.reshape(build_.expand(more, wide), shape);
    }
  }
  std::vector<int> turned;
  for (int i = 0; i < k.rank(); ++i) turned.push_back(i);
  std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
  TensorRef scores = build_.matmul(q, build_.permute(k, turned), scale);
  constexpr const char* masked = "$1 != 0 ? $0 : -__builtin_inff()";
  if (in.has("attn_mask")) {
    const TensorRef mask = in.tensor("attn_mask");
    scores = mask.type == 'f' ? build_.apply("$0 + $1", {"$g", "$g"}, {scores, mask})
                              : build_.apply(masked, {"$1 != 0 ? $g : 0.0f", ""}, {scores, mask});
  }
  if (in.boolean("is_causal", false)) {
    const TensorRef i = build_.reshape(build_.arange(length, 0, 1, 'i'), {length, 1}),
                    j = build_.reshape(build_.arange(keys, 0, 1, 'i'), {1, keys});
    scores = build_.apply("$2 <= $1 ? $0 : -__builtin_inff()", {"$2 <= $1 ? $g : 0.0f", "", ""}, {scores, i, j});
  }
  TensorRef weights = build_.softmax(scores, scores.rank() - 1);
  if (in.has("attn_mask") && in.tensor("attn_mask").type != 'f')  // a row without any key gives zeros, as PyTorch's
    weights = build_.apply("$0 == $0 ? $0 : 0.0f", {"$0 == $0 ? $g : 0.0f"}, {weights});
  const double p = in.number("dropout_p", 0.0);
  if (p > 0.0 && options_.dropout) weights = build_.dropout(weights, p);
  return build_.matmul(weights, v);
}

std::optional<std::vector<TensorRef>> Lowering::lower_layers(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  constexpr auto out_in = ops::WeightLayout::out_in, in_out = ops::WeightLayout::in_out;
  if ((op == "linear" && (in.tensor("input").rank() < 1 || in.tensor("weight").rank() != 2)) ||
      (op == "embedding" && in.tensor("weight").rank() != 2))
    Arguments::refuse("has a weight that is no matrix");
  if (op == "linear") return one(build_.linear(in.tensor("input"), in.tensor("weight"), in.tensor_or_none("bias"), out_in));
  if (op == "addmm" && in.number("alpha", 1.0) == 1.0 && in.number("beta", 1.0) == 1.0) {
    const TensorRef a = in.tensor("mat1"), b = in.tensor("mat2"), c = in.tensor("self");
    if (b.parameter >= 0 && c.parameter >= 0 && c.rank() == 1 && c.dense()) {
      // [out, in] seen the other way round is a plain linear layer too.
      if (b.dense()) return one(build_.linear(a, b, c, in_out));
      const TensorRef turned = build_.permute(b, {1, 0});
      if (turned.dense()) return one(build_.linear(a, turned, c, out_in));
    }
  }
  if (op == "matmul" || op == "mm" || op == "bmm" || op == "mv" || op == "dot" || op == "vdot") {
    const char* second = op == "matmul" ? "other" : op == "mv" ? "vec" : op == "dot" ? "tensor" : op == "vdot" ? "other" : "mat2";
    return one(product(in.tensor("self"), in.tensor(second)));
  }
  if (op == "baddbmm" || op == "addmm") {
    const TensorRef product =
        build_.matmul(in.tensor(op == "addmm" ? "mat1" : "batch1"), in.tensor(op == "addmm" ? "mat2" : "batch2"), in.number("alpha", 1.0));
    const std::string beta = number_text(in.number("beta", 1.0));
    return one(build_.apply("$0 + " + beta + " * $1", {"$g", "$g * " + beta}, {product, in.tensor("self")}));
  }
  if (op == "outer") return one(build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {unsqueezed(in.tensor("self"), 1), in.tensor("vec2")}));
  if (op == "einsum") return one(einsum(in.text("equation", ""), in.tensors("tensors")));
  if (op == "scaled_dot_product_attention") return one(attention(in));
  if (op == "embedding") return one(build_.embedding(in.tensor("indices"), in.tensor("weight"), in.integer("padding_idx", -1)));
  if (op == "softmax" || op == "_softmax" || op == "log_softmax" || op == "_log_softmax") {
    const TensorRef x = cast(in.tensor("self"), 'f');
    const int d = in.dim("dim", -1, x.rank());
    return one(op.find("log") == std::string::npos ? build_.softmax(x, d) : log_softmax(x, d));
  }
  if (op == "logsumexp") {
    const TensorRef x = build_.dense(build_.read(in.tensor("self")));
    const auto dims = in.dims("dim", x.rank());
    // Of nothing but infinities they stay what they are, without a gradient.
    const TensorRef most =
        build_.apply("sycl::fabs($0) < __builtin_inff() ? $0 : 0.0f", {""}, {build_.reduce(x, dims, true, engine::Reduction::largest)});
    const TensorRef total = build_.sum(build_.apply("sycl::exp($0 - $1)", {"$g * $r", ""}, {x, most}), dims, true);
    return one(build_.reshape(build_.apply("$0 + sycl::log($1)", {"", "$1 > 0 ? $g / $1 : 0.0f"}, {most, total}), in.out_shape()));
  }
  if (op == "conv1d" || op == "conv2d" || op == "conv3d" || op == "conv_transpose1d" || op == "conv_transpose2d" ||
      op == "conv_transpose3d" || op == "convolution") {
    TensorRef x = in.tensor("input");
    const TensorRef w = in.tensor("weight");
    if (w.rank() < 3) Arguments::refuse("has a weight of too few dimensions");
    const std::size_t spatial = w.shape.size() - 2;
    engine::ConvolutionOptions o;
    o.transposed = op.starts_with("conv_transpose") || in.boolean("transposed", false);
    o.groups = in.integer("groups", 1);
    const auto values = [&](const char* name, std::int64_t otherwise) {
      auto list = in.find(name) && in.find(name)->kind == ExportedArgument::Kind::text ? std::vector<std::int64_t>{} : in.integers(name);
      if (list.empty()) list.push_back(otherwise);
      while (list.size() < spatial) list.push_back(list[0]);
      return list;
    };
    o.stride = values("stride", 1), o.padding = values("padding", 0), o.dilation = values("dilation", 1),
    o.output_padding = values("output_padding", 0);
    const bool single = x.shape.size() == spatial + 1;
    if (single) x = unsqueezed(x, 0);
    if (x.rank() != w.rank()) Arguments::refuse("has an input of another number of dimensions");
    if (in.text("padding", "") == "same") {
      std::vector<std::pair<std::int64_t, std::int64_t>> pads(x.shape.size());
      for (std::size_t i = 0; i < spatial; ++i) {
        const std::int64_t total = o.dilation[i] * (w.shape[2 + i].fixed - 1);
        o.padding[i] = total / 2;
        pads[2 + i] = {0, total - 2 * (total / 2)};
      }
      x = build_.pad(x, pads, 0.0);
    }
    return one(build_.reshape(build_.convolution(x, w, in.tensor_or_none("bias"), o), in.out_shape()));
  }
  static const std::set<std::string> pools{"max_pool1d",          "max_pool2d",          "avg_pool1d",
                                           "avg_pool2d",          "adaptive_avg_pool1d", "adaptive_avg_pool2d",
                                           "adaptive_max_pool2d", "adaptive_max_pool1d", "max_pool2d_with_indices"};
  if (pools.contains(op)) {
    TensorRef x = in.tensor("self");
    const std::size_t spatial = op.find("1d") != std::string::npos ? 1 : 2;
    if (x.shape.size() != spatial + 2) Arguments::refuse("has no batch");
    if (spatial == 1) x = unsqueezed(x, 2);
    const Dims out = in.out_shape();
    const std::int64_t height = spatial == 1 ? 1 : out[2].fixed, width = out.back().fixed;
    if (in.has("divisor_override") && !in.boolean("ceil_mode", false)) {
      const auto window = in.integers("kernel_size");
      const double area = double(window[0]) * double(spatial == 1 ? 1 : window.back());
      engine::PoolOptions whole;
      spread(window, whole.kernel, spatial, 1);
      whole.stride[0] = whole.kernel[0], whole.stride[1] = whole.kernel[1];
      spread(in.integers("stride"), whole.stride, spatial, 1);
      spread(in.integers("padding"), whole.padding, spatial, 0);
      const std::string scale = number_text(area / in.number("divisor_override", 1.0));
      return one(build_.apply("$0 * " + scale, {"$g * " + scale}, {build_.reshape(build_.average_pool(x, whole, height, width), out)}));
    }
    if (op.starts_with("adaptive_avg")) return one(build_.reshape(build_.adaptive_average_pool(x, height, width), out));
    engine::PoolOptions o;
    if (op.starts_with("adaptive_max")) {
      if (x.shape[2].fixed % height != 0 || x.shape[3].fixed % width != 0) Arguments::refuse("does not divide its input evenly");
      o.kernel[0] = o.stride[0] = x.shape[2].fixed / height, o.kernel[1] = o.stride[1] = x.shape[3].fixed / width;
      return one(build_.reshape(build_.max_pool(x, o, height, width), out));
    }
    spread(in.integers("kernel_size"), o.kernel, spatial, 1);
    o.stride[0] = o.kernel[0], o.stride[1] = o.kernel[1];
    spread(in.integers("stride"), o.stride, spatial, 1);
    spread(in.integers("padding"), o.padding, spatial, 0);
    spread(in.integers("dilation"), o.dilation, spatial, 1);
    o.count_padding = in.boolean("count_include_pad", true);
    if (in.has("divisor_override")) Arguments::refuse("has a divisor of its own");
    return one(
        build_.reshape(op.starts_with("max") ? build_.max_pool(x, o, height, width) : build_.average_pool(x, o, height, width), out));
  }
  if (op.starts_with("upsample_nearest") || op.starts_with("upsample_bilinear2d") || op.starts_with("upsample_linear1d") ||
      op.starts_with("upsample_trilinear3d")) {
    const TensorRef x = in.tensor(in.has("input") ? "input" : "self");
    std::vector<std::int64_t> size;
    const Dims out = in.out_shape();
    for (std::size_t i = 2; i < out.size(); ++i) size.push_back(out[i].fixed);
    std::vector<double> scales;
    if (const ExportedArgument* given = in.find("scale_factors")) scales = given->numbers;
    return one(resize(x, size, op.find("linear") != std::string::npos, in.boolean("align_corners", false), scales));
  }
  if (op == "lstm" || op == "gru" || op == "rnn_tanh" || op == "rnn_relu") return lower_recurrent(op, in);
  if (op.ends_with("_cell")) return lower_cell(op.substr(0, op.size() - 5), in);
  if (op == "channel_shuffle") {
    const TensorRef x = in.tensor("self");
    const Dim groups = in.integer("groups", 1);
    Dims split{x.shape[0], groups, x.shape[1] / groups, count_of({x.shape.begin() + 2, x.shape.end()})};
    return one(build_.reshape(build_.permute(build_.reshape(x, split), {0, 2, 1, 3}), x.shape));
  }
  if (op == "glu") {
    const TensorRef x = in.tensor("self");
    const int d = in.dim("dim", -1, x.rank());
    const Dim half = x.shape[static_cast<std::size_t>(d)] / Dim(2);
    return one(build_.apply("$0 * logistic($1)", {"$g * logistic($1)", "$g * $r * (1.0f - logistic($1))"},
                            {build_.slice(x, d, 0, half), build_.slice(x, d, half, half)}));
  }
  return {};
}

}  // namespace ppengine::models
