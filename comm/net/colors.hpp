// Color and key exchange for split().
#pragma once

#include <string>
#include <vector>

namespace ppengine::comm::net {

std::string pack_color(int color, int key);
// The ranks that have named this color, ordered by key, then rank. told: what each rank has packed.
std::vector<int> ranks_of_color(const std::vector<std::string>& told, int color);

}  // namespace ppengine::comm::net
