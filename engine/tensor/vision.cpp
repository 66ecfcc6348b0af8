// Convolutions and pooling over [batch, channels, ...].
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/tensor/builder.hpp>
#include <ppengine/engine/tensor/plain_convolution.hpp>
#include <ppengine/ops/convolution.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/pooling.hpp>

namespace ppengine::engine {
namespace {

std::int64_t fixed_size(const Dim& dim, const char* what) {
  if (!dim.constant()) throw ConfigError(fmt::format("{}: only the first dimension may be the batch, not {}", what, dim.text()));
  return dim.fixed;
}

// [N, C, H, W] as numbers of a loop: 16 N*C, 17 H, 18 W, 19 OH, 20 OW, then kernel, stride, padding, dilation of both.
std::vector<std::int64_t> pool_numbers(const TensorRef& src, const PoolOptions& o, std::int64_t height, std::int64_t width,
                                       std::int64_t samples) {
  return {(src.shape[0] * src.shape[1]).at(samples),
          src.shape[2].fixed,
          src.shape[3].fixed,
          height,
          width,
          o.kernel[0],
          o.kernel[1],
          o.stride[0],
          o.stride[1],
          o.padding[0],
          o.padding[1],
          o.dilation[0],
          o.dilation[1],
          o.count_padding ? 1 : 0};
}

// Places of one plane are counted in 32 bits: divisions are what these kernels spend their time on.
constexpr const char* pool_names =
    "const int H = q.n[17], W = q.n[18], OH = q.n[19], OW = q.n[20], KH = q.n[21], KW = q.n[22], SH = q.n[23], SW = q.n[24], PH = q.n[25], "
    "PW = q.n[26], DH = q.n[27], DW = q.n[28];\n";
constexpr const char* pool_output =
    "const long c = i / (OH * OW); const int rest = (int)(i - c * (OH * OW)), y = rest / OW, x = rest - y * OW;\n"
    "const float* from = (const float*)p0 + c * (H * W);\n";
constexpr const char* pool_input =
    "const long c = i / (H * W); const int me = (int)(i - c * (H * W)), h = me / W, w = me - h * W; float sum = 0;\n";
// The outputs whose windows may hold a place: rows [y0, y1], columns [x0, x1].
constexpr const char* pool_windows =
    "const int reach_h = (KH - 1) * DH, reach_w = (KW - 1) * DW;\n"
    "const int y0 = h + PH <= reach_h ? 0 : (h + PH - reach_h + SH - 1) / SH, y1 = (h + PH) / SH < OH ? (h + PH) / SH : OH - 1;\n"
    "const int x0 = w + PW <= reach_w ? 0 : (w + PW - reach_w + SW - 1) / SW, x1 = (w + PW) / SW < OW ? (w + PW) / SW : OW - 1;\n";

}  // namespace

TensorRef TensorBuilder::max_pool(const TensorRef& from, const PoolOptions& options, std::int64_t height, std::int64_t width) {
  const TensorRef src = dense(read(from));
  const Dims out{src.shape[0], src.shape[1], height, width};
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples, outputs = count_of(out).at(samples), inputs = count_of(src.shape).at(samples);
    const auto numbers = pool_numbers(src, options, height, width, samples);
    const std::size_t bytes = static_cast<std::size_t>(outputs) * sizeof(std::int32_t);
    const std::int64_t planes = std::max<std::int64_t>(1, (src.shape[0] * src.shape[1]).at(samples));
    const bool on_cpu = c.device.info().is_cpu;
    const auto forward = [=](Emitter& emit) {
      const std::string body =
          std::string(pool_names) + pool_output +
          "float best = -__builtin_inff(); int where = -1;\n"
          "for (int a = 0; a < KH; ++a) for (int b = 0; b < KW; ++b) { const int h = y * SH - PH + a * DH, w = x * SW - PW + b * DW;\n"
          "if (h < 0 || w < 0 || h >= H || w >= W) continue; const float v = from[h * W + w];\n"
          "if (where < 0 || v > best || v != v) { best = v; where = h * W + w; } }\n"
          "((float*)p1)[i] = best; ((int*)p2)[i] = where;";
      emit_launch(emit, true, make_loop(emit.kernels(), outputs, 3, body, numbers), {emit.input(0)},
                  {emit.output(), emit.saved("where", bytes)});
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      if (on_cpu) {
        const BufferId g = emit.output_gradient(), where = emit.saved("where", bytes);
        emit.input_half({g, where}, {target.diff}, [=](const Run& run) {
          ops::scatter_planes(run.stream, run.as<float>(g), run.as<std::int32_t>(where), run.as<float>(target.diff), planes,
                              outputs / planes, inputs / planes);
        });
        return emit.finish_gradient(0, target);
      }
      // Every input looks at the windows that hold it.
      const std::string body = std::string(pool_names) + pool_input + pool_windows +
                               "for (int y = y0; y <= y1; ++y) for (int x = x0; x <= x1; ++x) { const long o = (c * OH + y) * OW + x;\n"
                               "if (((const int*)p1)[o] == me) sum += ((const float*)p0)[o]; }\n((float*)p2)[i] = sum;";
      emit_launch(emit, false, make_loop(emit.kernels(), inputs, 3, body, numbers), {emit.output_gradient(), emit.saved("where", bytes)},
                  {target.diff});
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("max_pool", {src}, {}, out, 'f', compile);
}

TensorRef TensorBuilder::average_pool(const TensorRef& from, const PoolOptions& options, std::int64_t height, std::int64_t width) {
  const TensorRef src = dense(read(from));
  const Dims out{src.shape[0], src.shape[1], height, width};
  // The number of elements of a window: with padding, but not with what lies behind it.
  constexpr const char* count =
      "const int h0 = y * SH - PH, w0 = x * SW - PW, h1 = lesser(h0 + KH, H + PH), w1 = lesser(w0 + KW, W + PW);\n"
      "const int area = q.n[29] ? (h1 - h0) * (w1 - w0) : (int)((lesser(h1, H) - greater(h0, 0)) * (lesser(w1, W) - greater(w0, 0)));\n";
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples, outputs = count_of(out).at(samples), inputs = count_of(src.shape).at(samples);
    const auto numbers = pool_numbers(src, options, height, width, samples);
    const auto forward = [=](Emitter& emit) {
      const std::string body = std::string(pool_names) + pool_output + count +
                               "float sum = 0; for (long h = greater(h0, 0); h < lesser(h1, H); ++h) for (long w = greater(w0, 0); w < "
                               "lesser(w1, W); ++w) sum += from[h * W + w];\n"
                               "((float*)p1)[i] = sum / (float)area;";
      emit_launch(emit, true, make_loop(emit.kernels(), outputs, 2, body, numbers), {emit.input(0)}, {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      const std::string body = std::string(pool_names) + pool_input + pool_windows +
                               "for (int y = y0; y <= y1; ++y) for (int x = x0; x <= x1; ++x) {\n" + count +
                               "sum += ((const float*)p0)[(c * OH + y) * OW + x] / (float)area; }\n((float*)p1)[i] = sum;";
      emit_launch(emit, false, make_loop(emit.kernels(), inputs, 2, body, numbers), {emit.output_gradient()}, {target.diff});
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("average_pool", {src}, {}, out, 'f', compile);
}

TensorRef TensorBuilder::adaptive_average_pool(const TensorRef& from, std::int64_t height, std::int64_t width) {
  const std::int64_t rows = fixed_size(from.shape[2], "adaptive_avg_pool"), columns = fixed_size(from.shape[3], "adaptive_avg_pool");
  if (height == 1 && width == 1) return mean(from, {2, 3}, true);
  if (rows % height == 0 && columns % width == 0) {
    PoolOptions options;
    options.kernel[0] = options.stride[0] = rows / height;
    options.kernel[1] = options.stride[1] = columns / width;
    return average_pool(from, options, height, width);
  }
  const TensorRef src = dense(read(from));
  const Dims out{src.shape[0], src.shape[1], height, width};
  constexpr const char* window =
      "const int h0 = y * H / OH, h1 = ((y + 1) * H + OH - 1) / OH, w0 = x * W / OW, w1 = ((x + 1) * W + OW - 1) / OW;\n";
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t outputs = count_of(out).at(c.samples), inputs = count_of(src.shape).at(c.samples);
    const auto numbers = pool_numbers(src, {}, height, width, c.samples);
    const auto forward = [=](Emitter& emit) {
      const std::string body = std::string(pool_names) + pool_output + window +
                               "float sum = 0; for (int h = h0; h < h1; ++h) for (int w = w0; w < w1; ++w) sum += from[h * W + w];\n"
                               "((float*)p1)[i] = sum / (float)((h1 - h0) * (w1 - w0));";
      emit_launch(emit, true, make_loop(emit.kernels(), outputs, 2, body, numbers), {emit.input(0)}, {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      const std::string body = std::string(pool_names) + pool_input + "for (int y = 0; y < OH; ++y) for (int x = 0; x < OW; ++x) {\n" +
                               window +
                               "if (h >= h0 && h < h1 && w >= w0 && w < w1) sum += ((const float*)p0)[(c * OH + y) * OW + x] / (float)((h1 "
                               "- h0) * (w1 - w0)); }\n"
                               "((float*)p1)[i] = sum;";
      emit_launch(emit, false, make_loop(emit.kernels(), inputs, 2, body, numbers), {emit.output_gradient()}, {target.diff});
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return add_node("adaptive_average_pool", {src}, {}, out, 'f', compile);
}

TensorRef TensorBuilder::convolution(const TensorRef& from, const TensorRef& given_weight, const TensorRef& bias,
                                     const ConvolutionOptions& o) {
  const TensorRef src = dense(read(from));
  // A weight that the program computes (weight norm) is an input like any other, and gets its gradient as one.
  const bool computed = given_weight.parameter < 0 || !given_weight.dense() || (bias.exists() && (bias.parameter < 0 || !bias.dense()));
  if (computed && bias.exists()) {
    Dims by_channel(src.shape.size(), Dim(1));
    by_channel[1] = count_of(bias.shape);
    return apply("$0 + $1", {"$g", "$g"}, {convolution(src, given_weight, {}, o), reshape(bias, by_channel)});
  }
  const TensorRef weight = computed ? dense(read(given_weight)) : given_weight;
  const std::size_t spatial = src.shape.size() - 2;
  const std::int64_t channels = fixed_size(src.shape[1], "convolution");
  const std::int64_t outs = o.transposed ? weight.shape[1].fixed * o.groups : weight.shape[0].fixed;
  ops::ConvolutionSpec spec;
  spec.groups = o.groups;
  spec.stride = o.stride, spec.padding = o.padding, spec.dilation = o.dilation;
  Dims out{src.shape[0], outs};
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t size = fixed_size(src.shape[2 + i], "convolution"), kernel = weight.shape[2 + i].fixed,
                       reach = o.dilation[i] * (kernel - 1) + 1;
    const std::int64_t made = o.transposed ? (size - 1) * o.stride[i] - 2 * o.padding[i] + reach + o.output_padding[i]
                                           : (size + 2 * o.padding[i] - reach) / o.stride[i] + 1;
    out.emplace_back(made);
    spec.kernel.push_back(kernel);
    spec.src.push_back(o.transposed ? made : size);
    spec.dst.push_back(o.transposed ? size : made);
  }
  // A transposed convolution is the input gradient of one from its outputs to its inputs.
  spec.in_channels = o.transposed ? outs : channels;
  spec.out_channels = o.transposed ? channels : outs;
  const bool has_bias = bias.exists(), transposed = o.transposed;
  spec.bias = has_bias && !transposed;
  std::vector<int> parameters;
  if (!computed) parameters.push_back(weight.parameter);
  if (has_bias) parameters.push_back(bias.parameter);
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples;
    ops::ConvolutionSpec mine = spec;
    mine.batch = src.shape[0].at(samples);
    const std::shared_ptr<ops::Convolution> by_onednn = ops::Convolution::make(c.device, mine);
    const auto choose = [=](Emitter& emit) { return by_onednn ? by_onednn : make_plain_convolution(emit.kernels(), mine); };
    const auto out_dims = at(out, samples);
    std::int64_t places = 1;
    for (std::size_t i = 2; i < out_dims.size(); ++i) places *= out_dims[i];
    const std::vector<std::int64_t> flat{mine.batch, outs, places};
    const auto forward = [=](Emitter& emit) {
      const std::shared_ptr<ops::Convolution> op = choose(emit);
      const BufferId x = emit.input(0), w = computed ? emit.input(1) : emit.parameter(0), b = has_bias ? emit.parameter(1) : no_buffer,
                     y = emit.output();
      const BufferId room = emit.workspace(op->workspace_bytes());
      emit.forward({x, w, b}, {y, room}, [=](const Run& run) {
        if (transposed)
          op->backward_input(run.stream, run.at(x), run.at(w), run.at(y), run.at(room));
        else
          op->forward(run.stream, run.at(x), run.at(w), run.at(b), run.at(y), run.at(room));
      });
      if (transposed && has_bias) {
        const Access whole = dense_access(flat), by_channel{0, {0, 1, 0}, 'f'};
        const Launch add =
            make_map(emit.kernels(), {.dims = flat, .inputs = {whole, by_channel}, .outputs = {whole}, .code = "      r0 = v0 + v1;\n"});
        emit_launch(emit, true, add, {y, b}, {y});
      }
    };
    const auto backward = [=](Emitter& emit) {
      const std::shared_ptr<ops::Convolution> op = choose(emit);
      const BufferId x = emit.input(0), w = computed ? emit.input(1) : emit.parameter(0), g = emit.output_gradient();
      if (const GradientTarget target = emit.begin_gradient(0, false)) {
        const BufferId room = emit.workspace(op->workspace_bytes());
        emit.input_half({g, w}, {target.diff, room}, [=](const Run& run) {
          if (transposed)
            op->forward(run.stream, run.at(g), run.at(w), nullptr, run.at(target.diff), run.at(room));
          else
            op->backward_input(run.stream, run.at(g), run.at(w), run.at(target.diff), run.at(room));
        });
        emit.finish_gradient(0, target);
      }
      if (computed) {
        if (const GradientTarget target = emit.begin_gradient(1, false)) {
          const BufferId room = emit.workspace(op->workspace_bytes()), wide = transposed ? g : x, narrow = transposed ? x : g;
          emit.input_half({wide, narrow}, {target.diff, room}, [=](const Run& run) {
            op->backward_weight(run.stream, run.at(wide), run.at(narrow), run.as<float>(target.diff), nullptr, false, run.at(room));
          });
          emit.finish_gradient(1, target);
        }
        return;
      }
      const BufferId dw = emit.parameter_gradient(0), db = has_bias ? emit.parameter_gradient(1) : no_buffer;
      const BufferId room = emit.workspace(op->workspace_bytes()), sums = emit.workspace(static_cast<std::size_t>(outs) * sizeof(float));
      const Launch sum =
          !transposed || !has_bias
              ? Launch()
              : make_reduce(emit.kernels(),
                            {.kept = {outs}, .reduced = {mine.batch, places}, .inputs = {{0, {places, outs * places, 1}, 'f'}}});
      emit.parameter_gradients({x, g}, {room, sums}, [=](const Run& run, bool accumulate) {
        if (!transposed)
          return op->backward_weight(run.stream, run.at(x), run.at(g), run.as<float>(dw), run.as<float>(db), accumulate, run.at(room));
        op->backward_weight(run.stream, run.at(g), run.at(x), run.as<float>(dw), nullptr, accumulate, run.at(room));
        if (!has_bias) return;
        sum(run.stream, {run.at(g), accumulate ? run.at(sums) : run.at(db)});
        if (accumulate) ops::add(run.stream, ops::Type::f32, run.at(db), run.at(sums), run.at(db), outs);
      });
    };
    return TensorEmission{forward, backward};
  };
  std::int64_t window = 1;
  for (std::int64_t one : spec.kernel) window *= one;
  const Dim work = transposed ? count_of(src.shape) : count_of(out);
  return add_node("convolution", computed ? std::vector<TensorRef>{src, weight} : std::vector<TensorRef>{src}, parameters, out, 'f',
                  compile, [=](std::int64_t samples) {
                    return 2.0 * double(work.at(samples)) * double(window) * double(transposed ? outs : channels) / double(o.groups);
                  });
}

}  // namespace ppengine::engine
