// Programs: from file to graph.
#include <ppengine/models/import/program.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/exported.hpp>
#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

namespace fs = std::filesystem;

ProgramLoss parse_program_loss(const std::string& name) {
  if (name.empty()) return ProgramLoss::none;
  if (name == "cross_entropy") return ProgramLoss::cross_entropy;
  if (name == "mse") return ProgramLoss::mse;
  if (name == "bce") return ProgramLoss::bce;
  if (name == "output") return ProgramLoss::output;
  throw ConfigError(fmt::format("--loss {}: use cross_entropy, mse, bce or output", name));
}

bool Program::is_program(const std::string& path) { return path.ends_with(".pt2") || fs::exists(fs::path(path) / "program.pt2"); }

std::shared_ptr<const Program> Program::load(const std::string& path) {
  auto program = std::make_shared<Program>();
  const bool folder = fs::is_directory(path);
  program->file_ = folder ? (fs::path(path) / "program.pt2").string() : path;
  program->exported_ = ExportedProgram::read(program->file_);
  if (folder) program->saved_ = std::make_shared<WeightFiles>(WeightFiles::open(path));
  for (const ExportedInput& input : program->exported_->inputs) {
    const bool stored = input.kind == ExportedInput::Kind::parameter || input.kind == ExportedInput::Kind::buffer ||
                        input.kind == ExportedInput::Kind::constant;
    if (stored && !program->exported_->tensors.contains(input.name))
      throw FileError(fmt::format("{}: the tensor '{}' is missing", program->file_, input.name));
  }
  if (program->saved_)
    for (const std::string& name : program->state()) {
      const StoredTensor& saved = program->saved_->at(name);
      if (saved.shape != program->exported_->tensors.at(name).shape)
        throw FileError(fmt::format("{}: tensor '{}' has another shape than in program.pt2", saved.file, name));
    }
  return program;
}

const std::vector<std::string>& Program::state() const { return exported_->state; }

const StoredTensor& Program::tensor(const std::string& name) const {
  if (saved_)
    if (const StoredTensor* saved = saved_->find(name)) return *saved;
  const auto found = exported_->tensors.find(name);
  if (found == exported_->tensors.end()) throw FileError(fmt::format("{}: the tensor '{}' is missing", file_, name));
  return found->second;
}

std::string Program::graph_name(const std::string& name) const {
  const auto tied = exported_->tied.find(name);
  return tied == exported_->tied.end() ? name : tied->second;
}

ProgramGraph Program::build(const ProgramOptions& options) const {
  const auto lower = [&](std::vector<bool>& fused) {
    ProgramGraph result;
    result.graph = std::make_shared<engine::Graph>();
    Lowering lowering(*exported_, [this](const std::string& name) -> const StoredTensor& { return tensor(name); }, options, result);
    lowering.set_fused(std::move(fused));
    try {
      lowering.run();
    } catch (const FileError& error) {
      throw FileError(fmt::format("{}: {}", file_, error.what()));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", file_, error.what()));
    }
    fused = lowering.fusable();
    return result;
  };
  std::vector<bool> fused;
  ProgramGraph result = lower(fused);
  const bool again = result.unsupported.empty() && std::ranges::find(fused, true) != fused.end();
  return again ? lower(fused) : result;
}

void Program::check(const ProgramGraph& graph, const std::string& file) {
  if (graph.unsupported.empty()) return;
  std::string text = fmt::format("{}: {} ops of the program are not supported:", file, graph.unsupported.size());
  for (const Unsupported& one : graph.unsupported)
    text += fmt::format("\n  {} in {} ({}): {}", one.op, one.module.empty() ? "the model" : one.module,
                        one.place.empty() ? "no line" : one.place, one.reason);
  throw ConfigError(text);
}

}  // namespace ppengine::models
