// Linear as a node: residual and earlier gradients are added inside the matrix products.
#include <ppengine/ops/linear.hpp>

#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/weight_linear.hpp>

namespace ppengine::engine {
namespace {

class CompiledLinear : public CompiledNode {
 public:
  CompiledLinear(ops::Device& device, const ops::LinearSpec& spec) : spec_(spec), op_(ops::Linear::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), weight = emit.parameter(0), bias = spec_.bias ? emit.parameter(1) : no_buffer;
    const BufferId residual = spec_.residual ? emit.residual() : no_buffer, dst = emit.output();
    emit.forward({src, weight, bias, residual}, {dst}, [=, op = op_.get()](const Run& run) {
      op->forward(run.stream, run.at(src), run.at(weight), run.at(bias), run.at(residual), run.at(dst));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId src = emit.input(0), weight = emit.parameter(0), diff_dst = emit.output_gradient();
    const BufferId diff_weight = emit.parameter_gradient(0), diff_bias = spec_.bias ? emit.parameter_gradient(1) : no_buffer;
    if (const GradientTarget target = emit.begin_gradient(0, true)) {
      emit.input_half({diff_dst, weight, target.add}, {target.diff}, [=, op = op_.get()](const Run& run) {
        op->backward_input(run.stream, run.at(diff_dst), run.at(weight), run.at(target.add), run.at(target.diff));
      });
      emit.finish_gradient(0, target);
    }
    emit.parameter_gradients({src, diff_dst}, [=, op = op_.get()](const Run& run, bool accumulate) {
      op->backward_weight(run.stream, run.at(src), run.at(diff_dst), run.as<float>(diff_weight), run.as<float>(diff_bias), accumulate);
    });
  }

 private:
  ops::LinearSpec spec_;
  std::unique_ptr<ops::Linear> op_;
};

// A frozen weight that is stored narrower: it is widened for each product, one weight at a time.
class CompiledPackedLinear : public CompiledNode {
 public:
  CompiledPackedLinear(ops::Device& device, const ops::LinearSpec& spec, const ops::PackedWeight& weight)
      : spec_(spec),
        weight_(weight),
        forward_(ops::WeightLinear::make(device, {.rows = spec.rows, .weight = weight, .bias = spec.bias, .residual = spec.residual})),
        backward_(ops::Linear::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), weight = emit.parameter(0), bias = spec_.bias ? emit.parameter(1) : no_buffer;
    const BufferId residual = spec_.residual ? emit.residual() : no_buffer, dst = emit.output();
    const BufferId workspace = forward_->workspace_bytes() ? emit.workspace(forward_->workspace_bytes()) : no_buffer;
    emit.forward({src, weight, bias, residual}, {dst, workspace}, [=, op = forward_.get()](const Run& run) {
      op->forward(run.stream, {.src = run.as<float>(src),
                               .weight = run.at(weight),
                               .bias = run.as<float>(bias),
                               .residual = run.as<float>(residual),
                               .dst = run.as<float>(dst),
                               .workspace = run.at(workspace)});
    });
  }

  void backward(Emitter& emit) override {
    const BufferId weight = emit.parameter(0), diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, true);
    if (!target) return;
    const BufferId wide = emit.workspace(static_cast<std::size_t>(weight_.out * weight_.in) * sizeof(float));
    emit.input_half({diff_dst, weight, target.add}, {target.diff, wide}, [=, op = backward_.get(), packed = weight_](const Run& run) {
      ops::widen(run.stream, packed, run.at(weight), run.as<float>(wide));
      op->backward_input(run.stream, run.at(diff_dst), run.at(wide), run.at(target.add), run.at(target.diff));
    });
    emit.finish_gradient(0, target);
  }

 private:
  ops::LinearSpec spec_;
  ops::PackedWeight weight_;
  std::unique_ptr<ops::WeightLinear> forward_;
  std::unique_ptr<ops::Linear> backward_;
};

class LinearNode : public NodeOp {
 public:
  LinearNode(std::int64_t in, const LinearOptions& options, std::int64_t counted_out)
      : in_(in), counted_out_(counted_out), options_(options) {}
  const char* kind() const override { return "linear"; }
  bool is_linear() const override { return true; }
  bool adds_residual() const override { return true; }
  bool row_by_row() const override { return true; }

  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 2.0 * double(batch) * double(length) * double(in_) * double(counted_out_);
  }

  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph& graph, const Node& node, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    ops::LinearSpec spec;
    spec.rows = options.batch * options.length;
    spec.in = in_;
    spec.out = options_.out;
    const ParameterInfo& weight = graph.parameters()[node.parameters[0]];
    spec.layout = storage_layout(device, weight);
    spec.bias = options_.bias;
    spec.residual = static_cast<bool>(plan.residual);
    spec.add_diff_src = plan.add_gradient[0];
    spec.type = options.type;
    if (weight.is_packed()) {
      spec.layout = ops::WeightLayout::out_in;
      return std::make_unique<CompiledPackedLinear>(device, spec, packed_weight(weight, weight.storage));
    }
    return std::make_unique<CompiledLinear>(device, spec);
  }

 private:
  std::int64_t in_, counted_out_;
  LinearOptions options_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_linear_node(std::int64_t in, const LinearOptions& options, std::int64_t counted_out) {
  return std::make_shared<LinearNode>(in, options, counted_out > 0 ? counted_out : options.out);
}

}  // namespace ppengine::engine
