// Fusion of elementwise nodes: which of them one other elementwise node alone reads, and two expressions made one.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/tensor/expression.hpp>
#include <ppengine/engine/tensor/tensor_ref.hpp>

namespace ppengine::engine {

// An elementwise node that is not in the graph yet: it may become part of the one that reads it.
struct PendingElementwise {
  Expression expression;
  std::vector<TensorRef> inputs;
  Dims shape;
  char type = 'f';
};

// The elementwise nodes of a graph in the order of their making. A program is lowered twice: the first time they are recorded, the second
// time those that one other node alone reads are made part of it.
class FusionPlan {
 public:
  struct Made {
    int value;
    Dims shape;
    std::vector<int> reads;  // values that it reads whole, element by element
  };
  void record(Made made) { made_.push_back(std::move(made)); }
  // After the first time: which of them go into their reader, by number.
  std::vector<bool> into_reader(const Graph& graph) const;

 private:
  std::vector<Made> made_;
};

bool same_view(const TensorRef& a, const TensorRef& b);
// `outer` with its input number k computed by `inner`; inputs that both read are one. Nothing where the kernel would become too large.
std::optional<PendingElementwise> fuse(const PendingElementwise& outer, std::size_t k, const PendingElementwise& inner);
// Inputs that are known numbers (by value) as text of the expression.
PendingElementwise with_numbers(PendingElementwise node, const std::map<int, std::string>& numbers);

}  // namespace ppengine::engine
