// Rotary position embedding as a node.
#include <ppengine/ops/rotary.hpp>

#include <fmt/core.h>

#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {
namespace {

class CompiledRotary : public CompiledNode {
 public:
  CompiledRotary(ops::Device& device, const ops::RotarySpec& spec, std::vector<float> frequencies, int64_t positions)
      : op_(ops::Rotary::make(device, spec)), frequencies_(std::move(frequencies)), positions_(positions) {}

  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output(), first = emit.positions();
    const auto [cosines, sines] = tables(emit);
    emit.forward({src, cosines, sines, first}, {dst}, [=, op = op_.get()](const Run& run) {
      op->forward(run.stream, run.at(src), run.as<float>(cosines), run.as<float>(sines), run.as<int32_t>(first), run.at(dst));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient();
    const auto [cosines, sines] = tables(emit);
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst, cosines, sines}, {target.diff}, [=, op = op_.get()](const Run& run) {
      op->backward_input(run.stream, run.at(diff_dst), run.as<float>(cosines), run.as<float>(sines), nullptr, run.at(target.diff));
    });
    emit.finish_gradient(0, target);
  }

 private:
  std::pair<BufferId, BufferId> tables(Emitter& emit) const {
    auto table = [&](float (*function)(float)) {
      std::vector<float> values;
      values.reserve(static_cast<size_t>(positions_) * frequencies_.size());
      for (int64_t position = 0; position < positions_; ++position)
        for (float frequency : frequencies_) values.push_back(function(static_cast<float>(position) * frequency));
      return values;
    };
    const auto key = [&](const char* name) {  // layers with other frequencies have tables of their own
      double digest = 0;
      for (size_t i = 0; i < frequencies_.size(); ++i) digest += double(frequencies_[i]) * double(i + 1);
      return fmt::format("rotary.{}.{}.{}.{:a}", name, positions_, frequencies_.size(), digest);
    };
    return {emit.constant(key("cos"), [&] { return table([](float x) { return std::cos(x); }); }),
            emit.constant(key("sin"), [&] { return table([](float x) { return std::sin(x); }); })};
  }
  std::unique_ptr<ops::Rotary> op_;
  std::vector<float> frequencies_;
  int64_t positions_;
};

class RotaryNode : public NodeOp {
 public:
  explicit RotaryNode(const RotaryOptions& options) : options_(options) {}
  const char* kind() const override { return "rotary"; }
  double flops(const Graph&, const Node&, int64_t batch, int64_t length) const override {
    return 6.0 * double(batch * length * options_.heads * options_.head_dim);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    const int64_t width = options_.heads * options_.head_dim, positions = std::max(options.length, options.cache_capacity);
    return std::make_unique<CompiledRotary>(
        device, ops::RotarySpec{options.batch, options.length, options_.heads, options_.head_dim, width, width, options.type},
        options_.frequencies(positions), positions);
  }

  std::shared_ptr<const NodeOp> part(int ranks, const std::string& module) const override {
    if (options_.heads % ranks != 0)
      throw ConfigError(fmt::format("--tp {} does not divide the {} heads of {}", ranks, options_.heads, module));
    return make_rotary_node({options_.heads / ranks, options_.head_dim, options_.frequencies});
  }

 private:
  RotaryOptions options_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_rotary_node(const RotaryOptions& options) { return std::make_shared<RotaryNode>(options); }

}  // namespace ppengine::engine
