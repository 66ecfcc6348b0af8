// Convolution in f32 on CPUs with vectors, in the calling thread: three products over the windows of pictures (windows.hpp), by the loops
// of matrix products. Weights and their gradients stay as they lie, nothing is reordered, and no product is written down to be summed up
// later.
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstring>

#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/loops_convolution.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/windows.hpp>
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/device/memory.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats, cpu::for_parts, cpu::most_lanes, cpu::most_panel_width;

constexpr std::int64_t most_depth = 384, most_rows = 264;  // as in gemm.cpp: a panel in the first cache, rows that meet it in the second
constexpr std::int64_t most_panels = 12;                   // that a thread takes at a time
constexpr std::int64_t strip_step = 16;                    // rows of a weight that are packed at once
constexpr std::int64_t few_pixels = 128;                   // samples of fewer are one picture for sums over pixels

// Kept for the life of a thread.
struct alignas(64) Scratch {
  float panel[most_depth * most_panel_width];
  float rows[most_panel_width * most_depth];  // of a panel that is still to be transposed
  float tiles[most_rows * most_panel_width];
  float strips[most_rows * most_depth + most_rows / cpu::least_tile_height * most_lanes];
};
Scratch& scratch_of_thread() {
  thread_local const auto scratch = std::make_unique<Scratch>();
  return *scratch;
}

std::int64_t begin_of(std::int64_t i, std::int64_t count, std::int64_t total) { return i * total / count; }
std::int64_t even_depth(std::int64_t total) { return divide_up(divide_up(total, divide_up(total, most_depth)), 16) * 16; }
std::int64_t threads() { return oneapi::tbb::this_task_arena::max_concurrency(); }

class CpuConvolution final : public Convolution {
 public:
  explicit CpuConvolution(const ConvolutionSpec& spec, bool forward_only = false)
      : w_(spec),
        product_(*cpu::product_loops()),
        loops_(*cpu::convolution_loops()),
        width_(product_.panel_width),
        all_(w_.samples * w_.pixels) {
    // Panels end with their sample, unless that would leave too much of them empty.
    const std::int64_t per_sample = divide_up(w_.pixels, width_);
    joined_ = per_sample * width_ * 100 > w_.pixels * 115;
    panels_ = joined_ ? divide_up(all_, width_) : w_.samples * per_sample;
    joined_sums_ = w_.pixels < few_pixels && w_.samples > 1;
    if (!forward_only && all_ >= many_pixels && can_be_mirrored(spec)) mirrored_ = std::make_unique<CpuConvolution>(mirrored(spec), true);
  }

  std::size_t workspace_bytes() const override {
    const std::size_t mine =
        static_cast<std::size_t>(w_.padded_floats() + (joined_ || joined_sums_ ? w_.outs * all_ : 0) + most_lanes) * sizeof(float);
    return mirrored_ ? std::max(mine, mirrored_->workspace_bytes() + weight_bytes()) : mine;
  }

  // dst [outs, pixels] = weight [outs, elements] · windows [elements, pixels]
  void forward(Stream& stream, const void* src, const void* weight, const void* bias, void* dst, void* workspace) override {
    stream.wait();
    const float* const picture = padded(floats(src), floats(workspace));
    float* const made = joined_ ? joined(workspace) : floats(dst);
    const std::int64_t row_parts = divide_up(w_.outs, most_rows);
    const std::int64_t chunk = std::clamp<std::int64_t>(row_parts * panels_ / (8 * threads()), 1, most_panels);
    for_parts(row_parts * divide_up(panels_, chunk), 1, [&](std::int64_t part, std::int64_t) {
      const std::int64_t r = part % row_parts, first = part / row_parts * chunk;
      forward_part(picture, floats(weight), floats(bias), made, begin_of(r, row_parts, w_.outs), begin_of(r + 1, row_parts, w_.outs), first,
                   std::min(first + chunk, panels_));
    });
    if (joined_) for_joined(made, [&](float* joint, std::int64_t at) { std::memcpy(floats(dst) + at, joint, sample_bytes()); });
  }

  // windows [elements, pixels] = weightᵀ · diff_dst, each row added to the pixels that it sees.
  void backward_input(Stream& stream, const void* diff_dst, const void* weight, void* diff_src, void* workspace) override {
    stream.wait();
    if (mirrored_) {
      mirror(floats(weight), floats(workspace));
      return mirrored_->forward(stream, diff_dst, workspace, nullptr, diff_src, static_cast<std::byte*>(workspace) + weight_bytes());
    }
    const float* const diff = joined_ ? join(floats(diff_dst), workspace) : floats(diff_dst);
    float* const into = w_.in_place() ? floats(diff_src) : floats(workspace);
    const std::int64_t wanted = std::max<std::int64_t>(1, w_.channels / (2 * threads())),
                       most = std::max<std::int64_t>(1, most_rows / w_.window);
    for_parts(w_.channels, std::min(wanted, most), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = 0; n < w_.samples; ++n)
        std::fill_n(into + (n * w_.channels + begin) * w_.plane(), (end - begin) * w_.plane(), 0.0f);
      for (std::int64_t k = begin * w_.window; k < end * w_.window; k += most_rows)
        input_part(diff, floats(weight), into, k, std::min(k + most_rows, end * w_.window));
      for (std::int64_t n = 0; n < w_.samples && !w_.in_place(); ++n)
        for (std::int64_t c = n * w_.channels + begin; c < n * w_.channels + end; ++c)
          w_.unpad(into + c * w_.plane(), floats(diff_src) + c * w_.picture());
    });
  }

  // diff_weight [outs, elements] (+)= diff_dst [outs, pixels] · windowsᵀ
  void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias, bool accumulate,
                       void* workspace) override {
    stream.wait();
    const float* const picture = padded(floats(src), floats(workspace));
    const float* const diff = joined_sums_ ? join(floats(diff_dst), workspace) : floats(diff_dst);
    const std::int64_t row_parts = divide_up(w_.outs, most_rows);
    for_parts(row_parts * divide_up(w_.elements, width_), 1, [&](std::int64_t part, std::int64_t) {
      const std::int64_t r = part % row_parts, k = part / row_parts * width_;
      weight_part(picture, diff, diff_weight, begin_of(r, row_parts, w_.outs), begin_of(r + 1, row_parts, w_.outs), k,
                  std::min(k + width_, w_.elements), accumulate);
    });
    if (!diff_bias) return;
    for_parts(w_.outs, std::max<std::int64_t>(1, 16384 / all_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o) {
        float sum = accumulate ? diff_bias[o] : 0.0f;
        for (std::int64_t n = 0; n < w_.samples; ++n) sum += loops_.sum(floats(diff_dst) + (n * w_.outs + o) * w_.pixels, w_.pixels);
        diff_bias[o] = sum;
      }
    });
  }

 private:
  // With steps of one, the gradient of the input is a convolution of that of the output, with the window mirrored: no sums in memory, but
  // the weight has to be turned, which pays for many pixels.
  static constexpr std::int64_t many_pixels = 512;
  static bool can_be_mirrored(const ConvolutionSpec& s) {
    for (std::size_t i = 0; i < s.src.size(); ++i)
      if (s.stride[i] != 1 || s.padding[i] > (s.kernel[i] - 1) * s.dilation[i] ||
          s.dst[i] != s.src[i] + 2 * s.padding[i] - (s.kernel[i] - 1) * s.dilation[i])
        return false;
    return true;
  }
  static ConvolutionSpec mirrored(const ConvolutionSpec& s) {
    ConvolutionSpec back = s;
    std::swap(back.in_channels, back.out_channels);
    std::swap(back.src, back.dst);
    back.bias = false;
    for (std::size_t i = 0; i < s.src.size(); ++i) back.padding[i] = (s.kernel[i] - 1) * s.dilation[i] - s.padding[i];
    return back;
  }
  std::size_t weight_bytes() const { return align_up(static_cast<std::size_t>(w_.outs * w_.elements) * sizeof(float)); }
  // [channels, outs, window backwards] from [outs, channels, window]
  void mirror(const float* weight, float* to) const {
    for_parts(w_.channels, std::max<std::int64_t>(1, 4096 / (w_.outs * w_.window)), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c)
        for (std::int64_t o = 0; o < w_.outs; ++o)
          std::reverse_copy(weight + o * w_.elements + c * w_.window, weight + o * w_.elements + (c + 1) * w_.window,
                            to + (c * w_.outs + o) * w_.window);
    });
  }

  // Pixels of all samples, one after the other: [first, first + count).
  struct Pixels {
    std::int64_t first, count;
  };
  Pixels panel(std::int64_t i) const {
    if (joined_) return {i * width_, std::min(width_, all_ - i * width_)};
    const std::int64_t per_sample = divide_up(w_.pixels, width_), at = i % per_sample * width_;
    return {i / per_sample * w_.pixels + at, std::min(width_, w_.pixels - at)};
  }
  // body(how many before, place, count) for pixels that lie behind each other in memory.
  template <class Body>
  void for_runs(const Pixels& of, const Body& body) const {
    for (std::int64_t at = 0; at < of.count;) {
      const std::int64_t sample = (of.first + at) / w_.pixels, pixel = (of.first + at) % w_.pixels;
      const std::int64_t count = std::min({of.count - at, w_.run(pixel), w_.pixels - pixel});
      body(at, w_.place(sample, pixel), count);
      at += count;
    }
  }
  // Outputs by [outs, pixels] with the samples' pixels side by side, or by sample.
  std::int64_t place_of_output(bool joint, std::int64_t out, std::int64_t pixel) const {
    return joint ? out * all_ + pixel : (pixel / w_.pixels * w_.outs + out) * w_.pixels + pixel % w_.pixels;
  }
  std::int64_t row_of_outputs(bool joint) const { return joint ? all_ : w_.pixels; }

  std::size_t sample_bytes() const { return static_cast<std::size_t>(w_.pixels) * sizeof(float); }
  float* joined(void* workspace) const { return floats(workspace) + divide_up(w_.padded_floats(), most_lanes) * most_lanes; }
  // body(place in [outs, all pixels], place in [samples, outs, pixels])
  template <class Body>
  void for_joined(float* joint, const Body& body) const {
    for_parts(w_.outs, std::max<std::int64_t>(1, 16384 / all_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o)
        for (std::int64_t n = 0; n < w_.samples; ++n) body(joint + o * all_ + n * w_.pixels, (n * w_.outs + o) * w_.pixels);
    });
  }
  const float* join(const float* outputs, void* workspace) const {
    float* const joint = joined(workspace);
    for_joined(joint, [&](float* to, std::int64_t at) { std::memcpy(to, outputs + at, sample_bytes()); });
    return joint;
  }
  const float* padded(const float* src, float* workspace) const {
    if (w_.in_place()) return src;
    for_parts(w_.samples * w_.channels, std::max<std::int64_t>(1, 16384 / w_.plane()), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) w_.pad(src + c * w_.picture(), workspace + c * w_.plane());
    });
    return workspace;
  }

  void forward_part(const float* picture, const float* weight, const float* bias, float* dst, std::int64_t row_begin, std::int64_t row_end,
                    std::int64_t first_panel, std::int64_t last_panel) const {
    float* const panel_floats = scratch_of_thread().panel;
    const std::int64_t most = even_depth(w_.elements), rows = row_end - row_begin, tiles = divide_up(rows, product_.tile_height);
    const std::int64_t row_c = row_of_outputs(joined_);
    for (std::int64_t k = 0; k < w_.elements; k += most) {
      const std::int64_t depth = std::min(most, w_.elements - k);
      for (std::int64_t p = first_panel; p < last_panel; ++p) {
        const Pixels of = panel(p);
        for_runs(of, [&](std::int64_t at, std::int64_t place, std::int64_t count) {
          loops_.take_rows(picture + place, &w_.offsets[static_cast<std::size_t>(k)], depth, count, panel_floats + at, width_);
        });
        for (std::int64_t i = 0; i < tiles; ++i) {
          const std::int64_t m = row_begin + begin_of(i, tiles, rows), height = row_begin + begin_of(i + 1, tiles, rows) - m;
          float* const c = dst + place_of_output(joined_, m, of.first);
          if (k == 0 && bias)
            for (std::int64_t r = 0; r < height; ++r) std::fill_n(c + r * row_c, of.count, bias[m + r]);
          multiply(height, of.count, depth, weight + m * w_.elements + k, w_.elements, panel_floats, k > 0 || bias ? c : nullptr, c, row_c);
        }
      }
    }
  }

  void input_part(const float* diff, const float* weight, float* into, std::int64_t row_begin, std::int64_t row_end) const {
    Scratch& scratch = scratch_of_thread();
    const std::int64_t most = even_depth(w_.outs), rows = row_end - row_begin, tiles = divide_up(rows, product_.tile_height);
    for (std::int64_t o = 0; o < w_.outs; o += most) {
      const std::int64_t depth = std::min(most, w_.outs - o), strip = product_.strip_floats(depth);
      // A few rows of the weight at a time: they lie far apart, and all strips take their part of them while they are in the cache.
      for (std::int64_t at = 0; at < depth; at += strip_step)
        for (std::int64_t i = 0; i < tiles; ++i) {
          const std::int64_t m = row_begin + begin_of(i, tiles, rows), height = row_begin + begin_of(i + 1, tiles, rows) - m;
          product_.pack_strip(weight + (o + at) * w_.elements + m, w_.elements, height, std::min(strip_step, depth - at),
                              scratch.strips + i * strip + at * product_.tile_height);
        }
      for (std::int64_t p = 0; p < panels_; ++p) {
        const Pixels of = panel(p);
        product_.pack_panel(diff + place_of_output(joined_, o, of.first), row_of_outputs(joined_), false, of.count, depth, scratch.panel);
        for (std::int64_t i = 0; i < tiles; ++i) {
          const std::int64_t m = begin_of(i, tiles, rows), height = begin_of(i + 1, tiles, rows) - m;
          multiply(height, of.count, depth, scratch.strips + i * strip, 0, scratch.panel, nullptr, scratch.tiles + m * width_, width_);
        }
        for_runs(of, [&](std::int64_t at, std::int64_t place, std::int64_t count) {
          loops_.add_rows(scratch.tiles + at, width_, &w_.offsets[static_cast<std::size_t>(row_begin)], rows, count, into + place);
        });
      }
    }
  }

  void weight_part(const float* picture, const float* diff, float* diff_weight, std::int64_t row_begin, std::int64_t row_end,
                   std::int64_t k, std::int64_t k_end, bool add) const {
    Scratch& scratch = scratch_of_thread();
    const std::int64_t rows = row_end - row_begin, tiles = divide_up(rows, product_.tile_height), columns = k_end - k;
    const std::int64_t together = joined_sums_ ? all_ : w_.pixels, most = even_depth(together);
    for (std::int64_t begin = 0; begin < all_; begin += together)
      for (std::int64_t at_pixel = 0; at_pixel < together; at_pixel += most) {
        const Pixels of{begin + at_pixel, std::min(most, together - at_pixel)};
        for_runs(of, [&](std::int64_t at, std::int64_t place, std::int64_t count) {
          loops_.take_rows(picture + place, &w_.offsets[static_cast<std::size_t>(k)], columns, count, scratch.rows + at, most_depth);
        });
        product_.pack_panel(scratch.rows, most_depth, true, columns, of.count, scratch.panel);
        for (std::int64_t i = 0; i < tiles; ++i) {
          const std::int64_t m = row_begin + begin_of(i, tiles, rows), height = row_begin + begin_of(i + 1, tiles, rows) - m;
          float* const c = diff_weight + m * w_.elements + k;
          multiply(height, columns, of.count, diff + place_of_output(joined_sums_, m, of.first), row_of_outputs(joined_sums_),
                   scratch.panel, add ? c : nullptr, c, w_.elements);
        }
        add = true;
      }
  }

  void multiply(std::int64_t height, std::int64_t width, std::int64_t depth, const float* a, std::int64_t row_a, const float* panel,
                const float* add, float* c, std::int64_t row_c) const {
    product_.multiply({height, width, depth, a, row_a, panel, nullptr, add, c, row_c, c, panel, 0, 0});
  }

  std::unique_ptr<CpuConvolution> mirrored_;  // or null
  cpu::Windows w_;
  const cpu::ProductLoops& product_;
  const cpu::ConvolutionLoops& loops_;
  std::int64_t width_, all_, panels_ = 0;      // columns of a panel; pixels of all samples
  bool joined_ = false, joined_sums_ = false;  // the pixels of all samples are one row of outputs
};

Refusal refuse(const Device& device, const ConvolutionSpec& spec) {
  if (auto reason = cpu::refusal(device, Type::f32)) return reason;
  if (spec.groups != 1) return "it is for one group";
  if (spec.src.empty() || spec.src.size() > 2) return "it is for one and two dimensions";
  if (spec.batch == 0) return "there is nothing to do";
  return {};
}

}  // namespace

constexpr Implementation<Convolution, ConvolutionSpec> cpu_convolution{"cpu", refuse, construct<CpuConvolution>};

}  // namespace ppengine::ops
