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
  // packed: the tokens' positions are the second input; the op sees every token as a sequence of its own.
  CompiledRotary(ops::Device& device, const ops::RotarySpec& spec, const RotaryOptions& options, std::int64_t positions, bool switches,
                 bool packed)
      : batch_(spec.batch),
        op_(ops::Rotary::make(device, spec)),
        frequencies_{options.frequencies(switches ? options.switches_at : positions)},
        factor_(options.factor),
        positions_(positions),
        switches_(switches),
        packed_(packed) {
    if (switches) frequencies_.push_back(options.frequencies(positions));
  }

  void forward(Emitter& emit) override {
    const BufferId src = emit.input(0), dst = emit.output(), first = packed_ ? emit.input(1) : emit.positions();
    const auto [cosines, sines] = tables(emit);
    emit.forward({src, cosines, sines, first}, {dst}, [=, op = op_.get(), skip = switches_ ? batch_ : 0](const Run& run) {
      const auto* rows = run.as<std::int32_t>(first);
      op->forward(run.stream, run.at(src), run.as<float>(cosines), run.as<float>(sines), rows ? rows + skip : rows, run.at(dst));
    });
  }

  void backward(Emitter& emit) override {
    const BufferId diff_dst = emit.output_gradient(), first = packed_ ? emit.input(1) : no_buffer;
    const auto [cosines, sines] = tables(emit);
    const GradientTarget target = emit.begin_gradient(0, false);
    if (!target) return;
    emit.input_half({diff_dst, cosines, sines, first}, {target.diff}, [=, op = op_.get()](const Run& run) {
      op->backward_input(run.stream, run.at(diff_dst), run.as<float>(cosines), run.as<float>(sines), run.as<std::int32_t>(first),
                         run.at(target.diff));
    });
    emit.finish_gradient(0, target);
  }

 private:
  // [positions, pairs]; where a sequence that grows gets other frequencies, a second table lies behind the first.
  std::pair<BufferId, BufferId> tables(Emitter& emit) const {
    auto table = [&](float (*function)(float)) {
      std::vector<float> values;
      values.reserve(frequencies_.size() * static_cast<std::size_t>(positions_) * frequencies_.front().size());
      for (const auto& frequencies : frequencies_)
        for (std::int64_t position = 0; position < positions_; ++position)
          for (float frequency : frequencies) values.push_back(factor_ * function(static_cast<float>(position) * frequency));
      return values;
    };
    const auto key = [&](const char* name) {  // layers with other frequencies have tables of their own
      double digest = double(factor_);
      for (const auto& frequencies : frequencies_)
        for (std::size_t i = 0; i < frequencies.size(); ++i) digest += double(frequencies[i]) * double(i + 1);
      return fmt::format("rotary.{}.{}.{}.{:a}", name, positions_, frequencies_.front().size(), digest);
    };
    return {emit.constant(key("cos"), [&] { return table([](float x) { return std::cos(x); }); }),
            emit.constant(key("sin"), [&] { return table([](float x) { return std::sin(x); }); })};
  }
  std::int64_t batch_;
  std::unique_ptr<ops::Rotary> op_;
  std::vector<std::vector<float>> frequencies_;
  float factor_;
  std::int64_t positions_;
  bool switches_;
  bool packed_;
};

class RotaryNode : public NodeOp {
 public:
  explicit RotaryNode(const RotaryOptions& options, bool packed = false) : options_(options), packed_(packed) {
    if (options_.turned < 0) options_.turned = options_.heads;
  }
  std::shared_ptr<const NodeOp> packed() const override { return std::make_shared<RotaryNode>(options_, true); }
  const char* kind() const override { return "rotary"; }
  std::int64_t rotary_switch() const override { return options_.switches_at; }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    return 6.0 * double(batch * length * options_.heads * options_.head_dim);
  }
  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    const std::int64_t width = options_.heads * options_.head_dim, positions = std::max(options.length, options.cache_capacity);
    const bool switches = options_.switches_at > 0 && options.cache_capacity > options_.switches_at;
    ops::RotarySpec spec{packed_ ? options.batch * options.length : options.batch,
                         packed_ ? 1 : options.length,
                         options_.heads,
                         options_.head_dim,
                         width,
                         width,
                         options.type};
    spec.turned = options_.turned;
    spec.half = static_cast<std::int64_t>(options_.frequencies(positions).size());
    spec.parts = options_.parts;
    return std::make_unique<CompiledRotary>(device, spec, options_, positions, switches, packed_);
  }

  std::shared_ptr<const NodeOp> part(int ranks, const std::string& module) const override {
    if (options_.heads % ranks != 0 || options_.turned % ranks != 0)
      throw ConfigError(fmt::format("--tp {} does not divide the {} heads of {}", ranks, options_.heads, module));
    RotaryOptions mine = options_;
    mine.heads /= ranks;
    mine.turned /= ranks;
    return std::make_shared<RotaryNode>(mine, packed_);
  }

 private:
  RotaryOptions options_;
  bool packed_;
};

}  // namespace

std::shared_ptr<const NodeOp> make_rotary_node(const RotaryOptions& options) { return std::make_shared<RotaryNode>(options); }

}  // namespace ppengine::engine
