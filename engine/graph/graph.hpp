// A model as a DAG of ops with named modules. Values are [batch, length, width]; batch and length are chosen when it is compiled.
//
//   Graph graph;
//   Value ids = graph.tokens("input_ids");
//   auto model = graph.module("transformer");                      // names nest as long as the scope lives
//   Value x = graph.embedding(ids, "wte", {.vocabulary = 256, .width = 64});
//   x = graph.linear(x, "proj", {.out = 64});
//   graph.loss(graph.cross_entropy(x, graph.tokens("targets")));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ppengine/base/ids.hpp>
#include <ppengine/engine/graph/placement.hpp>
#include <ppengine/ops/device/tensor.hpp>
#include <ppengine/ops/kinds.hpp>
#include <ppengine/schedules/action.hpp>

namespace ppengine::engine {

// What a graph is made of is numbered in the order in which it was added.
using Value = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using ParameterId = Id<struct ParameterTag>;
using schedules::StageId;

class NodeOp;

enum class ValueKind { tokens, activation, loss };

struct ValueInfo {
  std::string name;  // of the module that makes it, or of the input
  ValueKind kind = ValueKind::activation;
  std::int64_t width = 1;
  std::int64_t fixed = 0;   // elements beside those of the rows, whatever the batch: a value of rank 4 without a batch has these alone
  std::int64_t square = 0;  // elements for each pair of rows: what programs compute of all samples with each other
  NodeId producer = {};     // none: an input of the model
  bool needs_gradient = false;
  int row_parts = 1;  // above 1: a tensor-parallel rank has one of so many parts of the tokens (rows)
};

// How a parameter starts: normal(0, scale), zeros, ones or uniform(-scale, scale). Independent of split and rank: a function of
// (seed, name, index).
enum class Init { normal, zeros, ones, uniform };

struct ParameterInfo {
  std::string name;  // Hugging Face's
  ops::Shape shape;  // as in the file; on a tensor-parallel rank that of its part
  Init init = Init::normal;
  float scale = 0.02f;
  // The two dimensions of a linear's weight, and how the file has them. Others are not transposed.
  bool linear_weight = false;
  ops::WeightLayout file_layout = ops::WeightLayout::out_in;
  bool fixed_layout = false;        // used in another way too (a tied embedding): stays as in the file
  bool frozen = false;              // not trained: no weight half, no gradient, no optimizer state, no bucket
  ops::WeightStorage storage = {};  // of a frozen linear's weight: how it is kept, where not in f32
  bool is_packed() const { return storage.format != ops::WeightFormat::f32; }
  Placement placement = {};
  const ops::Shape& whole_shape() const { return placement.is_split() ? placement.whole : shape; }
};

struct Node {
  std::string module;
  std::shared_ptr<const NodeOp> op;
  std::vector<Value> inputs;
  std::vector<ParameterId> parameters;
  Value output = {};
};

struct LinearOptions {
  std::int64_t out = 0;
  bool bias = true;
  ops::WeightLayout file_layout = ops::WeightLayout::out_in;  // Hugging Face's Conv1D (GPT-2) is in_out
  float init_scale = 0.02f;
  std::string weight = {};  // full name of an existing parameter to use instead (tied weights)
};

struct EmbeddingOptions {
  std::int64_t vocabulary = 0, width = 0;
  std::int64_t positions = 0;        // learned positions; 0: none
  std::string position_module = {};  // "wpe"
  float init_scale = 0.02f;
  std::int64_t padding = -1;  // the token whose row gets no gradient
};

struct NormOptions {
  ops::NormKind kind = ops::NormKind::layer;
  float epsilon = 1e-5f;
  bool bias = true;
  float shift = 0;         // what is multiplied with is the weight and this; the weight begins as 1 - shift
  std::int64_t group = 0;  // above 0: every so many elements of the width (a head) are a row of their own, with one weight for all of them
  // Where tensor-parallel ranks have parts of the width, they put them together for this norm. Otherwise that is an error.
  bool gathers = false;
};

struct AttentionOptions {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0.0f;       // 0: 1/sqrt(head_dim)
  std::int64_t window = 0;  // above 0: a token attends to the last so many, itself included
  float cap = 0.0f;         // above 0: scores are cap·tanh(score / cap)
};

struct RotaryOptions {
  std::int64_t heads = 0, head_dim = 0;
  // The inverse frequencies for sequences of a given length; some scalings depend on it. As many as pairs of a head are turned: what lies
  // behind them in a head stays as it is.
  std::function<std::vector<float>(std::int64_t length)> frequencies;
  float factor = 1.0f;           // of cosines and sines
  std::int64_t turned = -1;      // heads that are turned, the first ones (queries and keys of a packed projection); -1: all
  std::int64_t parts = 1;        // 3: a head's query, key and value lie together, and lie as [queries, keys, values] behind this node
  std::int64_t switches_at = 0;  // above 0: sequences of more tokens have other frequencies (longrope)
};

class Graph {
 public:
  // Everything defined while the scope lives is inside of the named module: "h.3" inside of "transformer" is "transformer.h.3".
  class Scope {
   public:
    ~Scope();
    Scope(Scope&& other) noexcept : graph_(other.graph_), length_(other.length_) { other.graph_ = nullptr; }
    Scope(const Scope&) = delete;

   private:
    friend class Graph;
    Scope(Graph* graph, std::size_t length) : graph_(graph), length_(length) {}
    Graph* graph_;
    std::size_t length_;
  };
  Scope module(const std::string& name);

  Value tokens(const std::string& name);                     // an input of the model: i32 [batch, length]
  Value input(const std::string& name, std::int64_t width);  // an input of the model: activations [batch, length, width]
  Value embedding(Value ids, const std::string& module, const EmbeddingOptions& options);
  Value linear(Value src, const std::string& module, const LinearOptions& options);
  Value norm(Value src, const std::string& module, const NormOptions& options);
  Value activation(Value src, ops::ActivationKind kind);
  Value gated_silu(Value gate, Value up);
  Value gated_silu(Value packed);        // gate and up side by side
  Value scale(Value src, float factor);  // src · factor; src itself for 1
  Value soft_cap(Value src, float cap);  // cap · tanh(src / cap); src itself for 0
  Value softmax(Value src);
  Value add(Value a, Value b);
  Value multiply(Value a, Value b);
  Value dropout(Value src, float p);
  Value attention(Value packed_qkv, const AttentionOptions& options);
  Value attention(Value q, Value k, Value v, const AttentionOptions& options);
  Value rotary(Value src, const RotaryOptions& options);
  Value cross_entropy(Value logits, Value targets);  // the sum over valid tokens; weighted when it runs
  // An op of your own.
  Value custom(std::shared_ptr<const NodeOp> op, const std::vector<Value>& inputs, const std::vector<ParameterInfo>& parameters,
               std::int64_t width, ValueKind kind = ValueKind::activation);

  // What programs are made of (engine/tensor): a parameter that nodes name by its number, and a node of any kind whose output has
  // square * batch² + batch * width + fixed elements. Outputs of kind tokens (integers) never have a gradient.
  ParameterId parameter(ParameterInfo info) { return add_parameter(std::move(info)); }
  Value node(const std::string& module, std::shared_ptr<const NodeOp> op, const std::vector<Value>& inputs,
             std::vector<ParameterId> parameters, std::int64_t width, std::int64_t fixed, ValueKind kind, bool differentiable = true,
             std::int64_t square = 0);
  Value tensor_input(const std::string& name, std::int64_t width, ValueKind kind);
  ParameterInfo& parameter_info(ParameterId id) { return parameters_[id]; }

  void loss(Value value);    // what training minimises
  void output(Value value);  // what inference gives
  // Parameters for which it says so are not trained any more; what only they would need a gradient for gets none.
  void freeze(const std::function<bool(const ParameterInfo&)>& which);
  // Freezes parameters that the loss depends on in no way that gives a gradient; those that `but` names stay as they are.
  void freeze_unreached(const std::function<bool(const ParameterInfo&)>& but);
  // Frozen weights of linears for which it says so are stored in this way.
  void store_frozen(const ops::WeightStorage& storage, const std::function<bool(const ParameterInfo&)>& which);
  void tensor_plan(TensorPlan plan) { tensor_plan_ = std::move(plan); }  // what tensor-parallel ranks divide, and how

  // Throws ConfigError that names the module and both shapes.
  void expect_width(Value value, std::int64_t width, const std::string& what) const;

  const IdVector<NodeId, Node>& nodes() const { return nodes_; }
  const IdVector<Value, ValueInfo>& values() const { return values_; }
  const IdVector<ParameterId, ParameterInfo>& parameters() const { return parameters_; }
  const ValueInfo& info(Value value) const { return values_[value]; }
  const TensorPlan& tensor_plan() const { return tensor_plan_; }
  Value loss_value() const { return loss_; }
  Value output_value() const { return output_; }
  ParameterId find_parameter(const std::string& name) const;  // may be none
  std::int64_t parameter_count() const;
  std::int64_t trained_count() const;  // elements of the parameters that are not frozen

 private:
  friend class GraphSharder;
  friend class GraphFuser;
  friend class GraphAdapter;
  friend class DocumentPacker;
  std::string qualified(const std::string& name) const;
  ParameterId add_parameter(ParameterInfo info);
  bool trains(const Node& node) const;  // one of its parameters, at least
  Value add_node(const std::string& module, std::shared_ptr<const NodeOp> op, const std::vector<Value>& inputs,
                 std::vector<ParameterId> parameters, std::int64_t width, ValueKind kind = ValueKind::activation);

  std::string scope_;
  IdVector<NodeId, Node> nodes_;
  IdVector<Value, ValueInfo> values_;
  IdVector<ParameterId, ParameterInfo> parameters_;
  TensorPlan tensor_plan_;
  Value loss_, output_;
};

}  // namespace ppengine::engine
