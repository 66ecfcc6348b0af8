// Group norm over [batch, channels, ...]: an op on CPUs, generated kernels elsewhere.
#include <ppengine/ops/group_norm.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/tensor/builder.hpp>

namespace ppengine::engine {
namespace {

// The work of the node in kernels over [samples, groups, channels of a group, places].
struct Generated {
  std::vector<std::int64_t> dims;
  std::string epsilon;
  bool affine;
  Access whole() const { return dense_access(dims); }
  Access by_group() const { return {0, {dims[1], 1, 0, 0}, 'f'}; }
  Access by_row() const { return {0, {dims[1] * dims[2], dims[2], 1, 0}, 'f'}; }  // [samples, channels]
  Access by_channel() const { return {0, {0, dims[2], 1, 0}, 'f'}; }
  float share() const { return 1.0f / static_cast<float>(std::max<std::int64_t>(1, dims[2] * dims[3])); }

  void forward(Emitter& emit, BufferId x, BufferId gamma, BufferId beta, BufferId y, BufferId mean, BufferId rstd) const {
    const auto reduce = [&](const char* code, std::vector<Access> inputs) {
      return make_reduce(
          emit.kernels(),
          {.kept = {dims[0], dims[1]}, .reduced = {dims[2], dims[3]}, .inputs = std::move(inputs), .code = code, .scale = share()});
    };
    const std::vector<std::int64_t> groups{dims[0] * dims[1]};
    emit_launch(emit, true, reduce("const float x = v0;", {whole()}), {x}, {mean});
    emit_launch(emit, true, reduce("const float x = (v0 - v1) * (v0 - v1);", {whole(), by_group()}), {x, mean}, {rstd});
    const Launch invert = make_map(emit.kernels(), {.dims = groups,
                                                    .inputs = {dense_access(groups)},
                                                    .outputs = {dense_access(groups)},
                                                    .code = fmt::format("      r0 = 1.0f / sycl::sqrt(v0 + {});\n", epsilon)});
    emit_launch(emit, true, invert, {rstd}, {rstd});
    MapSpec spec{.dims = dims, .inputs = {whole(), by_group(), by_group()}, .outputs = {whole()}, .code = "      r0 = (v0 - v1) * v2;\n"};
    std::vector<BufferId> inputs{x, mean, rstd};
    if (affine) {
      spec.inputs.insert(spec.inputs.end(), {by_channel(), by_channel()});
      inputs.insert(inputs.end(), {gamma, beta});
      spec.code = "      r0 = (v0 - v1) * v2 * v3 + v4;\n";
    }
    emit_launch(emit, true, make_map(emit.kernels(), std::move(spec)), inputs, {y});
  }

  void backward(Emitter& emit, BufferId g, BufferId x, BufferId mean, BufferId rstd, BufferId gamma, BufferId diff, BufferId sums,
                BufferId products) const {
    const auto rows = [&](const char* code, std::vector<Access> inputs) {
      return make_reduce(emit.kernels(),
                         {.kept = {dims[0], dims[1], dims[2]}, .reduced = {dims[3]}, .inputs = std::move(inputs), .code = code});
    };
    emit_launch(emit, false, rows("const float x = v0;", {whole()}), {g}, {sums});
    emit_launch(emit, false, rows("const float x = v0 * (v1 - v2) * v3;", {whole(), whole(), by_group(), by_group()}), {g, x, mean, rstd},
                {products});
    const std::size_t bytes = static_cast<std::size_t>(dims[0] * dims[1]) * sizeof(float);
    const BufferId level = emit.workspace(bytes), along = emit.workspace(bytes);
    for (const auto& [from, to] : {std::pair(sums, level), std::pair(products, along)}) {
      const Access row{0, {dims[1] * dims[2], dims[2], 1}, 'f'}, channel{0, {0, dims[2], 1}, 'f'};
      const Launch launch = make_reduce(emit.kernels(), {.kept = {dims[0], dims[1]},
                                                         .reduced = {dims[2]},
                                                         .inputs = affine ? std::vector<Access>{row, channel} : std::vector<Access>{row},
                                                         .code = affine ? "const float x = v0 * v1;" : "const float x = v0;",
                                                         .scale = share()});
      emit_launch(emit, false, launch, affine ? std::vector<BufferId>{from, gamma} : std::vector<BufferId>{from}, {to});
    }
    MapSpec spec{.dims = dims,
                 .inputs = {whole(), whole(), by_group(), by_group(), by_group(), by_group()},
                 .outputs = {whole()},
                 .code = fmt::format("      r0 = v3 * (v0{} - v4 - (v1 - v2) * v3 * v5);\n", affine ? " * v6" : "")};
    std::vector<BufferId> inputs{g, x, mean, rstd, level, along};
    if (affine) spec.inputs.push_back(by_channel()), inputs.push_back(gamma);
    emit_launch(emit, false, make_map(emit.kernels(), std::move(spec)), inputs, {diff});
  }
};

}  // namespace

TensorRef TensorBuilder::group_norm(const TensorRef& from, std::int64_t groups, const TensorRef& gamma, const TensorRef& beta,
                                    double epsilon) {
  const TensorRef src = dense(read(from));
  if (!src.shape[1].constant() || groups <= 0 || src.shape[1].fixed % groups != 0)
    throw ConfigError(fmt::format("group_norm: {} channels cannot be divided into {} groups", src.shape[1].text(), groups));
  const std::int64_t channels = src.shape[1].fixed;
  const Dim places = count_of({src.shape.begin() + 2, src.shape.end()});
  const bool affine = gamma.exists();
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t samples = c.samples, n = src.shape[0].at(samples), s = places.at(samples);
    const std::shared_ptr<ops::GroupNorm> op = ops::GroupNorm::make(c.device, {n, channels, groups, s, static_cast<float>(epsilon)});
    const Generated kernels{{n, groups, channels / groups, s}, number_text(epsilon), affine};
    const std::size_t of_groups = static_cast<std::size_t>(n * groups) * sizeof(float),
                      of_rows = static_cast<std::size_t>(n * channels) * sizeof(float);
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), y = emit.output(), w = affine ? emit.parameter(0) : no_buffer,
                     b = affine ? emit.parameter(1) : no_buffer;
      const BufferId mean = emit.saved("mean", of_groups), rstd = emit.saved("rstd", of_groups);
      if (!op) return kernels.forward(emit, x, w, b, y, mean, rstd);
      emit.forward({x, w, b}, {y, mean, rstd}, [=](const Run& run) {
        op->forward(run.stream, run.as<float>(x), run.as<float>(w), run.as<float>(b), run.as<float>(y), run.as<float>(mean),
                    run.as<float>(rstd));
      });
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), g = emit.output_gradient(), w = affine ? emit.parameter(0) : no_buffer;
      const BufferId mean = emit.saved("mean", of_groups), rstd = emit.saved("rstd", of_groups);
      const BufferId sums = emit.saved("sums", of_rows), products = emit.saved("products", of_rows);
      const GradientTarget target = emit.begin_gradient(0, false);
      const BufferId diff = target ? target.diff : emit.workspace(emit.value_bytes_of_input(0));
      if (op)
        emit.input_half({g, x, mean, rstd, w}, {diff, sums, products}, [=](const Run& run) {
          op->backward(run.stream, run.as<float>(g), run.as<float>(x), run.as<float>(mean), run.as<float>(rstd), run.as<float>(w),
                       run.as<float>(diff), run.as<float>(sums), run.as<float>(products));
        });
      else
        kernels.backward(emit, g, x, mean, rstd, w, diff, sums, products);
      emit.finish_gradient(0, target);
      if (!affine) return;
      const BufferId dw = emit.parameter_gradient(0), db = emit.parameter_gradient(1);
      if (op)
        return emit.parameter_gradients({sums, products}, [=](const Run& run, bool accumulate) {
          op->backward_weight(run.stream, run.as<float>(sums), run.as<float>(products), run.as<float>(dw), run.as<float>(db), accumulate);
        });
      const Launch add = make_map(emit.kernels(), {.dims = {channels},
                                                   .inputs = {dense_access({channels}), dense_access({channels})},
                                                   .outputs = {dense_access({channels})},
                                                   .code = "      r0 = v0 + v1;\n"});
      const Launch total = make_reduce(emit.kernels(), {.kept = {channels}, .reduced = {n}, .inputs = {{0, {1, channels}, 'f'}}});
      const BufferId room = emit.workspace(static_cast<std::size_t>(channels) * sizeof(float));
      emit.parameter_gradients({sums, products}, {room}, [=](const Run& run, bool accumulate) {
        for (const auto& [rows, to] : {std::pair(products, dw), std::pair(sums, db)}) {
          if (to == no_buffer) continue;
          total(run.stream, {run.at(rows), accumulate ? run.at(room) : run.at(to)});
          if (accumulate) add(run.stream, {run.at(to), run.at(room), run.at(to)});
        }
      });
    };
    return TensorEmission{forward, backward};
  };
  return add_node("group_norm", {src}, affine ? std::vector<int>{gamma.parameter, beta.parameter} : std::vector<int>{}, src.shape, 'f',
                  compile, [count = count_of(src.shape)](std::int64_t samples) { return 10.0 * double(count.at(samples)); });
}

}  // namespace ppengine::engine
