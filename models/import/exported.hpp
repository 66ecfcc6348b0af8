// An exported program as torch.export writes it: graph, signature, symbols, and where its tensors lie. Checked, not yet understood.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/models/import/archive.hpp>

namespace ppengine::models {

// A size: a number, or an expression over symbols as sympy writes it.
struct ExportedSize {
  std::int64_t number = 0;
  std::string expression;  // empty: the number
  std::int64_t hint = 0;   // the example's
};

struct ExportedGraph;

struct ExportedArgument {
  enum class Kind { none, tensor, tensors, integer, integers, number, numbers, boolean, booleans, text, type, graph, other };
  Kind kind = Kind::none;
  std::vector<std::string> names;  // tensors; empty ones of a list: none
  struct Integer {
    std::int64_t value = 0;
    std::string name;  // of a symbolic integer; empty: the value
  };
  std::vector<Integer> integers;  // also type
  std::vector<double> numbers;
  bool boolean = false;
  std::string text;
  std::shared_ptr<ExportedGraph> graph;
};

struct ExportedNode {
  std::string target;  // "aten.linear.default"
  std::vector<std::pair<std::string, ExportedArgument>> arguments;
  std::vector<std::string> outputs;  // values; empty ones: unused
  std::string module, place;         // "layers.0", "net.py:12"
};

struct ExportedValue {
  int type = 0;  // torch's ScalarType as the file numbers them
  std::vector<ExportedSize> sizes;
};

struct ExportedGraph {
  std::vector<std::string> inputs, outputs;
  std::vector<ExportedNode> nodes;
  std::map<std::string, ExportedValue> values;
  std::map<std::string, ExportedSize> integers;  // symbolic integers by name
};

struct ExportedInput {
  enum class Kind { parameter, buffer, constant, input, other };
  Kind kind = Kind::input;
  std::string value;  // in the graph
  std::string name;   // of the parameter, buffer or constant
  bool persistent = true;
};

struct ExportedProgram {
  std::shared_ptr<Archive> archive;
  ExportedGraph graph;
  std::vector<ExportedInput> inputs;
  std::vector<std::string> outputs;                      // the user's
  std::map<std::string, StoredTensor> tensors;           // parameters, buffers and constants by name; dense
  std::map<std::string, std::vector<std::byte>> copies;  // of those that are not dense in the file
  std::vector<std::string> state;                        // names of the state dict, in its order
  std::set<std::string> frozen;                          // parameters that want no gradient
  std::map<std::string, std::string> tied;               // parameters whose bytes another parameter before them has: its name
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> ranges;  // of symbols

  static std::shared_ptr<ExportedProgram> read(const std::filesystem::path& path);
};

// The value of a size where symbols have these values; FileError for an expression that is not known.
std::int64_t value_of(const ExportedSize& size, const std::map<std::string, std::int64_t>& symbols);
// The symbols that occur in an expression.
std::vector<std::string> symbols_of(const std::string& expression);

}  // namespace ppengine::models
