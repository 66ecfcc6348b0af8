// A group of ranks that are threads: matches messages and collectives, then has the movers carry them out.
#pragma once

#include <deque>
#include <map>
#include <utility>

#include <ppengine/comm/collective_call.hpp>
#include <ppengine/comm/local/movers.hpp>
#include <ppengine/comm/local/operation.hpp>

namespace ppengine::comm::local {

// The whole run: owned by the communicators only, so that its worker threads never end it.
struct World {
  std::shared_ptr<Signal> signal = std::make_shared<Signal>();
  SimulatedLink link;
  std::vector<std::unique_ptr<Mover>> movers;        // by world rank
  std::vector<std::vector<OperationPtr>> under_way;  // by world rank: matched, perhaps not finished; guarded by the signal's lock

  // Called with the lock held.
  void track(int world_rank, const OperationPtr& operation);
  // Until nothing touches the rank's memory any more.
  void drain(int world_rank);
};

struct Part {
  OperationPtr operation;
  const void* in;
  void* out;
  ops::Event after;
};

class Group {
 public:
  Group(std::shared_ptr<World> world, std::vector<int> world_ranks);

  struct Post {
    OperationPtr operation{};
    void* data;
    std::size_t bytes;
    ops::Event after;
    bool up_to = false;            // any size up to bytes
    ops::Buffer* block = nullptr;  // the memory's owner, where it may change places with the peer's
  };
  void post_send(int from, int to, Post post);
  void post_recv(int from, int to, Post post);
  void post_collective(int rank, const CollectiveCall& call, Part part);
  std::vector<std::string> all_gather_bytes(int rank, std::string_view mine, std::chrono::milliseconds timeout);
  // The group of all ranks that named the same color in the rank's n-th split.
  std::shared_ptr<Group> subgroup(std::uint64_t split, int color, const std::vector<int>& members);

  World& world() const { return *world_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

 private:
  struct Lane {
    std::deque<Post> sends, recvs;
  };
  struct Collective {
    CollectiveCall call;
    int first;  // who came first
    std::vector<Part> parts;
    int arrived = 0;
    std::atomic<int> unfinished{0};
  };
  struct Gathering {
    std::vector<std::string> parts;
    int arrived = 0, left = 0;
  };

  // The other side of a message, where it has come already; otherwise the post waits for it.
  std::optional<Post> meet(int from, int to, Post& post, std::deque<Post> Lane::* mine, std::deque<Post> Lane::* theirs);
  Mover& mover(int rank) const { return *world_->movers[static_cast<std::size_t>(world_rank(rank))]; }
  void transfer(int from, int to, Post send, Post recv);
  void trade(const Post& send, const Post& recv);
  void finish(const Post& send, const Post& recv, const ops::Event& event);
  void start(const std::shared_ptr<Collective>& job);
  void run_share(Collective& job, int rank);
  void run_staged(Collective& job);
  void finish(Collective& job);

  std::shared_ptr<World> world_;
  std::vector<int> world_ranks_;
  // Guarded by the signal's lock.
  std::map<std::pair<int, int>, Lane> lanes_;
  std::vector<std::uint64_t> next_collective_, next_gathering_;  // by rank
  std::map<std::uint64_t, std::shared_ptr<Collective>> collectives_;
  std::map<std::uint64_t, Gathering> gatherings_;
  std::map<std::pair<std::uint64_t, int>, std::weak_ptr<Group>> subgroups_;
};

}  // namespace ppengine::comm::local
