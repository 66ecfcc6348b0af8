// The mesh of ranks.
#include <ppengine/comm/mesh.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include <ppengine/base/error.hpp>

namespace ppengine::comm {

MeshShape MeshShape::parse(const std::string& text) {
  int values[3] = {};
  const char* at = text.data();
  const char* end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [next, error] = std::from_chars(at, end, values[i]);
    const bool last = i == 2;
    if (error != std::errc() || values[i] < 1 || values[i] > 1 << 20 || (last ? next != end : next == end || *next != ','))
      throw ConfigError(fmt::format("mesh '{}': give pipeline, data and tensor ranks as P,D,T, for example 4,2,1", text));
    at = next + 1;
  }
  if (std::int64_t{values[0]} * values[1] * values[2] > 1 << 20)
    throw ConfigError(fmt::format("mesh '{}' has more than {} ranks", text, 1 << 20));
  return {values[0], values[1], values[2]};
}

std::string MeshShape::text(const std::vector<std::string>& names) const {
  std::vector<std::string> cells;
  std::size_t width = 0;
  for (int p = 0; p < pipeline; ++p)
    for (int d = 0; d < data; ++d) {
      std::string cell;
      for (int t = 0; t < tensor; ++t) {
        const int r = rank({p, d, t});
        cell += fmt::format("{}{}", t == 0 ? "" : " | ", r);
        if (static_cast<std::size_t>(r) < names.size()) cell += fmt::format(" ({})", names[static_cast<std::size_t>(r)]);
      }
      width = std::max(width, cell.size());
      cells.push_back(std::move(cell));
    }
  std::string text = fmt::format("{} ranks: pipeline {} x data {} x tensor {}{}\n", size(), pipeline, data, tensor,
                                 tensor > 1 ? " (tensor ranks side by side: |)" : "");
  width = std::max(width, fmt::format("data {}", data - 1).size());
  text += fmt::format("{:<12}", "");
  for (int d = 0; d < data; ++d) text += fmt::format("  {:<{}}", fmt::format("data {}", d), width);
  auto cell = cells.begin();
  for (int p = 0; p < pipeline; ++p) {
    text.erase(text.find_last_not_of(' ') + 1);
    text += fmt::format("\n{:<12}", fmt::format("pipeline {}", p));
    for (int d = 0; d < data; ++d) text += fmt::format("  {:<{}}", *cell++, width);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

Mesh::Mesh(Communicator& world, MeshShape shape) : world_(world), shape_(shape), place_(shape.place(world.rank())) {
  if (shape.size() != world.size())
    throw ConfigError(fmt::format("pipeline {} x data {} x tensor {} makes {} ranks, but {} are running", shape.pipeline, shape.data,
                                  shape.tensor, shape.size(), world.size()));
  pipeline_ = world.split(place_.data * shape.tensor + place_.tensor, place_.pipeline);
  data_ = world.split(place_.pipeline * shape.tensor + place_.tensor, place_.data);
  tensor_ = world.split(place_.pipeline * shape.data + place_.data, place_.tensor);
  stage_ = world.split(place_.pipeline, place_.data * shape.tensor + place_.tensor);
}

}  // namespace ppengine::comm
