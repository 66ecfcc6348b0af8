// TensorBuilder: nodes over tensors of any shape, put into a graph. What imported programs are lowered to.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/tensor/dim.hpp>
#include <ppengine/engine/tensor/expression.hpp>
#include <ppengine/engine/tensor/fusion.hpp>
#include <ppengine/engine/tensor/kernels.hpp>
#include <ppengine/engine/tensor/tensor_ref.hpp>
#include <ppengine/ops/norm.hpp>

namespace ppengine::engine {

// What the emission of a node for a shape needs.
struct TensorCompile {
  ops::Device& device;
  const Graph& graph;
  const Node& node;
  const NodePlan& plan;
  const CompileOptions& options;
  std::int64_t samples;  // of the microbatch
};
struct TensorEmission {
  std::function<void(Emitter&)> forward, backward;
};

// Integers of an input must lie below this: rows of a table, classes. 0: any will do.
struct IndexLimit {
  std::size_t input = 0;
  std::int64_t below = 0;
};

// What a node can do beside computing its value.
struct TensorTraits {
  bool adds_residual = false;
  bool changes_state = false;  // it must run in training, even where nobody reads it
};

struct PoolOptions {
  std::int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  bool count_padding = true;  // average: padding counts
};

struct ConvolutionOptions {
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
};

// What queries see: all keys, or those up to their own place, of these the last `window` (0: all).
struct AttentionMask {
  bool causal = false;
  std::int64_t window = 0;
};

class TensorBuilder {
 public:
  explicit TensorBuilder(Graph& graph) : graph_(graph) {}
  Graph& graph() { return graph_; }
  void set_module(std::string module) { module_ = std::move(module); }
  const std::string& module() const { return module_; }
  // A program whose batch is a number: it runs for microbatches of so many samples alone.
  void set_fixed_batch(std::int64_t samples) { fixed_batch_ = samples; }

  // Whether sums and activations that are written out become the ops that built-in models use.
  void set_patterns(bool wanted) { patterns_ = wanted; }

  // Elementwise nodes that become part of their reader, by the number of their making; of a builder that has made the same nodes before.
  void set_fused(std::vector<bool> into_reader) { fused_ = std::move(into_reader); }
  std::vector<bool> fusable() const { return plan_.into_reader(graph_); }

  TensorRef input(const std::string& name, const Dims& shape, char type);
  TensorRef parameter(int id);  // read when first used by a node that does not take it itself
  TensorRef constant(std::vector<std::int32_t> bits, const Dims& shape, char type);
  TensorRef arange(const Dim& count, double start, double step, char type);
  TensorRef full(const Dims& shape, double value, char type);

  // Views: no node.
  TensorRef permute(const TensorRef& src, const std::vector<int>& order);
  TensorRef slice(const TensorRef& src, int dim, const Dim& start, const Dim& count, std::int64_t step = 1);
  TensorRef expand(const TensorRef& src, const Dims& shape);
  TensorRef reshape(const TensorRef& src, const Dims& shape);  // copies where the view is no such tensor
  TensorRef dense(const TensorRef& src);                       // copies where it is not

  // The value that `view` looks at, with `made` (dense, of the view's shape) in the view's place.
  TensorRef overwrite(const TensorRef& view, const TensorRef& made);

  TensorRef elementwise(Expression expression, std::vector<TensorRef> inputs, char type, const Dims* shape = nullptr);
  // One line: value and gradients as ExpressionLine has them.
  TensorRef apply(const std::string& value, std::vector<std::string> gradients, std::vector<TensorRef> inputs, char type = 'f');
  TensorRef reduce(const TensorRef& src, std::vector<int> dims, bool keep, Reduction what, double scale_by_count_power = 0.0);
  TensorRef sum(const TensorRef& src, std::vector<int> dims, bool keep) { return reduce(src, std::move(dims), keep, Reduction::sum); }
  TensorRef mean(const TensorRef& src, std::vector<int> dims, bool keep) {
    return reduce(src, std::move(dims), keep, Reduction::sum, -1.0);
  }
  TensorRef cat(const std::vector<TensorRef>& parts, int dim);
  TensorRef pad(const TensorRef& src, const std::vector<std::pair<std::int64_t, std::int64_t>>& by_dim, double value);
  TensorRef matmul(const TensorRef& a, const TensorRef& b, double alpha = 1.0);
  // weight: a parameter [out, in] or [in, out]; bias: a parameter or nothing.
  TensorRef linear(const TensorRef& src, const TensorRef& weight, const TensorRef& bias, ops::WeightLayout layout);
  TensorRef layer_norm(const TensorRef& src, std::int64_t width, const TensorRef& gamma, const TensorRef& beta, double epsilon);
  // src / sqrt(mean(src²) + epsilon) · (gamma + shift) over the last `width` elements; gamma: a parameter.
  TensorRef rms_norm(const TensorRef& src, std::int64_t width, const TensorRef& gamma, double shift, double epsilon);
  // src [batch, heads, tokens, width] · cosines + (its halves exchanged, the first one negated) · sines. Cosines and sines want no
  // gradient.
  TensorRef rotary(const TensorRef& src, const TensorRef& cosines, const TensorRef& sines);
  TensorRef softmax(const TensorRef& src, int dim);
  // softmax(scale · q·kᵀ)·v over [batch, heads, tokens, width], where attends() says so: as many queries as keys, and fewer key heads than
  // query heads only with a causal mask. Views of projections are read where they lie.
  static bool attends(const TensorRef& q, const TensorRef& k, const TensorRef& v, const AttentionMask& mask);
  TensorRef attention(const TensorRef& q, const TensorRef& k, const TensorRef& v, const AttentionMask& mask, double scale);
  TensorRef embedding(const TensorRef& ids, const TensorRef& table, std::int64_t padding);
  // src [P, N, Q] by index [P or 1, I, Q or 1] along the middle: out [P, I, Q]. Indices below zero count from the end.
  TensorRef take(const TensorRef& src, const TensorRef& index);
  // base [P, N, Q] with src [P, I, Q] put at (or added to) the places that index [P or 1, I, Q or 1] names along the middle. Of several for
  // one place the last counts.
  TensorRef put(const TensorRef& base, const TensorRef& index, const TensorRef& src, bool add);
  // base with the largest (or smallest) of its own and of what src has for a place. No gradient.
  TensorRef put_extreme(const TensorRef& base, const TensorRef& index, const TensorRef& src, bool largest);
  // Of 0, 1, ... below count: the last place of `offsets` (ascending) whose number is not larger.
  TensorRef bag_numbers(const TensorRef& offsets, const Dim& count);
  TensorRef cumulative_sum(const TensorRef& src, int dim);
  TensorRef cumulative_product(const TensorRef& src, int dim);
  TensorRef cumulative_log_sum(const TensorRef& src, int dim);  // log of the sum of exponentials
  // Where the largest (or smallest) element so far stands; of equal ones the last.
  TensorRef cumulative_order(const TensorRef& src, int dim, bool largest);
  // Indices along dim: the k largest (or smallest) in order; of equal ones the first comes first.
  TensorRef order(const TensorRef& src, int dim, const Dim& k, bool largest);
  TensorRef dropout(const TensorRef& src, double p);
  // Uniform in [0, 1) or normal: seeded by step and sample as dropout is, the same whatever the split.
  TensorRef random(const Dims& shape, bool normal);
  TensorRef convolution(const TensorRef& src, const TensorRef& weight, const TensorRef& bias, const ConvolutionOptions& options);
  TensorRef max_pool(const TensorRef& src, const PoolOptions& options, std::int64_t height, std::int64_t width);
  // The place in its plane of what max_pool gives.
  TensorRef max_pool_places(const TensorRef& src, const PoolOptions& options, std::int64_t height, std::int64_t width);
  TensorRef average_pool(const TensorRef& src, const PoolOptions& options, std::int64_t height, std::int64_t width);
  TensorRef adaptive_average_pool(const TensorRef& src, std::int64_t height, std::int64_t width);
  struct BatchNorm {
    TensorRef gamma, beta, mean, variance;  // parameters; the latter two buffers
    bool training = true;
    double momentum = 0.1, epsilon = 1e-5;
    bool over_ranks = false;  // statistics of all data-parallel ranks together (Run::data)
    bool per_sample = false;  // instance norm: each sample is measured alone; running statistics follow their mean
  };
  TensorRef batch_norm(const TensorRef& src, const BatchNorm& how);
  // gamma and beta: parameters, both or none.
  TensorRef group_norm(const TensorRef& src, std::int64_t groups, const TensorRef& gamma, const TensorRef& beta, double epsilon);

  // A buffer that the program changes, as it was when a microbatch came; and its new value, which training keeps for the next one.
  TensorRef state(int parameter);
  void set_state(int parameter, const TensorRef& value);

  // What training minimises: the sum over samples, weighted when it runs.
  void cross_entropy_loss(const TensorRef& logits, int class_dim, const TensorRef& targets);  // targets: without that dimension
  void sum_loss(const TensorRef& src, const Dim& divisor);                                    // sum of all elements over the divisor

  TensorRef add_node(const char* kind, const std::vector<TensorRef>& inputs, const std::vector<int>& parameters, const Dims& shape,
                     char type, std::function<TensorEmission(const TensorCompile&)> compile, std::function<double(std::int64_t)> flops = {},
                     bool differentiable = true, ValueKind kind_of_value = ValueKind::activation, IndexLimit limit = {},
                     TensorTraits traits = {});
  // A parameter, or an elementwise node that is not made yet, as a value. trained: the parameter gets a gradient.
  TensorRef read(const TensorRef& src, bool trained = true);

 private:
  bool few_classes_loss(const TensorRef& logits, int class_dim, const TensorRef& targets);
  TensorRef make_elementwise(PendingElementwise node);
  TensorRef norm(const TensorRef& src, ops::NormSpec spec, const std::vector<int>& parameters);
  std::optional<TensorRef> make_known(const PendingElementwise& node);
  int value_of(const TensorRef& src);   // makes what is not made yet
  std::map<int, std::string> numbers_;  // constants of one element, as text
  FusionPlan plan_;
  std::size_t made_count_ = 0;  // elementwise nodes so far
  std::vector<bool> fused_;
  std::vector<std::pair<PendingElementwise, int>> pending_;  // by -2 - value; the value once it was made, or -1
  Graph& graph_;
  std::string module_;
  std::int64_t fixed_batch_ = 0;
  bool patterns_ = true;
};

// Shared by the nodes' files.
Access access_of(const TensorRef& ref, const Dims& iteration, std::int64_t samples);
Access dense_access(const std::vector<std::int64_t>& dims, char type = 'f');
void emit_launch(Emitter& emit, bool forward, const Launch& launch, std::vector<BufferId> inputs, std::vector<BufferId> outputs);
// Gives input k, read through `ref` over `iteration`, the gradient that lies densely in `full`.
void give_gradient(Emitter& emit, std::size_t k, const TensorRef& ref, const Dims& iteration, std::int64_t samples, BufferId full);
// Whether every element of the value is touched once: then no zeros have to be written first.
bool covers(const Access& access, const std::vector<std::int64_t>& dims, std::int64_t elements);
TensorRef dense_ref(int value, const Dims& shape, char type);

}  // namespace ppengine::engine
