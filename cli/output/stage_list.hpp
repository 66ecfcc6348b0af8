// Where the stages of a run begin, which a measurement may have chosen.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include <ppengine/engine/model_rank.hpp>

namespace ppengine::cli {

using StagePlaces = std::vector<engine::StagePlace>;

// [{"rank":0,"first_module":"transformer.wte"},...], by stage.
nlohmann::json stages_json(const StagePlaces& places);
// "stages: transformer.wte on rank 0, transformer.h.2 on rank 1"
std::string stages_text(const StagePlaces& places);

}  // namespace ppengine::cli
