// Windows over planes and volumes: pooling beyond two even dimensions, unfold and fold, unpooling.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::number_text;
using engine::PoolOptions;

// One number for each dimension from one for all.
std::vector<std::int64_t> spread(std::vector<std::int64_t> given, std::size_t count, std::int64_t otherwise) {
  if (given.empty()) given.push_back(otherwise);
  while (given.size() < count) given.push_back(given[0]);
  return given;
}

// Windows of adaptive pooling along a dimension.
std::int64_t first_of(std::int64_t k, std::int64_t from, std::int64_t to) { return k * from / to; }
std::int64_t end_of(std::int64_t k, std::int64_t from, std::int64_t to) { return ((k + 1) * from + to - 1) / to; }

}  // namespace

std::optional<std::vector<TensorRef>> Lowering::lower_windows(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  if (op == "max_pool3d" || op == "avg_pool3d") {  // over height and width, then over depth: the divisors of an average are products too
    TensorRef x = in.tensor("self");
    if (x.rank() != 5) Arguments::refuse("has no batch");
    const Dims out = in.out_shape();
    const auto kernel = spread(in.integers("kernel_size"), 3, 1), padding = spread(in.integers("padding"), 3, 0),
               dilation = spread(in.integers("dilation"), 3, 1);
    const auto stride = in.integers("stride").empty() ? kernel : spread(in.integers("stride"), 3, 1);
    const bool largest = op == "max_pool3d";
    PoolOptions plane, depth;
    for (std::size_t i = 0; i < 2; ++i)
      plane.kernel[i] = kernel[i + 1], plane.stride[i] = stride[i + 1], plane.padding[i] = padding[i + 1],
      plane.dilation[i] = dilation[i + 1];
    depth.kernel[0] = kernel[0], depth.stride[0] = stride[0], depth.padding[0] = padding[0], depth.dilation[0] = dilation[0];
    plane.count_padding = depth.count_padding = in.boolean("count_include_pad", true) || in.has("divisor_override");
    const auto pool = [&](const TensorRef& src, const PoolOptions& o, const Dim& h, const Dim& w) {
      return largest ? build_.max_pool(src, o, h.fixed, w.fixed) : build_.average_pool(src, o, h.fixed, w.fixed);
    };
    x = pool(build_.reshape(x, {x.shape[0], x.shape[1] * x.shape[2], x.shape[3], x.shape[4]}), plane, out[3], out[4]);
    const Dim places = out[3] * out[4], channels = in.tensor("self").shape[1];
    x = build_.reshape(pool(build_.reshape(x, {out[0], channels, in.tensor("self").shape[2], places}), depth, out[2], places), out);
    if (!in.has("divisor_override")) return one(x);
    if (in.boolean("ceil_mode", false)) Arguments::refuse("has a divisor of its own and windows that end outside");
    const std::string scale = number_text(double(kernel[0] * kernel[1] * kernel[2]) / in.number("divisor_override", 1.0));
    return one(build_.apply("$0 * " + scale, {"$g * " + scale}, {x}));
  }
  if (op == "adaptive_avg_pool3d") {
    TensorRef x = in.tensor("self");
    const Dims out = in.out_shape();
    for (std::size_t d = x.shape.size() - 3; d < x.shape.size(); ++d) {
      const std::int64_t from = x.shape[d].fixed, to = out[d].fixed;
      if (from == to) continue;
      std::vector<float> matrix(static_cast<std::size_t>(from * to));
      for (std::int64_t k = 0; k < to; ++k)
        for (std::int64_t i = first_of(k, from, to), end = end_of(k, from, to); i < end; ++i)
          matrix[static_cast<std::size_t>(k * from + i)] = 1.0f / static_cast<float>(end - first_of(k, from, to));
      x = mapped(x, d, matrix);
    }
    return one(x);
  }
  if (op.starts_with("adaptive_max_pool")) {
    const std::size_t spatial = static_cast<std::size_t>(op[17] - '0');
    TensorRef x = in.tensor("self");
    const Dims out = in.out_shape();
    bool even = spatial < 3 && x.shape.size() == spatial + 2;
    for (std::size_t d = x.shape.size() - spatial; d < x.shape.size(); ++d)
      even = even && x.shape[d].fixed % std::max<std::int64_t>(out[d].fixed, 1) == 0;
    if (even) return {};                                                       // plain pooling
    for (std::size_t d = x.shape.size() - spatial; d < x.shape.size(); ++d) {  // the largest of each window, the first of equal ones
      const std::int64_t from = x.shape[d].fixed, to = out[d].fixed;
      std::int64_t longest = 1;
      for (std::int64_t k = 0; k < to; ++k) longest = std::max(longest, end_of(k, from, to) - first_of(k, from, to));
      std::vector<std::int32_t> places;
      for (std::int64_t k = 0; k < to; ++k)
        for (std::int64_t i = 0; i < longest; ++i)
          places.push_back(static_cast<std::int32_t>(std::min(first_of(k, from, to) + i, end_of(k, from, to) - 1)));
      Dims shape = x.shape, split = x.shape;
      shape[d] = to, split[d] = longest;
      split.insert(split.begin() + static_cast<long>(d), Dim(to));
      const TensorRef windows = build_.reshape(take_places(x, d, std::move(places)), split);
      const int along = static_cast<int>(d) + 1;
      x = build_.reshape(gather(windows, build_.order(windows, along, 1, true), along), shape);
    }
    return one(x);
  }
  if (op == "max_pool1d_with_indices" || op == "max_pool2d_with_indices") {
    const bool flat = op == "max_pool1d_with_indices";
    TensorRef x = in.tensor("self");
    const Dims out = in.out_shape();
    if (x.rank() != (flat ? 3 : 4)) Arguments::refuse("has no batch");
    if (flat) x = build_.reshape(x, {x.shape[0], x.shape[1], 1, x.shape[2]});
    const auto both = [&](const char* name, std::int64_t otherwise) {
      auto list = spread(in.integers(name), flat ? 1 : 2, otherwise);
      if (flat) list.insert(list.begin(), std::string(name) == "padding" ? 0 : 1);
      return list;
    };
    const auto kernel = both("kernel_size", 1), stride = in.integers("stride").empty() ? kernel : both("stride", 1),
               padding = both("padding", 0), dilation = both("dilation", 1);
    PoolOptions o;
    for (std::size_t i = 0; i < 2; ++i)
      o.kernel[i] = kernel[i], o.stride[i] = stride[i], o.padding[i] = padding[i], o.dilation[i] = dilation[i];
    const std::int64_t height = flat ? 1 : out[2].fixed, width = out.back().fixed;
    return std::vector<TensorRef>{build_.reshape(build_.max_pool(x, o, height, width), out),
                                  build_.reshape(build_.max_pool_places(x, o, height, width), out)};
  }
  if (op == "max_unpool2d") {
    const TensorRef x = in.tensor("self"), by = in.tensor("indices");
    const Dims out = in.out_shape();
    const std::size_t r = out.size();
    const Dim planes = count_of({out.begin(), out.end() - 2}), few = x.shape[r - 2] * x.shape[r - 1];
    const TensorRef base = build_.dense(build_.full({planes, out[r - 2] * out[r - 1], 1}, 0.0, 'f'));
    return one(build_.reshape(build_.put(base, build_.reshape(by, {planes, few, 1}), build_.reshape(x, {planes, few, 1}), false), out));
  }
  if (op == "im2col" || op == "col2im") {
    const bool folds = op == "col2im";
    const TensorRef x = in.tensor("self");
    const auto kernel = spread(in.integers("kernel_size"), 2, 1), dilation = spread(in.integers("dilation"), 2, 1),
               padding = spread(in.integers("padding"), 2, 0), stride = spread(in.integers("stride"), 2, 1);
    if (x.rank() != (folds ? 3 : 4)) Arguments::refuse("has no batch");
    const auto size = folds ? spread(in.integers("output_size"), 2, 1) : std::vector<std::int64_t>{x.shape[2].fixed, x.shape[3].fixed};
    std::int64_t blocks[2], padded[2];
    for (std::size_t i = 0; i < 2; ++i) {
      padded[i] = size[i] + 2 * padding[i];
      blocks[i] = (padded[i] - dilation[i] * (kernel[i] - 1) - 1) / std::max<std::int64_t>(stride[i], 1) + 1;
    }
    std::vector<std::int32_t> places;  // in a padded plane, for each element of the window and each block
    for (std::int64_t a = 0; a < kernel[0]; ++a)
      for (std::int64_t b = 0; b < kernel[1]; ++b)
        for (std::int64_t h = 0; h < blocks[0]; ++h)
          for (std::int64_t w = 0; w < blocks[1]; ++w)
            places.push_back(static_cast<std::int32_t>((h * stride[0] + a * dilation[0]) * padded[1] + w * stride[1] + b * dilation[1]));
    const auto many = static_cast<std::int64_t>(places.size()), window = kernel[0] * kernel[1];
    const TensorRef by = build_.constant(std::move(places), {1, many, 1}, 'i');
    const Dim channels = folds ? x.shape[1] / Dim(window) : x.shape[1], planes = x.shape[0] * channels;
    if (!folds) {
      const TensorRef wide = build_.pad(x, {{0, 0}, {0, 0}, {padding[0], padding[0]}, {padding[1], padding[1]}}, 0.0);
      return one(build_.reshape(build_.take(build_.reshape(wide, {planes, padded[0] * padded[1], 1}), by), in.out_shape()));
    }
    const TensorRef zeros = build_.dense(build_.full({planes, padded[0] * padded[1], 1}, 0.0, 'f'));
    const TensorRef wide =
        build_.reshape(build_.put(zeros, by, build_.reshape(x, {planes, many, 1}), true), {x.shape[0], channels, padded[0], padded[1]});
    return one(build_.slice(build_.slice(wide, 2, padding[0], size[0]), 3, padding[1], size[1]));
  }
  return {};
}

}  // namespace ppengine::models
