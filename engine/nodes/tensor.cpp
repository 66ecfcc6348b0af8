// The two nodes that tensor-parallel ranks need: where a value that all of them have goes into divided work, and where
// they sum its results.
#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {
namespace {

class CompiledCollective : public CompiledNode {
 public:
  CompiledCollective(const Node& node, int64_t width, const CompileOptions& options)
      : output_(node.output), count_(options.batch * options.length * width), type_(options.type) {}

 protected:
  Emitter::Body sum_over_ranks(BufferId from, BufferId to) const {
    return [from, to, type = type_, count = static_cast<size_t>(count_)](const Run& run) {
      if (run.tensor)
        run.tensor->allreduce(run.at(from), run.at(to), count, type, run.stream).wait_on(run.stream);
      else  // costs are measured on one rank alone
        run.stream.copy(run.at(to), run.at(from), count * ops::size_of(type));
    };
  }

  int output_;

 private:
  int64_t count_;
  ops::Type type_;
};

class CompiledCopy : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override { emit.set_value(output_, emit.input(0)); }  // no instruction: the same memory
  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst}, {target.diff}, sum_over_ranks(diff_dst, target.diff));
    emit.finish_gradient(0, target);
  }
};

class CompiledSum : public CompiledCollective {
 public:
  using CompiledCollective::CompiledCollective;
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, sum_over_ranks(src, dst));
  }
  void backward(Emitter& emit) override { emit.pass_gradient(0); }
};

template <class Compiled>
class CollectiveNode : public NodeOp {
 public:
  CollectiveNode(const char* kind, int64_t width) : kind_(kind), width_(width) {}
  const char* kind() const override { return kind_; }
  double flops(const Graph&, const Node&, int64_t batch, int64_t length) const override {
    return double(batch * length * width_);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device&, const Graph&, const Node& node, const NodePlan&,
                                        const CompileOptions& options) const override {
    return std::make_unique<Compiled>(node, width_, options);
  }

 private:
  const char* kind_;
  int64_t width_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_tensor_copy_node(int64_t width) {
  return std::make_shared<CollectiveNode<CompiledCopy>>("tensor_copy", width);
}
std::shared_ptr<const NodeOp> make_tensor_sum_node(int64_t width) {
  return std::make_shared<CollectiveNode<CompiledSum>>("tensor_sum", width);
}

}  // namespace ppengine::engine
