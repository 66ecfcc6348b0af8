// An op of one's own: y = x * sigmoid(beta * x) with a beta per channel that is learned. Its kernels are SYCL source, compiled at run time
// for whatever device there is.
#pragma once

#include <memory>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/ops/device/source_kernels.hpp>

namespace example {

using namespace ppengine;

inline constexpr const char* swish_kernels = R"(#include "common.hpp"
inline float sigmoid(float x) { return 1.0f / (1.0f + sycl::exp(-x)); }

KERNEL_1D swish(const float* x, const float* beta, float* y, long rows, long width) {
  const long i = item_1d().get_global_id(0);
  if (i < rows * width) y[i] = x[i] * sigmoid(beta[i % width] * x[i]);
}

// dL/dx = dL/dy * (s + beta x s (1 - s))
KERNEL_1D swish_backward(const float* x, const float* beta, const float* dy, float* dx, long rows, long width) {
  const long i = item_1d().get_global_id(0);
  if (i >= rows * width) return;
  const float b = beta[i % width], s = sigmoid(b * x[i]);
  dx[i] = dy[i] * (s + b * x[i] * s * (1.0f - s));
}

// dL/dbeta = sum over rows of dL/dy * x^2 s (1 - s); a work-item has a channel.
KERNEL_1D swish_weights(const float* x, const float* beta, const float* dy, float* dbeta, long rows, long width, long accumulate) {
  const long c = item_1d().get_global_id(0);
  if (c >= width) return;
  float sum = accumulate ? dbeta[c] : 0.0f;
  for (long row = 0; row < rows; ++row) {
    const long i = row * width + c;
    const float s = sigmoid(beta[c] * x[i]);
    sum += dy[i] * x[i] * x[i] * s * (1.0f - s);
  }
  dbeta[c] = sum;
}
)";

// The op for one shape on one device: which instructions its forward and the two halves of its backward are.
class CompiledSwish final : public engine::CompiledNode {
 public:
  CompiledSwish(ops::Device& device, std::int64_t rows, std::int64_t width)
      : kernels_(device, "swish", swish_kernels), rows_(rows), width_(width) {}

  void forward(engine::Emitter& emit) override {
    const auto x = emit.input(0), beta = emit.parameter(0), y = emit.output();
    emit.forward({x, beta}, {y}, [=, this](const engine::Run& run) {
      kernels_.launch(run.stream, "swish", rows_ * width_, {run.at(x), run.at(beta), run.at(y), rows_, width_});
    });
  }

  void backward(engine::Emitter& emit) override {
    const auto x = emit.input(0), beta = emit.parameter(0), dy = emit.output_gradient(), dbeta = emit.parameter_gradient(0);
    if (const auto dx = emit.begin_gradient(0, false)) {
      emit.input_half({x, beta, dy}, {dx.diff}, [=, this](const engine::Run& run) {
        kernels_.launch(run.stream, "swish_backward", rows_ * width_,
                        {run.at(x), run.at(beta), run.at(dy), run.at(dx.diff), rows_, width_});
      });
      emit.finish_gradient(0, dx);
    }
    emit.parameter_gradients({x, beta, dy}, [=, this](const engine::Run& run, bool accumulate) {
      kernels_.launch(run.stream, "swish_weights", width_,
                      {run.at(x), run.at(beta), run.at(dy), run.at(dbeta), rows_, width_, std::int64_t{accumulate}});
    });
  }

 private:
  ops::SourceKernels kernels_;
  std::int64_t rows_, width_;
};

class Swish final : public engine::NodeOp {
 public:
  explicit Swish(std::int64_t width) : width_(width) {}
  const char* kind() const override { return "swish"; }
  double flops(const engine::Graph&, const engine::Node&, std::int64_t batch, std::int64_t length) const override {
    return 10.0 * static_cast<double>(batch * length * width_);
  }
  std::unique_ptr<engine::CompiledNode> compile(ops::Device& device, const engine::Graph&, const engine::Node& node,
                                                const engine::NodePlan&, const engine::CompileOptions& options) const override {
    if (options.type != ops::Type::f32) throw ConfigError(node.module + ": swish is written for f32");
    return std::make_unique<CompiledSwish>(device, options.batch * options.length, width_);
  }

 private:
  std::int64_t width_;
};

// The node in a graph, as module `name` with the parameter `name`.beta. It begins as SiLU: every beta is 1.
inline engine::Value swish(engine::Graph& graph, engine::Value x, const std::string& name, std::int64_t width) {
  const auto module = graph.module(name);
  return graph.custom(std::make_shared<Swish>(width), {x}, {{.name = "beta", .shape = {width}, .init = engine::Init::ones}}, width);
}

}  // namespace example
