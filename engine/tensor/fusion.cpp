// Fusion of elementwise nodes.
#include <ppengine/engine/tensor/fusion.hpp>

#include <algorithm>

namespace ppengine::engine {
namespace {

constexpr std::size_t most_inputs = 6, most_lines = 32;  // all of them with their gradients must fit into ops::KernelNumbers

// Takes inputs and lines of others into one expression.
class Joined {
 public:
  explicit Joined(const PendingElementwise& like) {
    node_.shape = like.shape;
    node_.type = like.type;
  }
  int input(const TensorRef& ref) {
    const auto found = std::ranges::find_if(node_.inputs, [&](const TensorRef& one) { return same_view(one, ref); });
    if (found != node_.inputs.end()) return static_cast<int>(found - node_.inputs.begin());
    node_.inputs.push_back(ref);
    node_.expression.inputs.push_back(ref.stored());
    return static_cast<int>(node_.inputs.size() - 1);
  }
  // Lines are numbered from -1 downwards until all inputs are known.
  int line(ExpressionLine line) {
    node_.expression.lines.push_back(std::move(line));
    return -static_cast<int>(node_.expression.lines.size());
  }
  // of[i]: input i of the expression, here. The number of its last line.
  int add(const Expression& expression, const std::vector<int>& of) {
    std::vector<int> here = of;
    for (ExpressionLine one : expression.lines) {
      for (int& argument : one.arguments) argument = here[static_cast<std::size_t>(argument)];
      here.push_back(line(std::move(one)));
    }
    return here.back();
  }
  PendingElementwise finish() {
    const int inputs = static_cast<int>(node_.inputs.size());
    for (ExpressionLine& one : node_.expression.lines)
      for (int& argument : one.arguments)
        if (argument < 0) argument = inputs - 1 - argument;
    return std::move(node_);
  }
  bool too_large() const { return node_.inputs.size() > most_inputs || node_.expression.lines.size() > most_lines; }

 private:
  PendingElementwise node_;
};

}  // namespace

bool same_view(const TensorRef& a, const TensorRef& b) {
  return a.value == b.value && a.parameter == b.parameter && a.type == b.type && a.shape == b.shape && a.strides == b.strides &&
         a.offset == b.offset;
}

std::vector<bool> FusionPlan::into_reader(const Graph& graph) const {
  std::vector<int> readers(graph.values().size(), 0);
  for (const Node& node : graph.nodes())
    for (Value input : node.inputs) ++readers[input.index()];
  std::vector<bool> result(made_.size(), false);
  std::map<int, std::size_t> makers;
  for (std::size_t i = 0; i < made_.size(); ++i) {
    for (int value : made_[i].reads) {
      const auto maker = makers.find(value);
      if (maker == makers.end() || readers[static_cast<std::size_t>(value)] != 1 || Value(value) == graph.output_value()) continue;
      result[maker->second] = made_[maker->second].shape == made_[i].shape;
    }
    makers[made_[i].value] = i;
  }
  return result;
}

std::optional<PendingElementwise> fuse(const PendingElementwise& outer, std::size_t k, const PendingElementwise& inner) {
  Joined joined(outer);
  std::vector<int> of_inner, of_outer;
  for (const TensorRef& one : inner.inputs) of_inner.push_back(joined.input(one));
  const int made = joined.add(inner.expression, of_inner);
  for (std::size_t i = 0; i < outer.inputs.size(); ++i) of_outer.push_back(i == k ? made : joined.input(outer.inputs[i]));
  joined.add(outer.expression, of_outer);
  if (joined.too_large()) return {};
  return joined.finish();
}

PendingElementwise with_numbers(PendingElementwise node, const std::map<int, std::string>& numbers) {
  const auto number = [&](const TensorRef& one) { return one.value >= 0 && numbers.contains(one.value); };
  if (std::ranges::none_of(node.inputs, number) || std::ranges::all_of(node.inputs, number)) return node;
  Joined joined(node);
  std::vector<int> of;
  for (const TensorRef& one : node.inputs)
    of.push_back(number(one) ? joined.line({numbers.at(one.value), {}, {}, one.stored()}) : joined.input(one));
  joined.add(node.expression, of);
  return joined.finish();
}

}  // namespace ppengine::engine
