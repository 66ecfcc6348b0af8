// The common base of communicators between processes.
#include <ppengine/comm/process/communicator.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/net/colors.hpp>

namespace ppengine::comm {

ProcessCommunicator::ProcessCommunicator(std::shared_ptr<Rendezvous> rendezvous, std::string name, std::vector<int> members, int index)
    : rendezvous_(std::move(rendezvous)), name_(std::move(name)), members_(std::move(members)), index_(index) {}

std::vector<std::string> ProcessCommunicator::all_gather_bytes(std::string_view mine) {
  const std::string key = fmt::format("{} {}", name_, gatherings_++);
  if (!has_meanwhile()) return rendezvous_->gather(key, members_, index_, mine, timeout());
  return rendezvous_->gather(key, members_, index_, mine, timeout(), "gathering of host values", nullptr, [this] { meanwhile(); });
}

ProcessCommunicator::Subgroup ProcessCommunicator::agree_on_split(int color, int key) {
  const std::vector<int> ranks = net::ranks_of_color(all_gather_bytes(net::pack_color(color, key)), color);
  Subgroup group;
  group.name = fmt::format("{}/{}.{}", name_, splits_++, color);
  if (color < 0) return group;
  for (const int rank : ranks) {
    if (rank == index_) group.index = static_cast<int>(group.members.size());
    group.members.push_back(world_rank(rank));
  }
  return group;
}

void ProcessCommunicator::check_alive(const char* operation, int peer, int tag) const {
  if (!rendezvous_->failed()) return;
  const Failure failed = failure().value();
  throw CommError(peer < 0 ? failed.rank : world_rank(peer), operation, tag, failed.text());
}

}  // namespace ppengine::comm
