// Linear as a node: residual and earlier gradients are added inside the matrix products.
#include <ppengine/engine/nodes/nodes.hpp>

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

class LinearNode : public NodeOp {
 public:
  LinearNode(int64_t in, const LinearOptions& options, int64_t counted_out) : in_(in), counted_out_(counted_out), options_(options) {}
  const char* kind() const override { return "linear"; }
  bool adds_residual() const override { return true; }
  bool row_by_row() const override { return true; }

  double flops(const Graph&, const Node&, int64_t batch, int64_t length) const override {
    return 2.0 * double(batch) * double(length) * double(in_) * double(counted_out_);
  }

  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph& graph, const Node& node, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    ops::LinearSpec spec;
    spec.rows = options.batch * options.length;
    spec.in = in_;
    spec.out = options_.out;
    spec.layout = storage_layout(device, graph.parameters()[static_cast<size_t>(node.parameters[0])]);
    spec.bias = options_.bias;
    spec.residual = plan.residual >= 0;
    spec.add_diff_src = plan.add_gradient[0];
    spec.type = options.type;
    return std::make_unique<CompiledLinear>(device, spec);
  }

 private:
  int64_t in_, counted_out_;
  LinearOptions options_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_linear_node(int64_t in, const LinearOptions& options, int64_t counted_out) {
  return std::make_shared<LinearNode>(in, options, counted_out > 0 ? counted_out : options.out);
}

}  // namespace ppengine::engine
