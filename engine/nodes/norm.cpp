// Layer norm and RMS norm as nodes.
#include <ppengine/ops/norm.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

class CompiledNorm : public CompiledNode {
 public:
  CompiledNorm(ops::Device& device, const ops::NormSpec& spec, int ranks)
      : spec_(spec), ranks_(ranks), op_(ops::Norm::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), gamma = emit.parameter(0), beta = spec_.bias ? emit.parameter(1) : no_buffer;
    const BufferId dst = emit.output(), mean = saved_mean(emit), rstd = emit.saved("rstd", statistics_bytes());
    emit.forward({src, gamma, beta}, {dst, mean, rstd}, [=, op = op_.get()](const Run& run) {
      op->forward(run.stream, run.at(src), run.at(gamma), run.at(beta), run.at(dst), run.as<float>(mean), run.as<float>(rstd));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId src = emit.input(0), gamma = emit.parameter(0), diff_dst = emit.output_gradient();
    const BufferId mean = saved_mean(emit), rstd = emit.saved("rstd", statistics_bytes());
    if (const GradientTarget target = emit.begin_gradient(0, true)) {
      emit.input_half({src, diff_dst, gamma, mean, rstd, target.add}, {target.diff}, [=, op = op_.get()](const Run& run) {
        op->backward_input(run.stream, run.at(src), run.at(diff_dst), run.at(gamma), run.as<float>(mean), run.as<float>(rstd),
                           run.at(target.add), run.at(target.diff));
      });
      emit.finish_gradient(0, target);
    }
    const BufferId diff_gamma = emit.parameter_gradient(0), diff_beta = spec_.bias ? emit.parameter_gradient(1) : no_buffer;
    if (ranks_ > 1) return sum_parameter_gradients(emit, {src, diff_dst, mean, rstd}, diff_gamma, diff_beta);
    emit.parameter_gradients({src, diff_dst, mean, rstd}, [=, op = op_.get()](const Run& run, bool accumulate) {
      op->backward_weight(run.stream, run.at(src), run.at(diff_dst), run.as<float>(mean), run.as<float>(rstd), run.as<float>(diff_gamma),
                          run.as<float>(diff_beta), accumulate);
    });
  }

 private:
  // Each rank's tokens give a summand: what is added to the gradients is the sum, so that they are whole on every rank, as for all
  // parameters that are not divided, and whatever reduces them over other axes need not know.
  void sum_parameter_gradients(Emitter& emit, const std::vector<BufferId>& reads, BufferId diff_gamma, BufferId diff_beta) {
    const BufferId src = reads[0], diff_dst = reads[1], mean = reads[2], rstd = reads[3];
    const auto width = static_cast<std::size_t>(spec_.width), count = spec_.bias ? 2 * width : width;
    const BufferId summands = emit.workspace(count * sizeof(float));
    emit.parameter_gradients(reads, {summands}, [=, op = op_.get(), bias = spec_.bias](const Run& run, bool accumulate) {
      float* const gamma = run.as<float>(summands);
      float* const beta = bias ? gamma + width : nullptr;
      op->backward_weight(run.stream, run.at(src), run.at(diff_dst), run.as<float>(mean), run.as<float>(rstd), gamma, beta, false);
      if (run.tensor) run.tensor->allreduce(gamma, count, ops::Type::f32, run.stream).wait_on(run.stream);
      const auto put = [&](float* to, const float* from) {
        if (accumulate)
          ops::add(run.stream, ops::Type::f32, to, from, to, static_cast<std::int64_t>(width));
        else
          run.stream.copy(to, from, width * sizeof(float));
      };
      put(run.as<float>(diff_gamma), gamma);
      if (bias) put(run.as<float>(diff_beta), beta);
    });
  }

  std::size_t statistics_bytes() const { return static_cast<std::size_t>(spec_.rows) * sizeof(float); }
  BufferId saved_mean(Emitter& emit) const { return emit.saved("mean", spec_.kind == ops::NormKind::layer ? statistics_bytes() : 0); }

  ops::NormSpec spec_;
  int ranks_;  // that have parts of the tokens or heads
  std::unique_ptr<ops::Norm> op_;
};

class NormNode : public NodeOp {
 public:
  NormNode(std::int64_t width, const NormOptions& options, int rank = 0, int ranks = 1)
      : width_(width), options_(options), rank_(rank), ranks_(ranks) {}
  const char* kind() const override { return options_.kind == ops::NormKind::layer ? "layernorm" : "rmsnorm"; }
  const NormOptions* as_norm() const override { return options_.group > 0 || options_.shift != 0 ? nullptr : &options_; }
  bool row_by_row() const override { return ranks_ == 1; }
  bool gathers_width() const override { return options_.gathers; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 8.0 * double(batch * length * width_);
  }

  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    ops::NormSpec spec;
    spec.kind = options_.kind;
    spec.rows = row_part(options, rank_, ranks_).count;
    spec.width = width_;
    spec.gamma_shift = options_.shift;
    if (options_.group > 0) {
      spec.rows *= width_ / options_.group;
      spec.width = options_.group;
    }
    spec.epsilon = options_.epsilon;
    spec.bias = options_.bias;
    spec.add_diff_src = plan.add_gradient[0];
    spec.type = options.type;
    return std::make_unique<CompiledNorm>(device, spec, std::max(ranks_, head_ranks_));
  }

  // Each rank has some of the heads; the weight that all heads share gets the sum of what ranks add to its gradient.
  std::shared_ptr<const NodeOp> part(int ranks, const std::string& module) const override {
    if (options_.group == 0) return nullptr;
    if (const std::int64_t heads = width_ / options_.group; heads % ranks != 0)
      throw ConfigError(fmt::format("--tp {} does not divide the {} heads of {}", ranks, heads, module));
    auto mine = std::make_shared<NormNode>(width_ / ranks, options_);
    mine->head_ranks_ = ranks;
    return mine;
  }

  std::shared_ptr<const NodeOp> rows_part(int rank, int ranks) const override {
    return std::make_shared<NormNode>(width_, options_, rank, ranks);
  }

 private:
  std::int64_t width_;
  NormOptions options_;
  int rank_, ranks_;
  int head_ranks_ = 1;  // that have parts of the heads
};

}  // namespace

std::shared_ptr<const NodeOp> make_norm_node(std::int64_t width, const NormOptions& options) {
  return std::make_shared<NormNode>(width, options);
}

}  // namespace ppengine::engine
