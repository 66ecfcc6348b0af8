// A program that torch.export has written: its inputs, outputs and tensors, and the graph that trains or runs it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::models {

struct ExportedProgram;
struct StoredTensor;
class WeightFiles;

enum class ProgramLoss { none, cross_entropy, mse, bce, output };
ProgramLoss parse_program_loss(const std::string& name);  // "": none; ConfigError otherwise

struct ProgramOptions {
  ProgramLoss loss = ProgramLoss::none;
  int class_dim = -1;
  bool dropout = true;
  bool sync_batchnorm = false;                     // statistics over all data-parallel ranks
  bool patterns = true;                            // layers that the program spells out run as the ops that built-in models use
  std::function<bool(const std::string&)> frozen;  // parameters by name that are not trained, beside those that the program freezes
  bool outputs = false;                            // the graph gives the program's outputs, side by side for each sample
  // Sizes of the data by input, the batch left out: they decide what symbols other than the batch stand for. Empty: the example's.
  std::map<std::string, std::vector<std::int64_t>> sizes;
};

struct ProgramInput {
  std::string name;
  std::string shape;  // "[B,3,32,32]"
  bool integers = false;
};

struct ProgramOutput {
  std::string name;
  std::vector<std::int64_t> shape;  // of one sample; of the whole where there is no batch
  bool batched = false;
  std::int64_t offset = 0;  // in a sample's row of the graph's output
};

// What cannot be run: op, module, the user's line.
struct Unsupported {
  std::string op, module, place, reason;
};

struct ProgramGraph {
  std::shared_ptr<engine::Graph> graph;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramOutput> outputs;
  std::vector<Unsupported> unsupported;              // where there are any, the graph is not whole
  std::map<std::string, int> ops;                    // how often each occurs
  std::vector<std::pair<std::string, int>> modules;  // in the order of the program, and the node of the graph that each begins with
  std::vector<std::string> running;                  // buffers that training changes: frozen parameters of the graph
  std::vector<std::string> counters;                 // integer buffers that count forwards
  std::int64_t fixed_batch = 0;                      // samples of a microbatch where the export fixed them; 0: any
  std::int64_t targets_width = 0;                    // elements of `targets` for a sample
  bool targets_are_integers = false;
};

class Program {
 public:
  // FILE.pt2, or a folder that a run has saved (program.pt2 with model.safetensors beside it).
  static bool is_program(const std::string& path);
  static std::shared_ptr<const Program> load(const std::string& path);

  // Everything that is not supported is listed; check() throws it as one ConfigError.
  ProgramGraph build(const ProgramOptions& options) const;
  static void check(const ProgramGraph& graph, const std::string& file);

  // Parameters and persistent buffers as the saved file has them: names of the state dict, types and shapes.
  const std::vector<std::string>& state() const;
  const StoredTensor& tensor(const std::string& name) const;
  // The name that the graph has for an entry of the state dict: tied weights have one.
  std::string graph_name(const std::string& name) const;
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::shared_ptr<ExportedProgram> exported_;
  std::shared_ptr<WeightFiles> saved_;  // weights of a saved folder
};

// models::load_program("net.pt2")
inline std::shared_ptr<const Program> load_program(const std::string& path) { return Program::load(path); }

}  // namespace ppengine::models
