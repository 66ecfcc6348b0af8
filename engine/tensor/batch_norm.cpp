// Batch norm over [batch, channels, ...]: measured in training, over one rank's microbatch, over those of all data-parallel ranks, or over
// each sample alone (instance norm); running statistics otherwise.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/tensor/builder.hpp>
#include <ppengine/ops/channel_norm.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

// Data-parallel ranks have microbatches of one size: the mean of their means is that of all elements.
void mean_over_ranks(const Run& run, BufferId from, BufferId to, std::int64_t count) {
  if (!run.data) {
    if (from != to) run.stream.copy(run.at(to), run.at(from), static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  run.data->allreduce(run.at(from), run.at(to), static_cast<std::size_t>(count), ops::Type::f32, run.stream).wait_on(run.stream);
  ops::scale(run.stream, ops::Type::f32, run.at(to), 1.0f / static_cast<float>(run.data->size()), count);
}

}  // namespace

TensorRef TensorBuilder::batch_norm(const TensorRef& from, const BatchNorm& how) {
  const TensorRef src = dense(read(from));
  if (!src.shape[1].constant())
    throw ConfigError(fmt::format("batch_norm: only the first dimension may be the batch, not {}", src.shape[1].text()));
  const std::int64_t tracked = src.shape[1].fixed;
  const Dim spatial = count_of({src.shape.begin() + 2, src.shape.end()});
  const bool affine = how.gamma.exists(), tracks = how.mean.exists();
  std::vector<int> parameters;
  if (affine) parameters = {how.gamma.parameter, how.beta.parameter};
  const auto compile = [=](const TensorCompile& c) {
    const bool measures = (how.training && c.options.training) || !tracks, updates = how.training && c.options.training && tracks;
    // A sample's channels that are measured alone are channels of a single sample.
    const std::int64_t batch = src.shape[0].at(c.samples), s = spatial.at(c.samples);
    const bool alone = how.per_sample && measures;
    const std::int64_t n = alone ? 1 : batch, channels = alone ? batch * tracked : tracked, count = n * s;
    const std::vector<std::int64_t> dims{n, channels, s};
    const std::size_t bytes = static_cast<std::size_t>(channels) * sizeof(float);
    // Running statistics are no parameters of this node, which would ask for their gradients: they are looked up as another node's.
    const auto running = [=, node = &c.node, index = c.graph.values()[c.node.output].producer](Emitter& emit) {
      Node holder = *node;
      holder.parameters = {ParameterId(how.mean.parameter), ParameterId(how.variance.parameter)};
      emit.set_node(holder, index, {});
      const std::pair found(emit.parameter(0), emit.parameter(1));
      emit.set_node(*node, index, {});
      return found;
    };
    const std::string eps = number_text(how.epsilon);
    const std::shared_ptr<ops::ChannelNorm> on_cpu = ops::ChannelNorm::make(c.device, {n, channels, s, static_cast<float>(how.epsilon)});
    const Access whole = dense_access(dims), by_channel{0, {0, 1, 0}, 'f'};
    const Access reduced{0, {s, channels * s, 1}, 'f'}, reduced_channel{0, {1, 0, 0}, 'f'};  // kept: channel; reduced: sample, place
    const auto sums = [=](Emitter& emit, const char* code, std::vector<Access> inputs, float scale) {
      return make_reduce(emit.kernels(),
                         {.kept = {channels}, .reduced = {n, s}, .inputs = std::move(inputs), .code = code, .scale = scale});
    };
    const auto statistics = [=](Emitter& emit) {
      if (measures) return std::pair(emit.saved("mean", bytes), emit.saved("variance", bytes));
      return running(emit);
    };
    const auto forward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), y = emit.output();
      const auto [mean, variance] = statistics(emit);
      const float part = 1.0f / static_cast<float>(std::max<std::int64_t>(count, 1));
      if (measures) {
        if (on_cpu)
          emit.forward({x}, {mean}, [=](const Run& run) { on_cpu->mean(run.stream, run.as<float>(x), run.as<float>(mean)); });
        else
          emit_launch(emit, true, sums(emit, "const float x = v0;", {reduced}, part), {x}, {mean});
        if (how.over_ranks) emit.forward({mean}, {mean}, [=](const Run& run) { mean_over_ranks(run, mean, mean, channels); });
        if (on_cpu)
          emit.forward({x, mean}, {variance}, [=](const Run& run) {
            on_cpu->variance(run.stream, run.as<float>(x), run.as<float>(mean), run.as<float>(variance));
          });
        else
          emit_launch(emit, true, sums(emit, "const float x = (v0 - v1) * (v0 - v1);", {reduced, reduced_channel}, part), {x, mean},
                      {variance});
        if (how.over_ranks)
          emit.forward({variance}, {variance}, [=](const Run& run) { mean_over_ranks(run, variance, variance, channels); });
      }
      if (updates) {
        const auto [running_mean, running_variance] = running(emit);
        BufferId mean_of_all = mean, variance_of_all = variance;
        if (alone) {
          mean_of_all = emit.workspace(static_cast<std::size_t>(tracked) * sizeof(float));
          variance_of_all = emit.workspace(static_cast<std::size_t>(tracked) * sizeof(float));
          const Launch mean_of_samples =
              make_reduce(emit.kernels(), {.kept = {tracked},
                                           .reduced = {batch},
                                           .inputs = {{0, {1, tracked}, 'f'}},
                                           .scale = 1.0f / static_cast<float>(std::max<std::int64_t>(batch, 1))});
          emit_launch(emit, true, mean_of_samples, {mean}, {mean_of_all});
          emit_launch(emit, true, mean_of_samples, {variance}, {variance_of_all});
        }
        const Access one = dense_access({tracked});
        const Launch update =
            make_map(emit.kernels(), {.dims = {tracked},
                                      .inputs = {one, one, one, one},
                                      .outputs = {one, one},
                                      .code = fmt::format("      r0 = v2 * {0} + v0 * {1}; r1 = v3 * {0} + v1 * {1} * s;\n",
                                                          number_text(1.0 - how.momentum), number_text(how.momentum))});
        const std::vector<BufferId> read{mean_of_all, variance_of_all, running_mean, running_variance};
        emit.forward(read, {running_mean, running_variance}, [=](const Run& run) {
          const double all = double(count) * (run.data && !alone ? run.data->size() : 1), unbiased = all / std::max(all - 1.0, 1.0);
          update(run.stream,
                 {run.at(mean_of_all), run.at(variance_of_all), run.at(running_mean), run.at(running_variance), run.at(running_mean),
                  run.at(running_variance)},
                 static_cast<float>(unbiased));
        });
      }
      if (on_cpu) {
        const BufferId gamma = affine ? emit.parameter(0) : no_buffer, beta = affine ? emit.parameter(1) : no_buffer;
        return emit.forward({x, mean, variance, gamma, beta}, {y}, [=, m = mean, v = variance](const Run& run) {
          on_cpu->forward(run.stream, run.as<float>(x), run.as<float>(m), run.as<float>(v), run.as<float>(gamma), run.as<float>(beta),
                          run.as<float>(y));
        });
      }
      MapSpec spec{.dims = dims, .inputs = {whole, by_channel, by_channel}, .outputs = {whole}, .code = {}};
      std::vector<BufferId> inputs{x, mean, variance};
      spec.code = fmt::format("      r0 = (v0 - v1) * sycl::rsqrt(v2 + {})", eps);
      if (affine) {
        spec.inputs.insert(spec.inputs.end(), {by_channel, by_channel});
        inputs.insert(inputs.end(), {emit.parameter(0), emit.parameter(1)});
        spec.code += " * v3 + v4";
      }
      spec.code += ";\n";
      emit_launch(emit, true, make_map(emit.kernels(), std::move(spec)), inputs, {y});
    };
    const auto backward = [=](Emitter& emit) {
      const BufferId x = emit.input(0), g = emit.output_gradient();
      const auto [mean, variance] = statistics(emit);
      const BufferId sum = emit.saved("sum", bytes), product = emit.saved("product", bytes);
      if (on_cpu) {
        emit.input_half({g, x, mean, variance}, {sum, product}, [=, m = mean, v = variance](const Run& run) {
          on_cpu->sums(run.stream, run.as<float>(g), run.as<float>(x), run.as<float>(m), run.as<float>(v), run.as<float>(sum),
                       run.as<float>(product));
        });
      } else {
        emit_launch(emit, false, sums(emit, "const float x = v0;", {reduced}, 1.0f), {g}, {sum});
        const std::string code = fmt::format("const float x = v0 * (v1 - v2) * sycl::rsqrt(v3 + {});", eps);
        emit_launch(emit, false, sums(emit, code.c_str(), {reduced, reduced, reduced_channel, reduced_channel}, 1.0f),
                    {g, x, mean, variance}, {product});
      }
      if (const GradientTarget target = emit.begin_gradient(0, false)) {
        MapSpec spec{
            .dims = dims, .inputs = {whole, whole, by_channel, by_channel, by_channel, by_channel}, .outputs = {whole}, .code = {}};
        BufferId sum_of_all = sum, product_of_all = product;
        if (measures && how.over_ranks) {  // weights' gradients are summed by data-parallel ranks anyway, from each one's own
          sum_of_all = emit.workspace(bytes), product_of_all = emit.workspace(bytes);
          emit.input_half({sum, product}, {sum_of_all, product_of_all}, [=](const Run& run) {
            mean_over_ranks(run, sum, sum_of_all, channels);
            mean_over_ranks(run, product, product_of_all, channels);
          });
        }
        if (on_cpu) {
          const BufferId gamma = affine ? emit.parameter(0) : no_buffer, total = measures ? sum_of_all : no_buffer,
                         along = measures ? product_of_all : no_buffer;
          emit.input_half({g, x, mean, variance, total, along, gamma}, {target.diff}, [=, m = mean, v = variance](const Run& run) {
            on_cpu->backward_input(run.stream, run.as<float>(g), run.as<float>(x), run.as<float>(m), run.as<float>(v), run.as<float>(total),
                                   run.as<float>(along), run.as<float>(gamma), run.as<float>(target.diff));
          });
        }
        std::vector<BufferId> inputs{g, x, mean, variance, sum_of_all, product_of_all};
        const std::string part = number_text(1.0 / double(std::max<std::int64_t>(count, 1)));
        std::string inner = "v0";
        if (measures) inner = fmt::format("(v0 - v4 * {0} - (v1 - v2) * rstd * v5 * {0})", part);
        spec.code = fmt::format("      const float rstd = sycl::rsqrt(v3 + {}); r0 = {} * rstd{};\n", eps, inner, affine ? " * v6" : "");
        if (affine) spec.inputs.push_back(by_channel), inputs.push_back(emit.parameter(0));
        if (!on_cpu) emit_launch(emit, false, make_map(emit.kernels(), std::move(spec)), inputs, {target.diff});
        emit.finish_gradient(0, target);
      }
      if (!affine) return;
      const BufferId dw = emit.parameter_gradient(0), db = emit.parameter_gradient(1);
      emit.parameter_gradients({sum, product}, [=](const Run& run, bool accumulate) {
        const auto give = [&](BufferId made, BufferId to) {
          if (to == no_buffer) return;
          if (accumulate)
            ops::add(run.stream, ops::Type::f32, run.at(to), run.at(made), run.at(to), channels);
          else
            run.stream.copy(run.at(to), run.at(made), bytes);
        };
        give(product, dw), give(sum, db);
      });
    };
    return TensorEmission{forward, backward};
  };
  const TensorRef made = add_node("batch_norm", {src}, parameters, src.shape, 'f', compile,
                                  [count = count_of(src.shape)](std::int64_t samples) { return 10.0 * double(count.at(samples)); });
  if (tracks)  // keeps them in the stage; nothing ever runs it, so that no gradient and no update reaches them
    add_node(
        "running_statistics", {}, {how.mean.parameter, how.variance.parameter}, {tracked}, 'f',
        [](const TensorCompile&) { return TensorEmission{[](Emitter&) {}, [](Emitter&) {}}; }, [](std::int64_t) { return 0.0; });
  return made;
}

}  // namespace ppengine::engine
