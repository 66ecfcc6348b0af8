// What a node of the graph is to the compiler: an op that, for given shapes, emits instructions for its forward and for both halves of
// its gradient. One file per op in engine/nodes/.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/stage/emitter.hpp>

namespace ppengine::engine {

// For which shapes, device and use a stage is compiled.
struct CompileOptions {
  std::int64_t batch = 1, length = 1;
  ops::Type type = ops::Type::f32;  // of activations and of the weights that compute uses
  bool training = true;
  bool loss = true;                  // the loss is wanted
  bool output = false;               // the graph's output is wanted
  bool output_row = false;           // of one row alone: Run::output_row; batch is 1 then
  bool split_backward = false;       // I and W programs beside B
  bool recompute = false;            // keep only the blocks' inputs, run their forward again in the backward
  std::int64_t cache_capacity = 0;   // above 0: attention over a KV cache of so many tokens (inference)
  std::int64_t cache_chunk = 0;      // the most tokens of a sequence that go in at once
  std::int64_t cache_sequences = 0;  // that the cache holds, of which a run uses `batch` from Run::first_sequence on
  std::int64_t cache_pages = 0;  // above 0: keys and values of all sequences lie in so many pages, but for those of attention with a window
  static constexpr std::int64_t cache_page = 64;  // tokens of a page
  bool cache_in_bytes = false;                    // keys and values as bytes (on CPUs)
  std::int64_t pages_per_sequence() const { return cache_pages > 0 ? (cache_capacity + cache_page - 1) / cache_page : 0; }
};

// What the compiler found out about a node's neighbours.
struct NodePlan {
  Value residual = {};             // a value that the op adds to its output (it stands in for an add node)
  std::vector<bool> add_gradient;  // by input: other users contribute to its gradient before this node does
  bool last_use_of_input = false;  // nobody else reads input 0
};

// An op made for the shapes, ready to emit. Lives as long as the compiled stage: it owns primitives.
class CompiledNode {
 public:
  virtual ~CompiledNode() = default;
  virtual void forward(Emitter& emit) = 0;
  // Called in reverse order, only where the output has a gradient.
  virtual void backward(Emitter& emit) = 0;
};

// What tensor-parallel ranks exchange at a node, in values of its wider side: 2 for a sum over ranks, 1 where parts are gathered or each
// rank keeps its own.
struct Exchange {
  double forward = 0, backward = 0;
};

class NodeOp {
 public:
  virtual ~NodeOp() = default;
  virtual const char* kind() const = 0;  // for people: profiles, messages, inspection. Code asks for what an op can do, below
  // Arithmetic of the forward for so many rows (batch x length), for balancing stages.
  virtual double flops(const Graph& graph, const Node& node, std::int64_t batch, std::int64_t length) const = 0;
  virtual std::unique_ptr<CompiledNode> compile(ops::Device& device, const Graph& graph, const Node& node, const NodePlan& plan,
                                                const CompileOptions& options) const = 0;
  // The same op for one of several tensor-parallel ranks, each with an even part of the inputs' width or heads. Null: it needs all of them.
  // Its parameters stay whole: each rank's part must add the same, summed gradient to them.
  // ConfigError that names the module where they cannot be divided evenly.
  virtual std::shared_ptr<const NodeOp> part(int /*ranks*/, const std::string& /*module*/) const { return nullptr; }
  // Whether ranks put the parts of a divided width together for it, and go on with parts of its result.
  virtual bool gathers_width() const { return false; }
  // The same op for another width, with the cost of a width of `counted`. Null: it needs the width that it has.
  virtual std::shared_ptr<const NodeOp> with_width(std::int64_t /*width*/, std::int64_t /*counted*/) const { return nullptr; }
  // The same op for one of several ranks that each have a part of the tokens (rows) of every input. Null: it needs all of them.
  virtual std::shared_ptr<const NodeOp> rows_part(int /*rank*/, int /*ranks*/) const { return nullptr; }
  // The same op with one more input, the tokens' positions in their documents, of which a sequence holds several: what depends on the
  // position takes it from there, and no token sees another document. Null: it does not matter to the op.
  virtual std::shared_ptr<const NodeOp> packed() const { return nullptr; }
  // Whether a row of its output depends on that row of its inputs alone, wherever the row stands.
  virtual bool row_by_row() const { return false; }
  // Multiplies by a matrix, its first parameter, and adds its second where it has one: what rewrites divide, adapt and pack.
  virtual bool is_linear() const { return false; }
  // Its arithmetic is that of matrix products: what a device's rate is measured by.
  virtual bool multiplies_matrices() const { return is_linear(); }
  virtual Exchange exchange() const { return {}; }
  // Input 0 + input 1: an op that makes one of them and adds_residual() can carry it out.
  virtual bool is_sum() const { return false; }
  // silu(input 0) · input 1: the linear that makes input 1 can carry it out.
  virtual bool is_gate() const { return false; }
  // The same op on a rank's part of its classes, of which all ranks together have as many. Null: it needs all of them.
  virtual std::shared_ptr<const NodeOp> classes_part(std::int64_t /*classes*/, int /*rank*/, int /*ranks*/) const { return nullptr; }
  // What a linear of inference can carry out in its place (engine/graph/inference_graph.hpp).
  virtual const NormOptions* as_norm() const { return nullptr; }
  virtual const ops::ActivationKind* as_activation() const { return nullptr; }
  // Whether it can add a residual to its output.
  virtual bool adds_residual() const { return false; }
  // Where the gradient of its first parameter, a table, is zero but in the rows of the tokens that are its first input: the token of the
  // table's first row.
  virtual std::optional<std::int64_t> first_token() const { return std::nullopt; }
  // Integers of that input choose from so many (rows of a table, classes): those of a batch must be below; 0: any will do.
  virtual std::int64_t index_limit(std::size_t /*input*/) const { return 0; }
  // The token whose row of that table gets no gradient; -1: none.
  virtual std::int64_t padding_token() const { return -1; }
  // Whether it writes a cache that later tokens read: then it runs even where nobody reads its output.
  virtual bool writes_cache() const { return false; }
  // Whether it changes a buffer of the stage in training: then it runs there even where nobody reads its output.
  virtual bool changes_state() const { return false; }
  // Above 0: sequences of more tokens than this have other rotary frequencies.
  virtual std::int64_t rotary_switch() const { return 0; }
  // Bytes of that cache for one sequence, beside those in pages.
  virtual std::size_t cache_bytes(const CompileOptions& /*options*/) const { return 0; }
};

}  // namespace ppengine::engine
