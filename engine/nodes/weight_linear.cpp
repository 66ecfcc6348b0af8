// Linears of inference as nodes, and embeddings whose table is a linear's packed weight.
#include <ppengine/ops/weight_linear.hpp>

#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {
namespace {

class CompiledWeightLinear : public CompiledNode {
 public:
  CompiledWeightLinear(ops::Device& device, const ops::WeightLinearSpec& spec) : spec_(spec), op_(ops::WeightLinear::make(device, spec)) {}

  void forward(Emitter& emit) override {
    std::size_t next = 1;
    const BufferId src = emit.input(0), weight = emit.parameter(0), bias = spec_.bias ? emit.parameter(next++) : no_buffer;
    const BufferId gamma = spec_.norm ? emit.parameter(next++) : no_buffer;
    const BufferId beta = spec_.norm && spec_.norm->bias ? emit.parameter(next++) : no_buffer;
    const BufferId gate = spec_.gated ? emit.input(1) : no_buffer, residual = spec_.residual ? emit.residual() : no_buffer;
    const BufferId dst = emit.output(), workspace = op_->workspace_bytes() ? emit.workspace(op_->workspace_bytes()) : no_buffer;
    emit.forward({src, weight, bias, gamma, beta, gate, residual}, {dst, workspace}, [=, op = op_.get()](const Run& run) {
      op->forward(run.stream, {run.as<float>(src), run.at(weight), run.as<float>(bias), run.as<float>(residual), run.as<float>(gate),
                               run.as<float>(gamma), run.as<float>(beta), run.as<float>(dst), run.at(workspace)});
    });
  }
  void backward(Emitter&) override {}

 private:
  ops::WeightLinearSpec spec_;
  std::unique_ptr<ops::WeightLinear> op_;
};

class WeightLinearNode : public NodeOp {
 public:
  explicit WeightLinearNode(const WeightLinearOptions& options) : options_(options) {}
  const char* kind() const override { return "linear"; }
  bool multiplies_matrices() const override { return true; }
  bool adds_residual() const override { return !options_.activation && !options_.gated; }
  bool row_by_row() const override { return true; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 2.0 * double(batch * length) * double(options_.weight.in) * double(options_.weight.out);
  }

  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan& plan,
                                        const CompileOptions& options) const override {
    ops::WeightLinearSpec spec;
    spec.rows = options.batch * options.length;
    spec.weight = options_.weight;
    spec.bias = options_.bias;
    spec.residual = static_cast<bool>(plan.residual);
    if (options_.norm) spec.norm = {options_.norm->kind, options_.norm->epsilon, options_.norm->bias};
    spec.activation = options_.activation;
    spec.gated = options_.gated;
    spec.byte_inputs = true;
    return std::make_unique<CompiledWeightLinear>(device, spec);
  }

 private:
  WeightLinearOptions options_;
};

class CompiledPackedEmbedding : public CompiledNode {
 public:
  CompiledPackedEmbedding(const ops::PackedEmbeddingSpec& spec, bool positions) : spec_(spec), positions_(positions) {}
  void forward(Emitter& emit) override {
    const BufferId ids = emit.input(0), table = emit.parameter(0), positions = positions_ ? emit.parameter(1) : no_buffer;
    const BufferId first = emit.positions(), dst = emit.output();
    emit.forward({ids, table, positions, first}, {dst}, [=, spec = spec_](const Run& run) {
      ops::gather(run.stream, spec, run.as<std::int32_t>(ids), run.at(table), run.as<float>(positions), run.as<std::int32_t>(first),
                  run.as<float>(dst));
    });
  }
  void backward(Emitter&) override {}

 private:
  ops::PackedEmbeddingSpec spec_;
  bool positions_;
};

class PackedEmbeddingNode : public NodeOp {
 public:
  PackedEmbeddingNode(const ops::PackedWeight& table, std::int64_t first_token) : table_(table), first_token_(first_token) {}
  const char* kind() const override { return "embedding"; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 2.0 * double(batch * length * table_.in);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device&, const Graph&, const Node& node, const NodePlan&,
                                        const CompileOptions& options) const override {
    return std::make_unique<CompiledPackedEmbedding>(ops::PackedEmbeddingSpec{table_, options.batch, options.length, first_token_},
                                                     node.parameters.size() > 1);
  }

 private:
  ops::PackedWeight table_;
  std::int64_t first_token_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_weight_linear_node(const WeightLinearOptions& options) {
  return std::make_shared<WeightLinearNode>(options);
}
std::shared_ptr<const NodeOp> make_packed_embedding_node(const ops::PackedWeight& table, std::int64_t first_token) {
  return std::make_shared<PackedEmbeddingNode>(table, first_token);
}

}  // namespace ppengine::engine
