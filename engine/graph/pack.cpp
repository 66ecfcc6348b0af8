// Rewriting a graph for sequences that hold several documents.
#include <ppengine/engine/graph/pack.hpp>

#include <ppengine/engine/graph/node.hpp>

namespace ppengine::engine {

class DocumentPacker {
 public:
  explicit DocumentPacker(const Graph& graph) : from_(graph) {
    to_.parameters_ = graph.parameters();
    to_.tensor_plan_ = graph.tensor_plan();
  }

  std::shared_ptr<const Graph> run() {
    const Value positions = to_.tokens(positions_input);
    IdVector<Value, Value> values;  // by value of the graph
    for (const ValueInfo& info : from_.values()) {
      if (!info.producer) {
        values.push_back(to_.values_.push_back(info));
        continue;
      }
      const Node& node = from_.nodes()[info.producer];
      std::vector<Value> inputs;
      for (Value input : node.inputs) inputs.push_back(values[input]);
      auto op = node.op;
      if (auto packed = op->packed()) {
        op = std::move(packed);
        inputs.push_back(positions);
      }
      values.push_back(to_.add_node(node.module, std::move(op), inputs, node.parameters, info.width, info.kind));
    }
    if (from_.loss_value()) to_.loss_ = values[from_.loss_value()];
    if (from_.output_value()) to_.output_ = values[from_.output_value()];
    return std::make_shared<const Graph>(std::move(to_));
  }

 private:
  const Graph& from_;
  Graph to_;
};

std::shared_ptr<const Graph> pack_documents(const Graph& graph) { return DocumentPacker(graph).run(); }

}  // namespace ppengine::engine
