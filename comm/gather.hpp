// Every rank's values, by rank; the numbers of values may differ. All ranks call it; it blocks.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include <ppengine/comm/communicator.hpp>

namespace ppengine::comm {

template <class T>
std::vector<std::vector<T>> gather(Communicator& world, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : world.all_gather_bytes({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(T)})) {
    std::vector<T>& theirs = all.emplace_back(bytes.size() / sizeof(T));
    std::ranges::copy(bytes, reinterpret_cast<char*>(theirs.data()));
  }
  return all;
}

}  // namespace ppengine::comm
