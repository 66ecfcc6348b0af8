// Causal attention as a node, over one packed projection or three values; over a KV cache in inference.
#include <ppengine/ops/attention.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/nodes/nodes.hpp>

namespace ppengine::engine {
namespace {

// Where q, k and v start: buffers and byte offsets in them. For a packed projection all three lie in one buffer.
struct Operands {
  BufferId q, k, v;
  std::size_t q_at = 0, k_at = 0, v_at = 0;
  void* q_in(const Run& run) const { return run.as<std::byte>(q) + q_at; }
  void* k_in(const Run& run) const { return run.as<std::byte>(k) + k_at; }
  void* v_in(const Run& run) const { return run.as<std::byte>(v) + v_at; }
};

struct Shape {
  AttentionOptions options;
  bool packed;
  std::size_t element;
  std::size_t q_width() const { return static_cast<std::size_t>(options.heads * options.head_dim); }
  std::size_t kv_width() const { return static_cast<std::size_t>(options.kv_heads * options.head_dim); }
  std::size_t k_at() const { return packed ? q_width() * element : 0; }
  std::size_t v_at() const { return packed ? (q_width() + kv_width()) * element : 0; }
  Operands inputs(Emitter& emit) const {
    const std::size_t k = packed ? 0 : 1, v = packed ? 0 : 2;
    return {emit.input(0), emit.input(k), emit.input(v), 0, k_at(), v_at()};
  }
};

class CompiledAttention : public CompiledNode {
 public:
  CompiledAttention(ops::Device& device, const ops::AttentionSpec& spec, const Shape& shape, bool training)
      : shape_(shape), training_(training), op_(ops::Attention::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const Operands in = shape_.inputs(emit);
    const BufferId dst = emit.output(), saved = training_ ? emit.saved("saved", op_->saved_bytes()) : no_buffer;
    const BufferId workspace = emit.workspace(op_->workspace_bytes());
    emit.forward({in.q, in.k, in.v}, {dst, saved, workspace}, [=, op = op_.get()](const Run& run) {
      op->forward(run.stream, in.q_in(run), in.k_in(run), in.v_in(run), run.at(dst), run.at(saved), run.at(workspace));
    });
  }

  void backward(Emitter& emit) override {
    const Operands in = shape_.inputs(emit);
    const BufferId dst = emit.output(), diff_dst = emit.output_gradient(), saved = emit.saved("saved", op_->saved_bytes());
    const BufferId workspace = emit.workspace(op_->workspace_bytes());
    const std::size_t inputs = shape_.packed ? 1 : 3;
    std::vector<GradientTarget> targets;
    std::vector<BufferId> diffs;
    for (std::size_t k = 0; k < inputs; ++k) {
      targets.push_back(emit.begin_gradient(k, false));
      diffs.push_back(targets[k] ? targets[k].diff : emit.workspace(emit.value_bytes_of_input(k)));
    }
    const Operands out{diffs.front(), diffs[shape_.packed ? 0 : 1], diffs.back(), 0, shape_.k_at(), shape_.v_at()};
    std::vector<BufferId> writes = diffs;
    writes.push_back(workspace);
    emit.input_half({in.q, in.k, in.v, dst, diff_dst, saved}, writes, [=, op = op_.get()](const Run& run) {
      op->backward(run.stream, in.q_in(run), in.k_in(run), in.v_in(run), run.at(dst), run.at(diff_dst), run.at(saved), out.q_in(run),
                   out.k_in(run), out.v_in(run), run.at(workspace));
    });
    for (std::size_t k = 0; k < inputs; ++k) emit.finish_gradient(k, targets[k]);
  }

 private:
  Shape shape_;
  bool training_;
  std::unique_ptr<ops::Attention> op_;
};

// Attention of sequences that hold several documents: each document by itself, with an op for its length. Where the documents begin is
// read from the tokens' positions, the last input, when it runs.
class CompiledDocuments : public CompiledNode {
 public:
  CompiledDocuments(ops::Device& device, const ops::AttentionSpec& spec, const Shape& shape, bool training)
      : device_(device), spec_(spec), shape_(shape), training_(training) {
    const ops::AttentionSpec one = for_length(1);
    saved_per_token_ = ops::align_up(ops::Attention::make(device, one)->saved_bytes());
  }

  void forward(Emitter& emit) override {
    const Operands in = shape_.inputs(emit);
    const BufferId at = emit.input(position_input()), dst = emit.output(), saved = training_ ? saved_memory(emit) : no_buffer;
    emit.forward({in.q, in.k, in.v, at}, {dst, saved}, [=, this](const Run& run) {
      for_each_document(run, at, [&](ops::Attention& op, std::int64_t token, void* workspace) {
        op.forward(run.stream, part(in.q_in(run), token, spec_.q_stride), part(in.k_in(run), token, spec_.k_stride),
                   part(in.v_in(run), token, spec_.v_stride), part(run.at(dst), token, width()), saved_of(run.at(saved), token), workspace);
      });
    });
  }

  void backward(Emitter& emit) override {
    const Operands in = shape_.inputs(emit);
    const BufferId at = emit.input(position_input()), dst = emit.output(), diff_dst = emit.output_gradient(), saved = saved_memory(emit);
    std::vector<GradientTarget> targets;
    std::vector<BufferId> diffs;
    for (std::size_t k = 0; k < position_input(); ++k) {
      targets.push_back(emit.begin_gradient(k, false));
      diffs.push_back(targets[k] ? targets[k].diff : emit.workspace(emit.value_bytes_of_input(k)));
    }
    const Operands out{diffs.front(), diffs[shape_.packed ? 0 : 1], diffs.back(), 0, shape_.k_at(), shape_.v_at()};
    emit.input_half({in.q, in.k, in.v, dst, diff_dst, saved, at}, diffs, [=, this](const Run& run) {
      for_each_document(run, at, [&](ops::Attention& op, std::int64_t token, void* workspace) {
        op.backward(run.stream, part(in.q_in(run), token, spec_.q_stride), part(in.k_in(run), token, spec_.k_stride),
                    part(in.v_in(run), token, spec_.v_stride), part(run.at(dst), token, width()), part(run.at(diff_dst), token, width()),
                    saved_of(run.at(saved), token), part(out.q_in(run), token, spec_.q_stride), part(out.k_in(run), token, spec_.k_stride),
                    part(out.v_in(run), token, spec_.v_stride), workspace);
      });
    });
    for (std::size_t k = 0; k < position_input(); ++k) emit.finish_gradient(k, targets[k]);
  }

 private:
  std::size_t position_input() const { return shape_.packed ? 1 : 3; }
  std::int64_t width() const { return spec_.heads * spec_.head_dim; }
  ops::AttentionSpec for_length(std::int64_t length) const {
    ops::AttentionSpec spec = spec_;
    spec.batch = 1;
    spec.length = length;
    return spec;
  }
  BufferId saved_memory(Emitter& emit) const {
    return emit.saved("saved", saved_per_token_ * static_cast<std::size_t>(spec_.batch * spec_.length));
  }
  void* part(void* memory, std::int64_t token, std::int64_t stride) const {
    return static_cast<std::byte*>(memory) + static_cast<std::size_t>(token * stride) * shape_.element;
  }
  void* saved_of(void* memory, std::int64_t token) const {
    return memory ? static_cast<std::byte*>(memory) + static_cast<std::size_t>(token) * saved_per_token_ : nullptr;
  }

  template <class Body>
  void for_each_document(const Run& run, BufferId positions, const Body& body) {
    const auto tokens = static_cast<std::size_t>(spec_.batch * spec_.length);
    host_.resize(tokens);
    run.stream.copy(host_.data(), run.at(positions), tokens * sizeof(std::int32_t));
    run.stream.wait();
    for (std::int64_t begin = 0, end = 0; begin < static_cast<std::int64_t>(tokens); begin = end) {
      const std::int64_t border = (begin / spec_.length + 1) * spec_.length;  // of the sequence
      for (end = begin + 1; end < border && host_[static_cast<std::size_t>(end)] != 0;) ++end;
      auto& op = ops_[end - begin];
      if (!op) op = ops::Attention::make(device_, for_length(end - begin));
      if (workspace_.bytes() < op->workspace_bytes()) {
        run.stream.wait();
        workspace_ = ops::Buffer(device_.shared_from_this(), op->workspace_bytes());
      }
      body(*op, begin, workspace_.data());
    }
  }

  ops::Device& device_;
  ops::AttentionSpec spec_;
  Shape shape_;
  bool training_;
  std::size_t saved_per_token_ = 0;  // saved memory grows with the length
  std::vector<std::int32_t> host_;
  std::map<std::int64_t, std::unique_ptr<ops::Attention>> ops_;  // by length of a document
  ops::Buffer workspace_;
};

class CompiledCachedAttention : public CompiledNode {
 public:
  CompiledCachedAttention(ops::Device& device, const ops::CachedAttentionSpec& spec, const Shape& shape, std::int64_t sequences)
      : spec_(spec), shape_(shape), sequences_(sequences), op_(ops::CachedAttention::make(device, spec)) {}

  void forward(Emitter& emit) override {
    const Operands in = shape_.inputs(emit);
    const bool paged = spec_.pages.size > 0;
    const std::size_t each = spec_.cache_bytes();  // of one sequence, or of all
    const std::size_t all = paged ? each : static_cast<std::size_t>(sequences_) * each, bytes = paged ? 0 : each;
    const BufferId k_cache = emit.cache(all), v_cache = emit.cache(all), filled = emit.positions();
    const BufferId dst = emit.output(), workspace = emit.workspace(op_->workspace_bytes());
    emit.forward({in.q, in.k, in.v, filled, k_cache, v_cache}, {dst, workspace}, [=, op = op_.get()](const Run& run) {
      const std::size_t first = static_cast<std::size_t>(run.first_sequence) * bytes;
      op->forward(run.stream, in.q_in(run), in.k_in(run), in.v_in(run), run.as<std::int32_t>(filled), run.as<std::byte>(k_cache) + first,
                  run.as<std::byte>(v_cache) + first, run.at(dst), run.at(workspace));
    });
  }
  void backward(Emitter&) override {}

 private:
  ops::CachedAttentionSpec spec_;
  Shape shape_;
  std::int64_t sequences_;  // that the cache holds
  std::unique_ptr<ops::CachedAttention> op_;
};

class AttentionNode : public NodeOp {
 public:
  AttentionNode(const AttentionOptions& options, bool packed) : options_(options), packed_(packed) {
    if (options_.scale == 0.0f) options_.scale = 1.0f / std::sqrt(static_cast<float>(options_.head_dim));
  }
  const char* kind() const override { return "attention"; }
  bool multiplies_matrices() const override { return true; }
  std::shared_ptr<const NodeOp> packed() const override {
    auto copy = std::make_shared<AttentionNode>(*this);
    copy->documents_ = true;
    return copy;
  }
  bool writes_cache() const override { return true; }
  std::size_t cache_bytes(const CompileOptions& options) const override {
    return paged(options) ? 0 : 2 * cached_spec(options).cache_bytes();
  }
  double flops(const Graph&, const Node&, std::int64_t batch, std::int64_t length) const override {
    const auto seen =
        double(options_.window > 0 ? std::min(options_.window, length) : length);  // by the last token; the others ascend to it
    return 4.0 * double(batch * options_.heads * options_.head_dim) * (seen * (seen + 1) / 2 + (double(length) - seen) * seen);
  }

  std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph&, const Node&, const NodePlan&,
                                        const CompileOptions& options) const override {
    const Shape shape{options_, packed_, ops::size_of(options.type)};
    if (options.cache_capacity > 0)
      return std::make_unique<CompiledCachedAttention>(device, cached_spec(options), shape,
                                                       std::max(options.cache_sequences, options.batch));
    const ops::AttentionSpec spec{options.batch, options.length, options_.heads, options_.kv_heads, options_.head_dim, q_stride(),
                                  kv_stride(),   kv_stride(),    options_.scale, options.type,      options_.window,   options_.cap};
    if (documents_) return std::make_unique<CompiledDocuments>(device, spec, shape, options.training);
    return std::make_unique<CompiledAttention>(device, spec, shape, options.training);
  }

  std::shared_ptr<const NodeOp> part(int ranks, const std::string& module) const override {
    for (const auto& [heads, what] : {std::pair(options_.heads, "heads"), std::pair(options_.kv_heads, "key/value heads")})
      if (heads % ranks != 0) throw ConfigError(fmt::format("--tp {} does not divide the {} {} of {}", ranks, heads, what, module));
    AttentionOptions mine = options_;
    mine.heads /= ranks;
    mine.kv_heads /= ranks;
    auto part = std::make_shared<AttentionNode>(mine, packed_);
    part->documents_ = documents_;
    return part;
  }

 private:
  std::int64_t kv_width() const { return options_.kv_heads * options_.head_dim; }
  std::int64_t q_stride() const { return options_.heads * options_.head_dim + (packed_ ? 2 * kv_width() : 0); }
  std::int64_t kv_stride() const { return packed_ ? q_stride() : kv_width(); }
  ops::CachedAttentionSpec cached_spec(const CompileOptions& options) const {
    ops::CachedAttentionSpec spec{options.batch, options.length,  options_.heads, options_.kv_heads, options_.head_dim,
                                  q_stride(),    kv_stride(),     kv_stride(),    kept(options),     options_.scale,
                                  options.type,  options_.window, options_.cap};
    spec.bytes = options.cache_in_bytes;
    if (paged(options)) {
      spec.window = 0;  // if it has one, no sequence is longer
      spec.pages = {CompileOptions::cache_page, options.cache_pages, 2 * options.batch, options.pages_per_sequence()};
    }
    return spec;
  }
  bool paged(const CompileOptions& options) const {
    return options.cache_pages > 0 && (options_.window <= 0 || options_.window >= options.cache_capacity);
  }
  // Tokens of a sequence in the cache: with a window no more than that sees, and what goes in at once.
  std::int64_t kept(const CompileOptions& options) const {
    return ops::window_capacity(options_.window, std::max(options.cache_chunk, options.length), options.cache_capacity);
  }

  AttentionOptions options_;
  bool packed_;
  bool documents_ = false;  // several in a sequence: one more input
};

}  // namespace

std::shared_ptr<const NodeOp> make_attention_node(const AttentionOptions& options, bool packed) {
  return std::make_shared<AttentionNode>(options, packed);
}

}  // namespace ppengine::engine
