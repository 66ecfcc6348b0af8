// Comparing ranks' models and settings.
#include <ppengine/engine/graph/verify.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void verify_same_model(comm::Communicator& world, const Graph& graph, const std::vector<Setting>& settings) {
  std::string mine;
  for (const Setting& one : settings) mine += fmt::format("{} {}\n", one.name, one.value);
  mine += fmt::format("{} parameters\n", graph.parameters().size());
  for (const ParameterInfo& one : graph.parameters()) mine += fmt::format("{} f32 {}\n", one.name, one.whole_shape().text());
  const auto all = world.all_gather_bytes(mine);
  const auto first = lines_of(all[0]);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto theirs = lines_of(all[rank]);
    for (std::size_t i = 0; i < std::max(first.size(), theirs.size()); ++i) {
      const std::string a = i < first.size() ? first[i] : "nothing", b = i < theirs.size() ? theirs[i] : "nothing";
      if (a != b)
        throw ConfigError(fmt::format("ranks differ: rank {} has {}, rank {} has {}: give all ranks the same model and options",
                                      world.world_rank(0), a, world.world_rank(static_cast<int>(rank)), b));
    }
  }
}

}  // namespace ppengine::engine
