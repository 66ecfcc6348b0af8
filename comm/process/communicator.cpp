// What communicators of processes share.
#include <ppengine/comm/process/communicator.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::comm {

ProcessCommunicator::ProcessCommunicator(std::shared_ptr<Rendezvous> rendezvous, std::string name, std::vector<int> members, int index)
    : rendezvous_(std::move(rendezvous)), name_(std::move(name)), members_(std::move(members)), index_(index) {}

std::vector<std::string> ProcessCommunicator::all_gather_bytes(std::string_view mine) {
  const std::string key = fmt::format("{} {}", name_, gatherings_++);
  if (!has_meanwhile()) return rendezvous_->gather(key, members_, index_, mine, timeout());
  return rendezvous_->gather(key, members_, index_, mine, timeout(), "gathering of host values", nullptr, [this] { meanwhile(); });
}

ProcessCommunicator::Subgroup ProcessCommunicator::agree_on_split(int color, int key) {
  const auto all = all_gather_bytes(net::Packer().number(color).number(key).bytes());
  Subgroup group;
  group.name = fmt::format("{}/{}.{}", name_, splits_++, color);
  std::vector<std::pair<int64_t, int>> found;  // key, rank
  for (int r = 0; r < size(); ++r) {
    net::Unpacker theirs(all[static_cast<size_t>(r)]);
    const int64_t their_color = theirs.number();
    if (their_color == color) found.emplace_back(theirs.number(), r);
  }
  std::ranges::sort(found);
  if (color < 0) return group;
  for (const auto& [their_key, r] : found) {
    if (r == index_) group.index = static_cast<int>(group.members.size());
    group.members.push_back(world_rank(r));
  }
  return group;
}

void ProcessCommunicator::check_alive(const char* operation, int peer, int tag) const {
  if (!rendezvous_->failed()) return;
  const Failure failed = failure().value();
  throw CommError(peer < 0 ? peer : world_rank(peer), operation, tag, fmt::format("rank {} failed: {}", failed.rank, failed.reason));
}

}  // namespace ppengine::comm
