// Files of program runs: saved folders (model.safetensors, program.pt2, the optimizer's state) and outputs of evaluations.
#pragma once

#include <optional>
#include <span>

#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/data/data.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/models/import/program.hpp>
#include <ppengine/runs/training/saving.hpp>

namespace ppengine::runs {

// A parameter or running statistic as floats.
std::vector<float> stored_parameter(const models::Program& program, const std::string& name);

// All ranks call it; of the options, folder and keep count. forwards: of each data-parallel rank since the program was loaded, for buffers
// that count them.
void save_program(const SaveOptions& options, engine::Trainer& trainer, const models::Program& program, const models::ProgramGraph& built,
                  const RunState& state, std::int64_t forwards);
// Optimizer state and place in the data; the weights were loaded with the program.
RunState load_program_state(const std::filesystem::path& folder, engine::Trainer& trainer);

// "output", or "output.0", "output.1", ...: [samples, ...] in f32.
class ProgramOutputs {
 public:
  ProgramOutputs(const std::string& file, const models::ProgramGraph& program, std::int64_t samples, comm::Communicator& world);
  void write(std::int64_t first, std::int64_t count, std::span<const float> rows);
  void finish(comm::Communicator& world);

 private:
  struct Part {
    std::string name;
    std::int64_t offset = 0, width = 0;
  };
  std::vector<Part> parts_;
  std::int64_t width_ = 0;
  std::optional<models::SafetensorsWriter> writer_;
  std::vector<float> host_;
};

}  // namespace ppengine::runs
