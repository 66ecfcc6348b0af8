// Layer norm and RMS norm as nodes.
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/norm.hpp>

namespace ppengine::engine {
namespace {

class CompiledNorm : public CompiledNode {
 public:
  CompiledNorm(ops::Device& device, const ops::NormSpec& spec) : spec_(spec), op_(ops::Norm::make(device, spec)) {}

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
        op->backward_input(run.stream, run.at(src), run.at(diff_dst), run.at(gamma), run.as<float>(mean), run.as<float>(rstd), run.at(target.add),
                           run.at(target.diff));
      });
      emit.finish_gradient(0, target);
    }
    const BufferId diff_gamma = emit.parameter_gradient(0), diff_beta = spec_.bias ? emit.parameter_gradient(1) : no_buffer;
    emit.parameter_gradients({src, diff_dst, mean, rstd}, [=, op = op_.get()](const Run& run, bool accumulate) {
      op->backward_weight(run.stream, run.at(src), run.at(diff_dst), run.as<float>(mean), run.as<float>(rstd), run.as<float>(diff_gamma),
                          run.as<float>(diff_beta), accumulate);
    });
  }

 private:
  size_t statistics_bytes() const { return static_cast<size_t>(spec_.rows) * sizeof(float); }
  BufferId saved_mean(Emitter& emit) const { return emit.saved("mean", spec_.kind == ops::NormKind::layer ? statistics_bytes() : 0); }

  ops::NormSpec spec_;
  std::unique_ptr<ops::Norm> op_;
};

class NormNode : public NodeOp {
 public:
  NormNode(int64_t width, const NormOptions& options) : width_(width), options_(options) {}
  const char* kind() const override { return options_.kind == ops::NormKind::layer ? "layernorm" : "rmsnorm"; }
  const NormOptions* as_norm() const override { return &options_; }
  double flops(const Graph&, const Node&, int64_t batch, int64_t length) const override { return 8.0 * double(batch * length * width_); }

  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    ops::NormSpec spec;
    spec.kind = options_.kind;
    spec.rows = options.batch * options.length;
    spec.width = width_;
    spec.epsilon = options_.epsilon;
    spec.bias = options_.bias;
    spec.add_diff_src = plan.add_gradient[0];
    spec.type = options.type;
    return std::make_unique<CompiledNorm>(device, spec);
  }

 private:
  int64_t width_;
  NormOptions options_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_norm_node(int64_t width, const NormOptions& options) { return std::make_shared<NormNode>(width, options); }

}  // namespace ppengine::engine
