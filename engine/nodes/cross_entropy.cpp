// Cross entropy as a node: in training its forward makes the gradient of the logits in the same pass, in their place. Over logits that
// tensor-parallel ranks divide, they tell each other three figures per token.
#include <ppengine/ops/cross_entropy.hpp>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

// A loss whose forward makes the gradient of its input, over the input where nobody else reads that.
class CompiledLoss : public CompiledNode {
 public:
  void backward(Emitter& emit) override { emit.give_gradient(0, gradient(emit)); }

 protected:
  CompiledLoss(bool training, bool in_place) : training_(training), in_place_(in_place) {}
  // No buffer where nothing is trained.
  BufferId gradient(Emitter& emit) const {
    if (!training_) return no_buffer;
    return in_place_ ? emit.input(0) : emit.saved("diff", emit.value_bytes_of_input(0));
  }

 private:
  bool training_, in_place_;
};

class CompiledCrossEntropy : public CompiledLoss {
 public:
  CompiledCrossEntropy(ops::Device& device, const ops::CrossEntropySpec& spec, bool training, bool in_place)
      : CompiledLoss(training, in_place), spec_(spec), op_(ops::CrossEntropy::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const BufferId logits = emit.input(0), targets = emit.input(1), loss = emit.output();
    const BufferId losses = emit.workspace(static_cast<std::size_t>(spec_.rows) * sizeof(float)),
                   scratch = emit.workspace(ops::reduce_workspace());
    const BufferId diff = gradient(emit);
    emit.forward({logits, targets}, {losses, diff, loss, scratch}, [=, op = op_.get(), rows = spec_.rows](const Run& run) {
      if (diff == no_buffer)
        op->forward(run.stream, run.at(logits), run.as<std::int32_t>(targets), run.as<float>(losses));
      else
        op->forward_backward(run.stream, run.at(logits), run.as<std::int32_t>(targets), run.loss_weight, run.as<float>(losses),
                             run.at(diff));
      ops::sum(run.stream, run.as<float>(losses), run.as<float>(loss), rows, run.at(scratch));
    });
  }

 private:
  ops::CrossEntropySpec spec_;
  std::unique_ptr<ops::CrossEntropy> op_;
};

class CompiledSplitCrossEntropy : public CompiledLoss {
 public:
  CompiledSplitCrossEntropy(ops::Device& device, const ops::SplitCrossEntropySpec& spec, bool training, bool in_place)
      : CompiledLoss(training, in_place), spec_(spec), op_(ops::SplitCrossEntropy::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const BufferId logits = emit.input(0), targets = emit.input(1), loss = emit.output();
    const std::size_t figures = op_->figures();
    const BufferId mine = emit.workspace(figures * sizeof(float)),
                   all = emit.workspace(static_cast<std::size_t>(spec_.ranks) * figures * sizeof(float));
    const BufferId losses = emit.workspace(static_cast<std::size_t>(spec_.rows) * sizeof(float)),
                   scratch = emit.workspace(ops::reduce_workspace());
    const BufferId diff = gradient(emit);
    emit.forward({logits, targets}, {mine, all, losses, diff, loss, scratch},
                 [=, op = op_.get(), rows = spec_.rows, ranks = spec_.ranks](const Run& run) {
                   op->part(run.stream, run.at(logits), run.as<std::int32_t>(targets), run.as<float>(mine));
                   if (run.tensor)
                     run.tensor->all_gather(run.at(mine), run.at(all), figures, ops::Type::f32, run.stream).wait_on(run.stream);
                   else  // costs are measured on one rank alone
                     for (int r = 0; r < ranks; ++r)
                       run.stream.copy(run.as<float>(all) + static_cast<std::size_t>(r) * figures, run.at(mine), figures * sizeof(float));
                   op->join(run.stream, run.at(logits), run.as<std::int32_t>(targets), run.as<float>(all), run.loss_weight,
                            run.as<float>(losses), run.at(diff));
                   ops::sum(run.stream, run.as<float>(losses), run.as<float>(loss), rows, run.at(scratch));
                 });
  }

 private:
  ops::SplitCrossEntropySpec spec_;
  std::unique_ptr<ops::SplitCrossEntropy> op_;
};

class SplitCrossEntropyNode : public NodeOp {
 public:
  SplitCrossEntropyNode(std::int64_t classes, int rank, int ranks)
      : classes_(classes), ranks_(ranks), mine_(stretch_of(classes, rank, ranks)) {}
  const char* kind() const override { return "cross_entropy"; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 10.0 * double(batch * length * stretch_of(classes_, 0, ranks_).count);  // the same on every rank, so that all cut alike
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    return std::make_unique<CompiledSplitCrossEntropy>(
        device, ops::SplitCrossEntropySpec{options.batch * options.length, mine_.count, mine_.begin, classes_, ranks_, options.type},
        options.training, plan.last_use_of_input);
  }

 private:
  std::int64_t classes_;
  int ranks_;
  Stretch mine_;
};

class CrossEntropyNode : public NodeOp {
 public:
  explicit CrossEntropyNode(std::int64_t classes) : classes_(classes) {}
  const char* kind() const override { return "cross_entropy"; }
  std::shared_ptr<const NodeOp> classes_part(std::int64_t classes, int rank, int ranks) const override {
    return std::make_shared<SplitCrossEntropyNode>(classes, rank, ranks);
  }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 10.0 * double(batch * length * classes_);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    return std::make_unique<CompiledCrossEntropy>(device, ops::CrossEntropySpec{options.batch * options.length, classes_, options.type},
                                                  options.training, plan.last_use_of_input);
  }

 private:
  std::int64_t classes_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_cross_entropy_node(std::int64_t classes) { return std::make_shared<CrossEntropyNode>(classes); }

}  // namespace ppengine::engine
