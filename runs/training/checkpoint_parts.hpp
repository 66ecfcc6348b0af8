// What writing and reading checkpoints share: names of files, and the parameters of a stage.
#pragma once

#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/trainer.hpp>

namespace ppengine::runs {

inline constexpr const char* optimizer_file = "optimizer.safetensors";
inline constexpr const char* state_file = "trainer_state.json";

// Calls visit(range, info) for every parameter of a stage, or of several stages that use one only for the owner. In the order of the graph,
// which all tensor-parallel ranks share.
template <class Visit>
void for_each_parameter(engine::ModelRank& model, engine::StageId stage, bool owned_only, Visit&& visit) {
  for (engine::ParameterId id : model.cuts()[stage].parameters)
    if (!owned_only || model.owner(id) == stage) visit(*model.parameters(stage).find(id), model.graph().parameters()[id]);
}

}  // namespace ppengine::runs
