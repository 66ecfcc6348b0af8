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

using engine::Dim;
using engine::Dims;
using engine::count_of;
using engine::TensorRef;

class Lowering {
 public:
  Lowering(const ExportedProgram& program, const std::function<const StoredTensor&(const std::string&)>& tensor, const ProgramOptions& options,
           ProgramGraph& into);
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
  void note_module(const std::string& module);
  Dim dim_of(const ExportedSize& size) const;
  Dims shape_of(const std::string& value) const;
  char type_of(const std::string& value) const;
  void lower_graph(const ExportedGraph& graph, Names names, std::vector<TensorRef>* results);
  // The results of one node, in the order of its outputs. Unknown where the op is not supported.
  std::vector<TensorRef> lower(const ExportedNode& node);
  std::optional<TensorRef> lower_pointwise(const std::string& op, const class Arguments& in, char type);
  std::optional<std::vector<TensorRef>> lower_views(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_layers(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_indexing(const std::string& op, const class Arguments& in);
  std::optional<TensorRef> lower_made(const std::string& op, const class Arguments& in, char type);
  std::optional<TensorRef> lower_losses(const std::string& op, const class Arguments& in);
  std::vector<TensorRef> lower_recurrent(const std::string& op, const class Arguments& in);
  std::vector<TensorRef> lower_cell(const std::string& op, const class Arguments& in);
  std::optional<std::vector<TensorRef>> lower_composites(const std::string& op, const class Arguments& in);
  std::pair<TensorRef, TensorRef> recurrent_step(const std::string& op, const TensorRef& a, const TensorRef& b, const TensorRef& h, const TensorRef& c);
  TensorRef pad_by_places(const TensorRef& src, const std::vector<std::int64_t>& pads, const std::string& mode);
  TensorRef distance(const TensorRef& a, const TensorRef& b, double p, double eps, bool keep);
  TensorRef cosine(const TensorRef& a, const TensorRef& b, int dim, double eps);
  TensorRef attention(const class Arguments& in);
  const ExportedNode* maker_of(std::string name);
  std::optional<TensorRef> known_rotary(const class Arguments& in);
  std::optional<TensorRef> known_rms_norm(const class Arguments& in);
  std::optional<TensorRef> known_attention(const class Arguments& in, const TensorRef& q, const TensorRef& k, const TensorRef& v, double scale);
  TensorRef einsum(const std::string& equation, std::vector<TensorRef> operands);
  TensorRef index(const TensorRef& src, const std::vector<std::optional<TensorRef>>& indices);
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
  bool writes_in_place_ = false;
  bool copies_ = false;                          // something is written in place: clones and constants need memory of their own
};

// The arguments of a node by name, as tensors, numbers and sizes.
class Arguments {
 public:
  Arguments(Lowering& lowering, const ExportedNode& node) : lowering_(lowering), node_(node) {}
  const ExportedNode& node() const { return node_; }
  bool has(const char* name) const;
  TensorRef tensor(const char* name) const;                  // also a number as a tensor
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
  int dim(const char* name, int otherwise, int rank) const;                  // from 0
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
