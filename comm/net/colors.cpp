// Color and key exchange for split().
#include <ppengine/comm/net/colors.hpp>

#include <algorithm>

#include <ppengine/comm/net/frame.hpp>

namespace ppengine::comm::net {

std::string pack_color(int color, int key) { return Packer().number(color).number(key).bytes(); }

std::vector<int> ranks_of_color(const std::vector<std::string>& told, int color) {
  std::vector<std::pair<std::int64_t, int>> found;  // key, rank
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    Unpacker theirs(told[rank]);
    if (theirs.number() == color) found.emplace_back(theirs.number(), static_cast<int>(rank));
  }
  std::ranges::sort(found);
  std::vector<int> ranks;
  ranks.reserve(found.size());
  for (const auto& [key, rank] : found) ranks.push_back(rank);
  return ranks;
}

}  // namespace ppengine::comm::net
