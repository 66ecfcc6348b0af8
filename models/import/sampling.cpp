// Resampling: interpolation by matrices, grid_sample and its grids.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::number_text;

double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

std::vector<float> cubic_matrix(std::int64_t from, std::int64_t to, double step, bool align) {
  std::vector<float> matrix(static_cast<std::size_t>(from * to));
  for (std::int64_t k = 0; k < to; ++k) {
    const double at = align ? step * double(k) : step * (double(k) + 0.5) - 0.5, low = std::floor(at);
    for (std::int64_t i = -1; i <= 2; ++i) {
      const std::int64_t place = std::clamp<std::int64_t>(static_cast<std::int64_t>(low) + i, 0, from - 1);
      matrix[static_cast<std::size_t>(k * from + place)] += static_cast<float>(cubic(at - low - double(i), -0.75));
    }
  }
  return matrix;
}

// As Pillow does it: the filter is stretched over all that a pixel of the result covers.
std::vector<float> smooth_matrix(std::int64_t from, std::int64_t to, double step, bool is_cubic) {
  std::vector<float> matrix(static_cast<std::size_t>(from * to));
  const double stretch = std::max(step, 1.0), support = (is_cubic ? 2.0 : 1.0) * stretch;
  for (std::int64_t k = 0; k < to; ++k) {
    const double center = step * (double(k) + 0.5);
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0),
               end = std::min<std::int64_t>(static_cast<std::int64_t>(center + support + 0.5), from);
    std::vector<double> weights;
    double sum = 0.0;
    for (std::int64_t i = first; i < end; ++i) {
      const double x = (double(i) - center + 0.5) / stretch;
      weights.push_back(is_cubic ? cubic(x, -0.5) : std::max(0.0, 1.0 - std::abs(x)));
      sum += weights.back();
    }
    for (std::int64_t i = first; i < end; ++i)
      matrix[static_cast<std::size_t>(k * from + i)] =
          static_cast<float>(weights[static_cast<std::size_t>(i - first)] / (sum == 0.0 ? 1.0 : sum));
  }
  return matrix;
}

}  // namespace

TensorRef Lowering::take_places(const TensorRef& src, std::size_t dim, std::vector<std::int32_t> places) {
  const auto count = static_cast<std::int64_t>(places.size());
  Dims shape = src.shape;
  shape[dim] = count;
  return build_.reshape(
      build_.take(build_.reshape(src, around(src, static_cast<int>(dim))), build_.constant(std::move(places), {1, count, 1}, 'i')), shape);
}

TensorRef Lowering::mapped(const TensorRef& src, std::size_t dim, const std::vector<float>& matrix) {
  const Dim from = src.shape[dim], to = static_cast<std::int64_t>(matrix.size()) / std::max<std::int64_t>(from.fixed, 1);
  std::vector<std::int32_t> bits;
  for (float one : matrix) bits.push_back(std::bit_cast<std::int32_t>(one));
  const TensorRef weights = build_.permute(build_.constant(std::move(bits), {to, from}, 'f'), {1, 0});
  std::vector<int> order;
  for (int i = 0; i < src.rank(); ++i) order.push_back(i);
  std::swap(order[dim], order.back());
  return build_.permute(build_.matmul(build_.permute(src, order), weights), order);
}

// Each point reads a few places of its sample's plane or volume, weighted by how far they are from it.
TensorRef Lowering::grid_sample(const Arguments& in) {
  const TensorRef x = in.tensor("input"), grid = build_.read(in.tensor("grid"));
  const std::size_t spatial = x.shape.size() - 2;
  const std::int64_t mode = in.integer("interpolation_mode", 0),
                     padding = in.integer("padding_mode", 0);  // bilinear, nearest, bicubic; zeros, border, reflection
  const bool align = in.boolean("align_corners", false);
  if (mode == 2 && spatial != 2) Arguments::refuse("is cubic in three dimensions");
  const Dim samples = x.shape[0], channels = x.shape[1], points = count_of({grid.shape.begin() + 1, grid.shape.end() - 1});
  const TensorRef flat = build_.reshape(grid, {samples, points, static_cast<std::int64_t>(spatial)});
  std::vector<int> channels_last{0};
  for (std::size_t i = 0; i < spatial; ++i) channels_last.push_back(static_cast<int>(i) + 2);
  channels_last.push_back(1);
  const Dim places = count_of({x.shape.begin() + 2, x.shape.end()});
  const TensorRef table = build_.reshape(build_.permute(x, channels_last), {samples, places, channels});
  struct Tap {
    TensorRef index, weight;  // [samples, points, 1]
  };
  std::vector<Tap> taps{{}};
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t size = x.shape[2 + d].fixed;
    const std::string most = number_text(double(size - 1));
    const std::string scale = number_text(0.5 * double(align ? size - 1 : size)), shift = number_text(0.5 * double(size - 1));
    const std::string low = number_text(align ? 0.0 : -0.5), span = number_text(align ? double(size - 1) : double(size));
    const auto bounded = [&](const TensorRef& at) {
      if (padding == 0) return at;
      TensorRef inside = at;
      if (padding == 2) {
        if (align && size == 1)
          inside = build_.apply("0.0f * $0", {""}, {at});
        else
          inside = build_.apply(fmt::format("reflected($0, {}, {})", low, span),
                                {fmt::format("$g * reflected_slope($0, {}, {})", low, span)}, {at});
      }
      return build_.apply(fmt::format("$0 < 0 ? 0.0f : $0 > {0} ? {0} : $0", most), {fmt::format("$0 > 0 && $0 < {} ? $g : 0.0f", most)},
                          {inside});
    };
    TensorRef at = build_.slice(flat, 2, static_cast<std::int64_t>(spatial - 1 - d), 1);  // x comes first in a grid
    at = build_.apply(fmt::format("$0 * {} + {}", scale, shift), {"$g * " + scale}, {at});
    if (mode != 2) at = bounded(at);
    std::vector<Tap> mine;
    const auto add = [&](const TensorRef& index, TensorRef weight) {
      const std::string inside = fmt::format("$1 >= 0 && $1 < {}", size);
      weight = build_.apply(inside + " ? $0 : 0.0f", {inside + " ? $g : 0.0f", ""}, {weight, index});
      mine.push_back({build_.apply(fmt::format("$0 < 0 ? 0 : $0 >= {0} ? {0} - 1 : $0", size), {""}, {index}, 'i'), weight});
    };
    if (mode == 1) add(build_.apply("(int)sycl::rint($0)", {""}, {at}, 'i'), build_.full(at.shape, 1.0, 'f'));
    if (mode == 0) {
      add(build_.apply("(int)sycl::floor($0)", {""}, {at}, 'i'), build_.apply("1.0f - ($0 - sycl::floor($0))", {"-$g"}, {at}));
      add(build_.apply("(int)sycl::floor($0) + 1", {""}, {at}, 'i'), build_.apply("$0 - sycl::floor($0)", {"$g"}, {at}));
    }
    for (int k = -1; mode == 2 && k <= 2; ++k) {
      const std::string away = fmt::format("$0 - sycl::floor($0) - ({}.0f)", k);
      const TensorRef place = bounded(build_.apply(fmt::format("sycl::floor($0) + ({}.0f)", k), {""}, {at}));
      add(build_.apply("(int)sycl::rint($0)", {""}, {place}, 'i'),
          build_.apply("cubic(" + away + ")", {"$g * cubic_slope(" + away + ")"}, {at}));
    }
    std::vector<Tap> joined;
    for (const Tap& before : taps)
      for (const Tap& one : mine) {
        if (!before.index.exists()) {
          joined.push_back(one);
          continue;
        }
        joined.push_back({build_.apply(fmt::format("$0 * {} + $1", size), {"", ""}, {before.index, one.index}, 'i'),
                          build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {before.weight, one.weight})});
      }
    taps = std::move(joined);
  }
  TensorRef sum;
  for (const Tap& tap : taps) {
    const TensorRef value = build_.take(table, tap.index);
    sum = sum.exists() ? build_.apply("$0 + $1 * $2", {"$g", "$g * $2", "$g * $1"}, {sum, value, tap.weight})
                       : build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {value, tap.weight});
  }
  return build_.reshape(build_.permute(sum, {0, 2, 1}), in.out_shape());
}

std::optional<std::vector<TensorRef>> Lowering::lower_sampling(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  if (op == "grid_sampler" || op == "grid_sampler_2d" || op == "grid_sampler_3d") return one(grid_sample(in));
  if (op == "affine_grid_generator") {
    const TensorRef theta = in.tensor("theta");
    const Dims out = in.out_shape();
    const std::size_t spatial = out.size() - 2;
    const bool align = in.boolean("align_corners", false);
    std::int64_t points = 1;
    for (std::size_t i = 0; i < spatial; ++i) points *= out[1 + i].fixed;
    std::vector<std::int32_t> bits;
    for (std::int64_t p = 0; p < points; ++p) {
      std::int64_t rest = p;
      for (std::size_t i = spatial; i-- > 0;) {  // the last dimension is x
        const std::int64_t size = out[1 + i].fixed, k = rest % size;
        rest /= size;
        const double at = size <= 1 ? 0.0 : (2.0 * double(k) / double(size - 1) - 1.0) * (align ? 1.0 : double(size - 1) / double(size));
        bits.push_back(std::bit_cast<std::int32_t>(static_cast<float>(at)));
      }
      bits.push_back(std::bit_cast<std::int32_t>(1.0f));
    }
    const TensorRef base = build_.constant(std::move(bits), {1, points, static_cast<std::int64_t>(spatial) + 1}, 'f');
    return one(build_.reshape(build_.matmul(base, build_.permute(theta, {0, 2, 1})), out));
  }
  const bool is_cubic = op.find("upsample_bicubic2d") != std::string::npos, smooth = op.ends_with("_aa"),
             exact = op.starts_with("_upsample_nearest_exact");
  if (!is_cubic && !smooth && !exact) return {};
  TensorRef x = in.tensor(in.has("input") ? "input" : "self");
  const Dims out = in.out_shape();
  const ExportedArgument* scales = in.find("scale_factors");
  const bool align = in.boolean("align_corners", false);
  for (std::size_t d = 2; d < out.size(); ++d) {
    const std::int64_t from = x.shape[d].fixed, to = out[d].fixed;
    if (from == to && !smooth) continue;
    const bool scaled = scales && d - 2 < scales->numbers.size() && scales->numbers[d - 2] > 0;
    const double step = align    ? (to > 1 ? double(from - 1) / double(to - 1) : 0.0)
                        : scaled ? 1.0 / scales->numbers[d - 2]
                                 : double(from) / double(to);
    if (exact) {
      std::vector<std::int32_t> places;
      for (std::int64_t k = 0; k < to; ++k)
        places.push_back(static_cast<std::int32_t>(
            std::min<std::int64_t>(static_cast<std::int64_t>(static_cast<float>(step) * (static_cast<float>(k) + 0.5f)), from - 1)));
      x = take_places(x, d, std::move(places));
    } else {
      x = mapped(x, d, smooth ? smooth_matrix(from, to, step, is_cubic) : cubic_matrix(from, to, step, align));
    }
  }
  return one(x);
}

}  // namespace ppengine::models
