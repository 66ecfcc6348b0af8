// A group of ranks that are threads: host values, sub-groups, what is under way.
#include <ppengine/comm/local/group.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::local {

void World::track(int world_rank, const OperationPtr& operation) {
  auto& list = under_way[static_cast<std::size_t>(world_rank)];
  if (list.size() >= 64) std::erase_if(list, [](const OperationPtr& one) { return one->finished(); });
  list.push_back(operation);
}

void World::drain(int world_rank) {
  std::vector<OperationPtr> list;
  {
    const std::lock_guard lock(signal->mutex);
    list.swap(under_way[static_cast<std::size_t>(world_rank)]);
  }
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  for (const OperationPtr& operation : list) {
    try {
      operation->wait_finished(deadline);
    } catch (const std::exception&) {  // all that counts here is that nothing is written any more
    }
  }
}

Group::Group(std::shared_ptr<World> world, std::vector<int> world_ranks)
    : world_(std::move(world)),
      world_ranks_(std::move(world_ranks)),
      next_collective_(world_ranks_.size()),
      next_gathering_(world_ranks_.size()) {}

std::vector<std::string> Group::all_gather_bytes(int rank, std::string_view mine, std::chrono::milliseconds timeout) {
  std::unique_lock lock(world_->signal->mutex);
  const std::uint64_t sequence = next_gathering_[static_cast<std::size_t>(rank)]++;
  Gathering& gathering = gatherings_[sequence];
  gathering.parts.resize(static_cast<std::size_t>(size()));
  gathering.parts[static_cast<std::size_t>(rank)] = mine;
  if (++gathering.arrived == size()) world_->signal->changed.notify_all();
  const auto& failure = world_->signal->failure;
  const bool came = world_->signal->changed.wait_for(lock, timeout, [&] { return gathering.arrived == size() || failure; });
  if (gathering.arrived < size()) {
    int missing = 0;  // ranks that are behind in their count of gatherings
    while (next_gathering_[static_cast<std::size_t>(missing)] > sequence) ++missing;
    if (failure) throw CommError(world_rank(missing), "gathering of host values", -1, failure->text());
    PPENGINE_ASSERT(!came);
    throw CommError(world_rank(missing), "gathering of host values", -1,
                    fmt::format("rank {} waited {:.1f} s, rank {} has not come", world_rank(rank),
                                std::chrono::duration<double>(timeout).count(), world_rank(missing)));
  }
  std::vector<std::string> all = gathering.parts;
  if (++gathering.left == size()) gatherings_.erase(sequence);
  return all;
}

std::shared_ptr<Group> Group::subgroup(std::uint64_t split, int color, const std::vector<int>& members) {
  const std::lock_guard lock(world_->signal->mutex);
  std::weak_ptr<Group>& entry = subgroups_[{split, color}];
  std::shared_ptr<Group> group = entry.lock();
  if (!group) {
    std::vector<int> ranks;
    ranks.reserve(members.size());
    for (const int member : members) ranks.push_back(world_rank(member));
    entry = group = std::make_shared<Group>(world_, ranks);
  }
  return group;
}

}  // namespace ppengine::comm::local
