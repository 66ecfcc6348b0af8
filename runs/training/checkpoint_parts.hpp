// What checkpoints of models and of programs share: names of files, the state of the run, the last step of a save, the parameters of a
// stage.
#pragma once

#include <filesystem>
#include <string>

#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/runs/checkpoint.hpp>

namespace ppengine::runs {

inline constexpr const char* optimizer_file = "optimizer.safetensors";
inline constexpr const char* state_file = "trainer_state.json";

std::string state_json(const RunState& state, const engine::Optimizer& optimizer);
// Of a checkpoint; the optimizer gets its number of steps. FileError where there is none, or another kind of optimizer has saved it.
RunState read_state(const std::filesystem::path& folder, engine::Optimizer& optimizer);

// What begin_save's folder holds becomes the checkpoint in `folder`; the one before stays as FOLDER.step-N with `keep` above 1, and in its
// place where a weight or moment is not finite, which is an Error.
struct Commit {
  std::int64_t step = 0, keep = 1;
  bool finite_only = true;
};
void commit_checkpoint(const std::filesystem::path& folder, const Commit& how);

// Calls visit(range, info) for every parameter of a stage, or of several stages that use one only for the owner. In the order of the graph,
// which all tensor-parallel ranks share.
template <class Visit>
void for_each_parameter(engine::ModelRank& model, engine::StageId stage, bool owned_only, Visit&& visit) {
  for (engine::ParameterId id : model.cuts()[stage].parameters)
    if (!owned_only || model.owner(id) == stage) visit(*model.parameters(stage).find(id), model.graph().parameters()[id]);
}

}  // namespace ppengine::runs
