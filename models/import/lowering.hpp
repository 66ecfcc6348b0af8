// Lowering: an exported program's ops, one after the other, to nodes of a graph.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ppengine/engine/tensor/builder.hpp>
#include <ppengine/models/import/exported.hpp>
#include <ppengine/models/import/program.hpp>
#include <ppengine/models/import/shape_values.hpp>

namespace ppengine::models {

using engine::count_of;
using engine::Dim;
using engine::Dims;
using engine::TensorRef;

class Lowering {
 public:
  Lowering(const ExportedProgram& program, const std::function<const StoredTensor&(const std::string&)>& tensor,
           const ProgramOptions& options, ProgramGraph& into);
  void run();
  // A second lowering of the same program with what the first one found: elementwise nodes that become part of others. Empty: none do.
  std::vector<bool> fusable() const { return writes_in_place_ ? std::vector<bool>() : build_.fusable(); }
  void set_fused(std::vector<bool> fused) { build_.set_fused(std::move(fused)); }

 private:
  friend class Arguments;
  friend class ShapeValues;
  struct Unknown {
    std::string reason;
  };
  // Values of a graph by name; an inner graph has its own.
  struct Names {
    const ExportedGraph* graph;
    std::map<std::string, TensorRef> tensors;
    std::map<std::string, Dim> integers;
  };

  void bind_symbols();
  void bind_inputs();
  void check_sample(const std::string& input, const Dims& shape) const;
  void note_module(const std::string& module);
  Dim dim_of(const ExportedSize& size) const;
  Dims shape_of(const std::string& value) const;
  char type_of(const std::string& value) const;
  void lower_graph(const ExportedGraph& graph, Names& names, std::vector<TensorRef>* results);
  std::vector<TensorRef> lower_higher_order(const ExportedNode& node);
  std::vector<TensorRef> lower_inner(const ExportedNode& node, const ExportedGraph& graph, std::size_t first);
  void bind_state();
  void read_state(const std::string& value);
  void keep_state();
  // The results of one node, in the order of its outputs. Unknown where the op is not supported.
  std::vector<TensorRef> lower(const ExportedNode& node);
  std::optional<TensorRef> lower_pointwise(const std::string& op, const class Arguments& in, char type);
  std::optional<std::vector<TensorRef>> lower_views(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_layers(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_indexing(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_scatter(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_windows(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_sampling(const std::string& op, const class Arguments& in);
  std::optional<TensorRef> lower_random(const std::string& op, const class Arguments& in, char type);
  std::optional<TensorRef> lower_made(const std::string& op, const class Arguments& in, char type);
  std::optional<TensorRef> lower_norms(const std::string& op, const class Arguments& in);
  std::optional<TensorRef> lower_experts(const std::string& op, const class Arguments& in);
  std::optional<TensorRef> lower_losses(const std::string& op, const class Arguments& in);
  std::vector<TensorRef> lower_recurrent(const std::string& op, const class Arguments& in);
  std::vector<TensorRef> lower_cell(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_algebra(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_composites(const std::string& op, const class Arguments& in);
  std::pair<TensorRef, TensorRef> recurrent_step(const std::string& op, const TensorRef& a, const TensorRef& b, const TensorRef& h,
                                                 const TensorRef& c);
  TensorRef pad_by_places(const TensorRef& src, const std::vector<std::int64_t>& pads, const std::string& mode);
  TensorRef distance(const TensorRef& a, const TensorRef& b, double p, double eps, bool keep);
  TensorRef cosine(const TensorRef& a, const TensorRef& b, int dim, double eps);
  TensorRef attention(const class Arguments& in);
  TensorRef by_channel(TensorRef y, const TensorRef& gamma, const TensorRef& beta);  // y · gamma + beta, where they are given
  TensorRef group_norm(const TensorRef& src, const Dim& groups, const TensorRef& gamma, const TensorRef& beta, double epsilon);
  TensorRef running_norm(const class Arguments& in, bool per_sample);
  TensorRef number_of(const Dim& size);
  const ExportedNode* maker_of(std::string name);
  std::optional<TensorRef> known_rotary(const class Arguments& in);
  std::optional<TensorRef> known_rms_norm(const class Arguments& in);
  std::optional<TensorRef> known_attention(const class Arguments& in, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                                           double scale);
  TensorRef einsum(const std::string& equation, std::vector<TensorRef> operands);
  // A tensor with its indexed dimensions side by side, and one number for all of them: [before, along, behind] by [shape].
  struct Indexed {
    TensorRef turned, flat;
    std::vector<int> order;
    Dims before, shape, behind;
    Dim along = 1;
    Dims result() const;
  };
  Indexed indexed(const TensorRef& src, const std::vector<std::optional<TensorRef>>& indices);
  TensorRef index(const TensorRef& src, const std::vector<std::optional<TensorRef>>& indices);
  TensorRef index_put(const TensorRef& src, const std::vector<std::optional<TensorRef>>& indices, const TensorRef& values, bool add);
  TensorRef gather(const TensorRef& src, const TensorRef& by, int dim);
  TensorRef scatter(const TensorRef& src, const TensorRef& by, int dim, const TensorRef& values, const std::string& how, bool include_self);
  TensorRef embedding_bag(const class Arguments& in);
  TensorRef grouped_product(const TensorRef& src, const TensorRef& weights, const TensorRef& ends);
  TensorRef size_value(const Dim& size);  // a size as an integer of the program
  // Elements at these places along a dimension; a matrix [to, from] along a dimension.
  TensorRef take_places(const TensorRef& src, std::size_t dim, std::vector<std::int32_t> places);
  TensorRef mapped(const TensorRef& src, std::size_t dim, const std::vector<float>& matrix);
  TensorRef grid_sample(const class Arguments& in);
  TensorRef resize(const TensorRef& src, const std::vector<std::int64_t>& size, bool linear, bool align, const std::vector<double>& scales);
  TensorRef stored_constant(const std::string& name);
  int parameter_of(const std::string& name, bool frozen);
  TensorRef log_softmax(const TensorRef& src, int dim);
  TensorRef cast(const TensorRef& src, char type);
  TensorRef written(const TensorRef& self, TensorRef made);
  TensorRef product(TensorRef a, TensorRef b);
  void add_loss(const std::vector<TensorRef>& outputs);
  void add_outputs(const std::vector<TensorRef>& outputs);

  const ExportedProgram& program_;
  std::function<const StoredTensor&(const std::string&)> tensor_;
  const ProgramOptions& options_;
  ProgramGraph& into_;
  engine::TensorBuilder build_;
  Names* names_ = nullptr;
  std::string batch_symbol_;
  std::map<std::string, std::int64_t> symbols_;  // but the batch's
  std::map<std::string, std::string> buffers_;   // value -> buffer's name
  std::map<std::string, int> parameters_;        // made so far, by name
  std::set<std::string> modules_;                // seen so far
  ShapeValues shape_values_{*this};
  std::map<const ExportedGraph*, std::map<std::string, const ExportedNode*>> makers_;
  std::map<std::string, std::pair<int, int>> state_;  // buffers that the program changes: value -> parameter, and what it was
  bool writes_in_place_ = false;
  bool copies_ = false;  // something is written in place: clones and constants need memory of their own
};

// [before, along, behind] around a dimension.
inline Dims around(const TensorRef& x, int dim) {
  return {count_of({x.shape.begin(), x.shape.begin() + dim}), x.shape[static_cast<std::size_t>(dim)],
          count_of({x.shape.begin() + dim + 1, x.shape.end()})};
}

// The arguments of a node by name, as tensors, numbers and sizes.
class Arguments {
 public:
  Arguments(Lowering& lowering, const ExportedNode& node) : lowering_(lowering), node_(node) {}
  const ExportedNode& node() const { return node_; }
  bool has(const char* name) const;
  TensorRef tensor(const char* name) const;  // also a number as a tensor
  TensorRef tensor_or_none(const char* name) const;
  std::vector<TensorRef> tensors(const char* name) const;
  std::vector<std::optional<TensorRef>> optional_tensors(const char* name) const;
  bool is_tensor(const char* name) const;
  double number(const char* name, double otherwise) const;
  std::optional<double> number(const char* name) const;
  Dim size(const char* name, const Dim& otherwise) const;
  std::optional<Dim> size(const char* name) const;
  Dims sizes(const char* name) const;
  std::vector<std::int64_t> integers(const char* name) const;
  std::int64_t integer(const char* name, std::int64_t otherwise) const;
  bool boolean(const char* name, bool otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  int dim(const char* name, int otherwise, int rank) const;  // from 0
  std::vector<int> dims(const char* name, int rank) const;
  Dims out_shape(std::size_t i = 0) const;
  char out_type(std::size_t i = 0) const;
  const ExportedArgument* find(const char* name) const;
  std::string first_name(const char* name) const;
  [[noreturn]] static void refuse(const std::string& reason);

 private:
  Dim dim_of(const ExportedArgument::Integer& one) const;
  Lowering& lowering_;
  const ExportedNode& node_;
};

}  // namespace ppengine::models
