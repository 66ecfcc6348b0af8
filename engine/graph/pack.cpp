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
    std::vector<Value> values;  // by value of the graph
    for (const ValueInfo& info : from_.values()) {
      if (info.producer < 0) {
        to_.values_.push_back(info);
        values.push_back({static_cast<int>(to_.values_.size() - 1)});
        continue;
      }
      const Node& node = from_.nodes()[static_cast<size_t>(info.producer)];
      std::vector<Value> inputs;
      for (int input : node.inputs) inputs.push_back(values[static_cast<size_t>(input)]);
      auto op = node.op;
      if (auto packed = op->packed()) {
        op = std::move(packed);
        inputs.push_back(positions);
      }
      values.push_back(to_.add_node(node.module, std::move(op), inputs, node.parameters, info.width, info.kind));
    }
    if (from_.loss_value() >= 0) to_.loss_ = values[static_cast<size_t>(from_.loss_value())].id;
    if (from_.output_value() >= 0) to_.output_ = values[static_cast<size_t>(from_.output_value())].id;
    return std::make_shared<const Graph>(std::move(to_));
  }

 private:
  const Graph& from_;
  Graph to_;
};

std::shared_ptr<const Graph> pack_documents(const Graph& graph) { return DocumentPacker(graph).run(); }

}  // namespace ppengine::engine
