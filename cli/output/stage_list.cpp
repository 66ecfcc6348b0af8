// Where the stages of a run begin.
#include "output/stage_list.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace ppengine::cli {

nlohmann::json stages_json(const StagePlaces& places) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& one : places) list.push_back({{"rank", one.rank}, {"first_module", one.first_module}});
  return list;
}

std::string stages_text(const StagePlaces& places) {
  std::string text = "stages:";
  for (const auto& one : places) text += fmt::format("{} {} on rank {}", &one == places.data() ? "" : ",", one.first_module, one.rank);
  return text;
}

}  // namespace ppengine::cli
