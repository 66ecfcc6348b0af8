// A value times a number, and a value bent into a range by tanh (Gemma's caps of logits), as nodes.
#include <ppengine/engine/nodes/nodes.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

class CompiledScale : public CompiledNode {
 public:
  CompiledScale(ops::Type type, float factor, std::int64_t count) : type_(type), factor_(factor), count_(count) {}
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, [=, *this](const Run& run) { ops::scale(run.stream, type_, run.at(src), run.at(dst), factor_, count_); });
  }
  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst}, {target.diff},
                    [=, *this](const Run& run) { ops::scale(run.stream, type_, run.at(diff_dst), run.at(target.diff), factor_, count_); });
    emit.finish_gradient(0, target);
  }

 private:
  ops::Type type_;
  float factor_;
  std::int64_t count_;
};

class CompiledSoftCap : public CompiledNode {
 public:
  CompiledSoftCap(ops::Type type, float cap, std::int64_t count) : type_(type), cap_(cap), count_(count) {}
  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output();
    emit.forward({src}, {dst}, [=, *this](const Run& run) { ops::soft_cap(run.stream, type_, run.at(src), run.at(dst), cap_, count_); });
  }
  void backward(Emitter& emit) override {
    // Not from the result: a loss may have put its gradient there.
    const BufferId src = emit.input(0), diff_dst = emit.output_gradient();
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({src, diff_dst}, {target.diff}, [=, *this](const Run& run) {
      ops::soft_cap_backward(run.stream, type_, run.at(src), run.at(diff_dst), run.at(target.diff), cap_, count_);
    });
    emit.finish_gradient(0, target);
  }

 private:
  ops::Type type_;
  float cap_;
  std::int64_t count_;
};

class ScaleNode : public NodeOp {
 public:
  explicit ScaleNode(const ScaleOptions& options, int rank = 0, int ranks = 1) : options_(options), rank_(rank), ranks_(ranks) {}
  const char* kind() const override { return options_.caps ? "soft_cap" : "scale"; }
  bool row_by_row() const override { return ranks_ == 1; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    const std::int64_t width = options_.counted > 0 ? options_.counted : options_.width;
    return (options_.caps ? 10.0 : 1.0) * double(batch * length * width);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device&, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    const std::int64_t count = row_part(options, rank_, ranks_).count * options_.width;
    if (options_.caps) return std::make_unique<CompiledSoftCap>(options.type, options_.factor, count);
    return std::make_unique<CompiledScale>(options.type, options_.factor, count);
  }

  std::shared_ptr<const NodeOp> part(int ranks, const std::string&) const override {
    return with_width(options_.width / ranks, options_.width / ranks);
  }
  std::shared_ptr<const NodeOp> with_width(std::int64_t width, std::int64_t counted) const override {
    return make_scale_node({width, options_.factor, options_.caps, counted});
  }
  std::shared_ptr<const NodeOp> rows_part(int rank, int ranks) const override { return std::make_shared<ScaleNode>(options_, rank, ranks); }

 private:
  ScaleOptions options_;
  int rank_, ranks_;  // that have parts of the tokens
};

}  // namespace

std::shared_ptr<const NodeOp> make_scale_node(const ScaleOptions& options) { return std::make_shared<ScaleNode>(options); }

}  // namespace ppengine::engine
