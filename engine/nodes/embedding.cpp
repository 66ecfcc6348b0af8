// Token and position embedding as a node.
#include <ppengine/ops/embedding.hpp>

#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {
namespace {

class CompiledEmbedding : public CompiledNode {
 public:
  CompiledEmbedding(ops::Device& device, const ops::EmbeddingSpec& spec)
      : positions_(spec.positions > 0), op_(ops::Embedding::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const BufferId ids = emit.input(0), tokens = emit.parameter(0), positions = positions_ ? emit.parameter(1) : no_buffer;
    const BufferId first = emit.positions(), dst = emit.output();
    emit.forward({ids, tokens, positions, first}, {dst}, [=, op = op_.get()](const Run& run) {
      op->forward(run.stream, run.as<int32_t>(ids), run.at(tokens), run.at(positions), run.as<int32_t>(first), run.at(dst));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId ids = emit.input(0), diff_dst = emit.output_gradient();
    const BufferId tokens = emit.parameter_gradient(0), positions = positions_ ? emit.parameter_gradient(1) : no_buffer;
    emit.parameter_gradients({ids, diff_dst}, [=, op = op_.get()](const Run& run, bool accumulate) {
      op->backward_weight(run.stream, run.as<int32_t>(ids), run.at(diff_dst), run.as<float>(tokens), run.as<float>(positions), accumulate);
    });
  }

 private:
  bool positions_;
  std::unique_ptr<ops::Embedding> op_;
};

class EmbeddingNode : public NodeOp {
 public:
  EmbeddingNode(const EmbeddingOptions& options, int rank, int ranks)
      : options_(options), rows_(stretch_of(options.vocabulary, rank, ranks)) {}
  const char* kind() const override { return "embedding"; }
  std::optional<int64_t> first_token() const override { return rows_.begin; }
  int64_t padding_token() const override { return options_.padding; }
  double flops(const Graph&, const Node&, int64_t batch, int64_t length) const override {
    return 2.0 * double(batch * length * options_.width);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    return std::make_unique<CompiledEmbedding>(device, ops::EmbeddingSpec{options.batch, options.length, options_.width, rows_.count,
                                                                          options_.positions, rows_.begin, options.type, options_.padding});
  }

 private:
  EmbeddingOptions options_;
  Stretch rows_;  // of the table, here
};

}  // namespace

std::shared_ptr<const NodeOp> make_embedding_node(const EmbeddingOptions& options, int rank, int ranks) {
  return std::make_shared<EmbeddingNode>(options, rank, ranks);
}

}  // namespace ppengine::engine
