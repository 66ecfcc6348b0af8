// The local communicator: one rank's view of a group of threads.
#include <ppengine/comm/local.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/local/group.hpp>
#include <ppengine/comm/net/colors.hpp>

namespace ppengine::comm {
namespace {

using local::Group;

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank, std::chrono::milliseconds timeout) : group_(std::move(group)), rank_(rank) {
    set_timeout(timeout);
  }
  ~LocalCommunicator() override { group_->world().drain(group_->world_rank(rank_)); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  int world_rank(int rank) const override { return group_->world_rank(rank); }
  std::string kind() const override { return "local"; }

  Pending send(const void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return post_send(peer, tag, {.data = const_cast<void*>(data), .bytes = bytes, .after = after.event()});
  }
  Pending recv(void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return post_recv(peer, tag, {.data = data, .bytes = bytes, .after = after.event()});
  }
  Pending recv_up_to(void* data, std::size_t capacity, int peer, int tag, const After& after) override {
    return post_recv(peer, tag, {.data = data, .bytes = capacity, .after = after.event(), .up_to = true});
  }
  Pending hand_over(ops::Buffer& block, std::size_t bytes, int peer, int tag, const After& after) override {
    return post_send(peer, tag, {.data = block.data(), .bytes = bytes, .after = after.event(), .block = &block});
  }
  Pending take_over(ops::Buffer& block, std::size_t bytes, int peer, int tag, const After& after) override {
    return post_recv(peer, tag, {.data = block.data(), .bytes = bytes, .after = after.event(), .block = &block});
  }

  Pending collective(const CollectiveCall& call, const void* in, void* out, const After& after) override {
    auto operation = begin(call.name(), -1, -1, call.bytes());
    group_->post_collective(rank_, call, {operation, in, out, after.event()});
    return Pending(operation);
  }
  std::vector<std::string> all_gather_bytes(std::string_view mine) override { return group_->all_gather_bytes(rank_, mine, timeout()); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const std::vector<int> members = net::ranks_of_color(all_gather_bytes(net::pack_color(color, key)), color);
    const std::uint64_t number = splits_++;
    std::unique_ptr<Communicator> result;
    if (color >= 0) {
      const auto mine = std::ranges::find(members, rank_) - members.begin();
      result = std::make_unique<LocalCommunicator>(group_->subgroup(number, color, members), static_cast<int>(mine), timeout());
    }
    barrier();  // everyone holds the group before anyone may let go of it
    return result;
  }

  void abort(const std::string& reason) override {
    group_->world().signal->fail(group_->world_rank(rank_), reason);
    group_->world().drain(group_->world_rank(rank_));
  }
  std::optional<Failure> failure() const override {
    const auto& signal = *group_->world().signal;
    const std::lock_guard lock(group_->world().signal->mutex);
    return signal.failure;
  }

 private:
  // peer < 0: a collective.
  local::OperationPtr begin(const char* name, int peer, int tag, std::size_t bytes) {
    if (peer >= 0 || tag >= 0) check_peer(peer, name);
    const int world_peer = peer < 0 ? -1 : world_rank(peer);
    if (const auto failed = failure()) throw CommError(world_peer, name, tag, failed->text());
    return std::make_shared<local::Operation>(group_->world().signal, name, world_rank(rank_), world_peer, tag, bytes, timeout());
  }
  Pending post_send(int peer, int tag, Group::Post post) {
    post.operation = begin("send", peer, tag, post.bytes);
    group_->post_send(rank_, peer, post);
    return Pending(post.operation);
  }
  Pending post_recv(int peer, int tag, Group::Post post) {
    post.operation = begin("recv", peer, tag, post.bytes);
    group_->post_recv(peer, rank_, post);
    return Pending(post.operation);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::uint64_t splits_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local(int ranks, LocalOptions options) {
  if (ranks < 1) throw ConfigError(fmt::format("{} ranks: there must be at least one", ranks));
  if (!options.devices.empty() && options.devices.size() != static_cast<std::size_t>(ranks))
    throw ConfigError(fmt::format("{} devices for {} ranks: give one each", options.devices.size(), ranks));
  auto world = std::make_shared<local::World>();
  world->link = options.link;
  world->under_way.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& mover = *world->movers.emplace_back(std::make_unique<local::Mover>());
    if (options.devices.empty()) continue;
    mover.device = options.devices[static_cast<std::size_t>(r)];
    mover.copies = std::make_unique<local::CopyStreams>(mover.device);
  }
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  auto group = std::make_shared<Group>(world, all);
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(all.size());
  for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<LocalCommunicator>(group, r, options.timeout));
  return communicators;
}

}  // namespace ppengine::comm
