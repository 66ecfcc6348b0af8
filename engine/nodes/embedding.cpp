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
      op->forward(run.stream, run.as<std::int32_t>(ids), run.at(tokens), run.at(positions), run.as<std::int32_t>(first), run.at(dst));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId ids = emit.input(0), diff_dst = emit.output_gradient();
    const BufferId tokens = emit.parameter_gradient(0), positions = positions_ ? emit.parameter_gradient(1) : no_buffer;
    emit.parameter_gradients({ids, diff_dst}, [=, op = op_.get()](const Run& run, bool accumulate) {
      op->backward_weight(run.stream, run.as<std::int32_t>(ids), run.at(diff_dst), run.as<float>(tokens), run.as<float>(positions),
                          accumulate);
    });
  }

 private:
  bool positions_;
  std::unique_ptr<ops::Embedding> op_;
};

// Of sequences that hold several documents: positions come from the second input. The ops see every token as a sequence of its own, and
// the table of positions gets its gradient as a table of tokens does.
class CompiledPackedDocuments : public CompiledNode {
 public:
  CompiledPackedDocuments(ops::Device& device, const ops::EmbeddingSpec& spec) {
    ops::EmbeddingSpec forward = spec, tokens = spec, positions = spec;
    forward.batch = spec.batch * spec.length;
    forward.length = 1;
    tokens.positions = 0;
    positions.vocabulary = spec.positions;
    positions.positions = positions.first_token = 0;
    positions.padding = -1;
    forward_ = ops::Embedding::make(device, forward);
    tokens_ = ops::Embedding::make(device, tokens);
    positions_ = ops::Embedding::make(device, positions);
  }

  void forward(Emitter& emit) override {
    const BufferId ids = emit.input(0), at = emit.input(1), tokens = emit.parameter(0), positions = emit.parameter(1), dst = emit.output();
    emit.forward({ids, at, tokens, positions}, {dst}, [=, op = forward_.get()](const Run& run) {
      op->forward(run.stream, run.as<std::int32_t>(ids), run.at(tokens), run.at(positions), run.as<std::int32_t>(at), run.at(dst));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId ids = emit.input(0), at = emit.input(1), diff_dst = emit.output_gradient();
    const BufferId tokens = emit.parameter_gradient(0), positions = emit.parameter_gradient(1);
    emit.parameter_gradients({ids, at, diff_dst}, [=, of_tokens = tokens_.get(), of_positions = positions_.get()](const Run& run,
                                                                                                                  bool accumulate) {
      of_tokens->backward_weight(run.stream, run.as<std::int32_t>(ids), run.at(diff_dst), run.as<float>(tokens), nullptr, accumulate);
      of_positions->backward_weight(run.stream, run.as<std::int32_t>(at), run.at(diff_dst), run.as<float>(positions), nullptr, accumulate);
    });
  }

 private:
  std::unique_ptr<ops::Embedding> forward_, tokens_, positions_;
};

class EmbeddingNode : public NodeOp {
 public:
  EmbeddingNode(const EmbeddingOptions& options, int rank, int ranks)
      : options_(options), rows_(stretch_of(options.vocabulary, rank, ranks)) {}
  std::shared_ptr<const NodeOp> packed() const override {
    if (options_.positions == 0) return nullptr;
    auto copy = std::make_shared<EmbeddingNode>(*this);
    copy->packed_ = true;
    return copy;
  }
  const char* kind() const override { return "embedding"; }
  std::optional<std::int64_t> first_token() const override { return rows_.begin; }
  std::int64_t padding_token() const override { return options_.padding; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 2.0 * double(batch * length * options_.width);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    const ops::EmbeddingSpec spec{options.batch,      options.length, options_.width, rows_.count,
                                  options_.positions, rows_.begin,    options.type,   options_.padding};
    if (packed_) return std::make_unique<CompiledPackedDocuments>(device, spec);
    return std::make_unique<CompiledEmbedding>(device, spec);
  }

 private:
  EmbeddingOptions options_;
  Stretch rows_;  // of the table, here
  bool packed_ = false;
};

}  // namespace

std::shared_ptr<const NodeOp> make_embedding_node(const EmbeddingOptions& options, int rank, int ranks) {
  return std::make_shared<EmbeddingNode>(options, rank, ranks);
}

}  // namespace ppengine::engine
