// Random numbers of programs, and the places that max pooling took its values from.
#include <fmt/core.h>

#include <ppengine/base/hash.hpp>
#include <ppengine/engine/tensor/builder.hpp>

namespace ppengine::engine {

TensorRef TensorBuilder::random(const Dims& shape, bool normal) {
  const Dim count = count_of(shape);
  const std::uint64_t site = hash_text(fmt::format("{}#{}", module_, graph_.nodes().size()));
  const auto compile = [=, fixed_batch = fixed_batch_](const TensorCompile& c) {
    const std::int64_t elements = count.at(c.samples);
    const bool even = fixed_batch > 0 && count.fixed % fixed_batch == 0;
    // Numbers that belong to no sample are drawn anew for each microbatch.
    const std::int64_t per_sample = even ? count.fixed / fixed_batch : count.batch > 0 ? count.batch : elements;
    const auto forward = [=](Emitter& emit) {
      const char* uniform =
          "const RandomWords r = philox((unsigned long)q.n[14], (unsigned long)(i + q.n[15]));\n((float*)p0)[i] = (float)(r.w[0] >> 8) * "
          "5.96046448e-8f;";
      const char* bell =
          "const RandomWords r = philox((unsigned long)q.n[14], (unsigned long)(i + q.n[15]));\n"
          "const float a = (float)((r.w[0] >> 8) + 1) * 5.96046448e-8f, b = (float)(r.w[1] >> 8) * 5.96046448e-8f;\n"
          "((float*)p0)[i] = sycl::sqrt(-2.0f * sycl::log(a)) * sycl::cos(6.28318531f * b);";
      const Launch launch = make_loop(emit.kernels(), elements, 1, normal ? bell : uniform, {});
      const BufferId to = emit.output();
      emit.forward({}, {to},
                   [=](const Run& run) { launch(run.stream, {run.at(to)}, run.dropout_key ^ site, run.first_sequence * per_sample); });
    };
    return TensorEmission{forward, [](Emitter&) {}};
  };
  return add_node("random", {}, {}, shape, 'f', compile, {}, false);
}

TensorRef TensorBuilder::max_pool_places(const TensorRef& from, const PoolOptions& o, std::int64_t height, std::int64_t width) {
  const TensorRef src = dense(read(from));
  const Dims out{src.shape[0], src.shape[1], height, width};
  const auto compile = [=](const TensorCompile& c) {
    const std::vector<std::int64_t> numbers{src.shape[2].fixed, src.shape[3].fixed, height,        width,
                                            o.kernel[0],        o.kernel[1],        o.stride[0],   o.stride[1],
                                            o.padding[0],       o.padding[1],       o.dilation[0], o.dilation[1]};
    const std::int64_t outputs = count_of(out).at(c.samples);
    const auto forward = [=](Emitter& emit) {
      const char* body =
          "const long H = q.n[16], W = q.n[17], OH = q.n[18], OW = q.n[19]; const long c = i / (OH * OW), y = i / OW % OH, x = i % OW;\n"
          "const float* from = (const float*)p0 + c * H * W; float best = -__builtin_inff(); long where = -1;\n"
          "for (long a = 0; a < q.n[20]; ++a) for (long b = 0; b < q.n[21]; ++b) {\n"
          "const long h = y * q.n[22] - q.n[24] + a * q.n[26], w = x * q.n[23] - q.n[25] + b * q.n[27];\n"
          "if (h < 0 || w < 0 || h >= H || w >= W) continue; const float v = from[h * W + w];\n"
          "if (where < 0 || v > best || v != v) { best = v; where = h * W + w; } }\n((int*)p1)[i] = (int)where;";
      emit_launch(emit, true, make_loop(emit.kernels(), outputs, 2, body, numbers), {emit.input(0)}, {emit.output()});
    };
    return TensorEmission{forward, [](Emitter&) {}};
  };
  return add_node("max_pool_places", {src}, {}, out, 'i', compile, {}, false);
}

}  // namespace ppengine::engine
