// What is under way when a rank is lost.
#pragma once

#include <list>
#include <mutex>

namespace ppengine::comm::oneccl {

// Its destructor would wait for ranks that are gone, or complain. Never destroyed, still reachable.
template <class T>
void keep_forever(T left) {
  static std::mutex mutex;
  static auto& kept = *new std::list<T>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(left));
}

}  // namespace ppengine::comm::oneccl
