// Pointwise nodes: activations, gated SiLU, sum, product, dropout; and softmax.
#include <algorithm>

#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/activation.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/softmax.hpp>

namespace ppengine::engine {
namespace {

// A node whose arithmetic is a few operations per element and whose compiled form is made by a function.
class PointwiseNode : public NodeOp {
 public:
  using Make = std::function<std::unique_ptr<CompiledNode>(ops::Device&, const CompileOptions&, const RowPart& rows)>;
  // narrowed: the same op for another width; null: it cannot work on a part of the width.
  using Narrowed = std::function<std::shared_ptr<const NodeOp>(std::int64_t width)>;
  enum class Role { other, sum, gate };  // what another op may carry out in its place
  PointwiseNode(const char* kind, std::int64_t width, double cost, Make make, Narrowed narrowed = {}, Role role = Role::other)
      : kind_(kind), width_(width), cost_(cost), make_(std::move(make)), narrowed_(std::move(narrowed)), role_(role) {}
  const char* kind() const override { return kind_; }
  bool is_sum() const override { return role_ == Role::sum; }
  bool is_gate() const override { return role_ == Role::gate; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return cost_ * double(batch * length * width_);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    return make_(device, options, row_part(options, rank_, ranks_));
  }

  std::shared_ptr<const NodeOp> part(int ranks, const std::string&) const override {
    return narrowed_ ? narrowed_(width_ / ranks) : nullptr;
  }
  bool row_by_row() const override { return ranks_ == 1; }
  std::shared_ptr<const NodeOp> rows_part(int rank, int ranks) const override {
    auto mine = std::make_shared<PointwiseNode>(*this);
    mine->rank_ = rank;
    mine->ranks_ = ranks;
    return mine;
  }

 private:
  const char* kind_;
  std::int64_t width_;
  double cost_;
  Make make_;
  Narrowed narrowed_;
  Role role_;
  int rank_ = 0, ranks_ = 1;  // that have parts of the tokens
};

class ActivationNode : public PointwiseNode {
 public:
  template <class... Arguments>
  explicit ActivationNode(ops::ActivationKind kind, Arguments&&... arguments)
      : PointwiseNode(std::forward<Arguments>(arguments)...), kind_(kind) {}
  const ops::ActivationKind* as_activation() const override { return &kind_; }

 private:
  ops::ActivationKind kind_;
};

class CompiledActivation : public CompiledNode {
 public:
  CompiledActivation(ops::Device& device, const ops::ActivationSpec& spec) : op_(ops::Activation::make(device, spec)) {}
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, [=, op = op_.get()](const Run& run) { op->forward(run.stream, run.at(src), run.at(dst)); });
  }
  void backward(Emitter& emit) override {
    const BufferId src = emit.input(0), diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({src, diff_dst}, {target.diff}, [=, op = op_.get()](const Run& run) {
      op->backward_input(run.stream, run.at(src), run.at(diff_dst), run.at(target.diff));
    });
    emit.finish_gradient(0, target);
  }

 private:
  std::unique_ptr<ops::Activation> op_;
};

class CompiledSoftmax : public CompiledNode {
 public:
  CompiledSoftmax(ops::Device& device, const ops::SoftmaxSpec& spec) : op_(ops::Softmax::make(device, spec)) {}
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, [=, op = op_.get()](const Run& run) { op->forward(run.stream, run.at(src), run.at(dst)); });
  }
  void backward(Emitter& emit) override {
    const BufferId dst = emit.output(), diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({dst, diff_dst}, {target.diff}, [=, op = op_.get()](const Run& run) {
      op->backward_input(run.stream, run.at(dst), run.at(diff_dst), run.at(target.diff));
    });
    emit.finish_gradient(0, target);
  }

 private:
  std::unique_ptr<ops::Softmax> op_;
};

class CompiledGatedSilu : public CompiledNode {
 public:
  CompiledGatedSilu(ops::Device& device, const ops::GatedSiluSpec& spec) : op_(ops::GatedSilu::make(device, spec)) {}
  void forward(Emitter& emit) override {
    const BufferId gate = emit.input(0), up = emit.input(1), dst = emit.output();
    emit.forward({gate, up}, {dst},
                 [=, op = op_.get()](const Run& run) { op->forward(run.stream, run.at(gate), run.at(up), run.at(dst)); });
  }
  void backward(Emitter& emit) override {
    const BufferId gate = emit.input(0), up = emit.input(1), diff_dst = emit.output_gradient();
    // Both gradients come from one kernel, so room is made for both even where only one is wanted.
    const GradientTarget gate_target = emit.begin_gradient(0, false), up_target = emit.begin_gradient(1, false);
    const BufferId diff_gate = gate_target ? gate_target.diff : emit.workspace(emit.value_bytes_of_input(0));
    const BufferId diff_up = up_target ? up_target.diff : emit.workspace(emit.value_bytes_of_input(1));
    emit.input_half({gate, up, diff_dst}, {diff_gate, diff_up}, [=, op = op_.get()](const Run& run) {
      op->backward_input(run.stream, run.at(gate), run.at(up), run.at(diff_dst), run.at(diff_gate), run.at(diff_up));
    });
    emit.finish_gradient(0, gate_target);
    emit.finish_gradient(1, up_target);
  }

 private:
  std::unique_ptr<ops::GatedSilu> op_;
};

// Gate and up side by side in one value.
class CompiledPackedGatedSilu : public CompiledNode {
 public:
  CompiledPackedGatedSilu(ops::Device& device, const ops::GatedSiluSpec& spec)
      : half_(static_cast<std::size_t>(spec.width) * ops::size_of(spec.type)), op_(ops::GatedSilu::make(device, spec)) {}
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, [=, half = half_, op = op_.get()](const Run& run) {
      op->forward(run.stream, run.at(src), run.as<std::byte>(src) + half, run.at(dst));
    });
  }
  void backward(Emitter& emit) override {
    const BufferId src = emit.input(0), diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({src, diff_dst}, {target.diff}, [=, half = half_, op = op_.get()](const Run& run) {
      op->backward_input(run.stream, run.at(src), run.as<std::byte>(src) + half, run.at(diff_dst), run.at(target.diff),
                         run.as<std::byte>(target.diff) + half);
    });
    emit.finish_gradient(0, target);
  }

 private:
  std::size_t half_;  // bytes from a row's gate to its up
  std::unique_ptr<ops::GatedSilu> op_;
};

class CompiledAdd : public CompiledNode {
 public:
  CompiledAdd(ops::Type type, std::int64_t count) : type_(type), count_(count) {}
  void forward(Emitter& emit) override {
    const BufferId a = emit.input(0), b = emit.input(1), dst = emit.output();
    emit.forward({a, b}, {dst}, [=, type = type_, count = count_](const Run& run) {
      ops::add(run.stream, type, run.at(a), run.at(b), run.at(dst), count);
    });
  }
  void backward(Emitter& emit) override {
    emit.pass_gradient(0);
    emit.pass_gradient(1);
  }

 private:
  ops::Type type_;
  std::int64_t count_;
};

class CompiledMultiply : public CompiledNode {
 public:
  CompiledMultiply(ops::Type type, std::int64_t count) : type_(type), count_(count) {}
  void forward(Emitter& emit) override {
    const BufferId a = emit.input(0), b = emit.input(1), dst = emit.output();
    emit.forward({a, b}, {dst}, [=, type = type_, count = count_](const Run& run) {
      ops::multiply(run.stream, type, run.at(a), run.at(b), run.at(dst), count);
    });
  }
  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient();
    for (std::size_t k : {0, 1}) {
      const BufferId other = emit.input(1 - k);
      const GradientTarget target = emit.begin_gradient(k, false);
      if (!target) continue;
      emit.input_half({other, diff_dst}, {target.diff}, [=, type = type_, count = count_](const Run& run) {
        ops::multiply(run.stream, type, run.at(other), run.at(diff_dst), run.at(target.diff), count);
      });
      emit.finish_gradient(k, target);
    }
  }

 private:
  ops::Type type_;
  std::int64_t count_;
};

class CompiledDropout : public CompiledNode {
 public:
  CompiledDropout(ops::Type type, std::int64_t count, std::int64_t begin, std::int64_t per_sequence, float p, std::uint64_t site)
      : type_(type), count_(count), begin_(begin), per_sequence_(per_sequence), p_(p), site_(site) {}
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, drop(src, dst));
  }
  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst}, {target.diff}, drop(diff_dst, target.diff));
    emit.finish_gradient(0, target);
  }

 private:
  // The mask is a function of step, site and the element's place in the global batch: it needs no memory and no split changes it.
  Emitter::Body drop(BufferId from, BufferId to) const {
    return [=, *this](const Run& run) {
      const auto first = static_cast<std::uint64_t>(run.first_sequence * per_sequence_ + begin_);
      ops::dropout(run.stream, type_, run.at(from), nullptr, run.at(to), count_, p_, run.dropout_key ^ site_, first);
    };
  }
  ops::Type type_;
  std::int64_t count_, begin_, per_sequence_;
  float p_;
  std::uint64_t site_;
};

}  // namespace

RowPart row_part(const CompileOptions& options, int rank, int ranks) {
  const std::int64_t rows = options.batch * options.length, room = (rows + ranks - 1) / ranks;
  return {rank * room, std::clamp<std::int64_t>(rows - rank * room, 0, room), room};
}

std::shared_ptr<const NodeOp> make_activation_node(ops::ActivationKind kind, std::int64_t width) {
  return std::make_shared<ActivationNode>(
      kind, "activation", width, 10.0,
      [=](ops::Device& device, const CompileOptions& options, const RowPart& rows) {
        return std::make_unique<CompiledActivation>(device, ops::ActivationSpec{kind, rows.count * width, options.type});
      },
      [=](std::int64_t part) { return make_activation_node(kind, part); });
}

std::shared_ptr<const NodeOp> make_softmax_node(std::int64_t width) {
  return std::make_shared<PointwiseNode>(
      "softmax", width, 10.0, [=](ops::Device& device, const CompileOptions& options, const RowPart& rows) {
        return std::make_unique<CompiledSoftmax>(device, ops::SoftmaxSpec{rows.count, width, options.type});
      });
}

std::shared_ptr<const NodeOp> make_gated_silu_node(std::int64_t width) {
  return std::make_shared<PointwiseNode>(
      "gated_silu", width, 12.0,
      [=](ops::Device& device, const CompileOptions& options, const RowPart& rows) {
        return std::make_unique<CompiledGatedSilu>(device, ops::GatedSiluSpec{rows.count, width, width, options.type});
      },
      make_gated_silu_node, PointwiseNode::Role::gate);
}

std::shared_ptr<const NodeOp> make_packed_gated_silu_node(std::int64_t width) {
  return std::make_shared<PointwiseNode>(
      "packed_gated_silu", width, 12.0,
      [=](ops::Device& device, const CompileOptions& options, const RowPart& rows) {
        return std::make_unique<CompiledPackedGatedSilu>(device, ops::GatedSiluSpec{rows.count, width, 2 * width, options.type});
      },
      make_packed_gated_silu_node);
}

std::shared_ptr<const NodeOp> make_add_node(std::int64_t width) {
  return std::make_shared<PointwiseNode>(
      "add", width, 1.0,
      [=](ops::Device&, const CompileOptions& options, const RowPart& rows) {
        return std::make_unique<CompiledAdd>(options.type, rows.count * width);
      },
      make_add_node, PointwiseNode::Role::sum);
}

std::shared_ptr<const NodeOp> make_multiply_node(std::int64_t width) {
  return std::make_shared<PointwiseNode>(
      "multiply", width, 1.0,
      [=](ops::Device&, const CompileOptions& options, const RowPart& rows) {
        return std::make_unique<CompiledMultiply>(options.type, rows.count * width);
      },
      make_multiply_node);
}

std::shared_ptr<const NodeOp> make_dropout_node(std::int64_t width, float p, std::uint64_t site) {
  return std::make_shared<PointwiseNode>("dropout", width, 8.0, [=](ops::Device&, const CompileOptions& options, const RowPart& rows) {
    return std::make_unique<CompiledDropout>(options.type, rows.count * width, rows.first * width, options.length * width,
                                             options.training ? p : 0.0f, site);
  });
}

}  // namespace ppengine::engine
