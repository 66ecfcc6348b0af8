// Communicator: one rank's view of a group of ranks. Local threads, oneCCL and NCCL implement it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/comm/pending.hpp>
#include <ppengine/comm/type.hpp>

namespace ppengine::comm {

struct CollectiveCall;

// One message of a batched exchange.
struct Message {
  enum class Kind { send, recv };
  Kind kind;
  void* data;
  std::size_t bytes;
  int peer;
  int tag;
  static Message send(const void* data, std::size_t bytes, int peer, int tag) {
    return {Kind::send, const_cast<void*>(data), bytes, peer, tag};
  }
  static Message recv(void* data, std::size_t bytes, int peer, int tag) { return {Kind::recv, data, bytes, peer, tag}; }
};

// The rank that ended the run, and why.
struct Failure {
  int rank;
  std::string reason;
  bool lost = false;         // it is gone without a word; otherwise it said so itself
  std::string text() const;  // "rank 2 failed: its reason"
};

// Nothing here blocks but barrier, split and the functions on host values. An operation starts when `after` is reached; its
// memory must stay untouched until the Pending is waited for. One thread per communicator at a time.
//
// Messages match by (sender, receiver, tag), in order within a tag. Between two ranks and in one direction, both sides should post
// in the same order: NCCL has no tags and relies on it. No order may rely on buffering: a send may last until its receive is posted.
// Collectives are called in the same order by all ranks. Calls that differ end the run; a rank whose neighbours called what it did may
// learn of it only at its next wait.
class Communicator {
 public:
  static constexpr std::chrono::milliseconds default_timeout{30000};

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The rank in the whole run: what errors and logs name.
  virtual int world_rank(int rank) const = 0;
  // "local", "oneccl-cpu", "oneccl-gpu", "nccl"
  virtual std::string kind() const = 0;

  // The deadline of every wait, from when it begins.
  std::chrono::milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Messages. recv wants exactly `bytes`: another size is an error on both sides that names both (between CPU processes a larger one is
  // "more"). recv_up_to takes any size up to the capacity; Pending::bytes() tells it.
  virtual Pending send(const void* data, std::size_t bytes, int peer, int tag, const After& after = {}) = 0;
  virtual Pending recv(void* data, std::size_t bytes, int peer, int tag, const After& after = {}) = 0;
  virtual Pending recv_up_to(void* data, std::size_t capacity, int peer, int tag, const After& after = {}) = 0;
  // A message in memory that its sender does not need any more. Where two ranks share a device and have blocks of one size, the blocks
  // change places and nothing is copied; elsewhere these are send and recv. What a block holds is known again when the Pending is done.
  virtual Pending hand_over(ops::Buffer& block, std::size_t bytes, int peer, int tag, const After& after = {});
  virtual Pending take_over(ops::Buffer& block, std::size_t bytes, int peer, int tag, const After& after = {});
  // All messages at once, in any order on each side: both directions between two ranks cannot lock each other out.
  virtual Pending exchange(std::span<const Message> messages, const After& after = {});

  // Collectives. Sums are made in the order of ranks: the same bits on every rank and in every run. in == out is allowed for
  // allreduce; for reduce_scatter out may be part `rank` of in, for all_gather in may be part `rank` of out.
  Pending allreduce(const void* in, void* out, std::size_t count, Type type, const After& after = {}, Reduce reduce = Reduce::sum);
  Pending allreduce(void* data, std::size_t count, Type type, const After& after = {}, Reduce reduce = Reduce::sum) {
    return allreduce(data, data, count, type, after, reduce);
  }
  // in: size() parts of `count` elements; out: the sum of part `rank`.
  Pending reduce_scatter(const void* in, void* out, std::size_t count, Type type, const After& after = {}, Reduce reduce = Reduce::sum);
  // in: `count` elements; out: size() parts of `count`, by rank.
  Pending all_gather(const void* in, void* out, std::size_t count, Type type, const After& after = {});
  Pending broadcast(void* data, std::size_t bytes, int root, const After& after = {});
  // What each of these becomes.
  virtual Pending collective(const CollectiveCall& call, const void* in, void* out, const After& after) = 0;

  // Host values, for start-up checks, seeds and metrics; these block. Every rank's bytes, by rank.
  virtual std::vector<std::string> all_gather_bytes(std::string_view mine) = 0;
  std::string broadcast_bytes(std::string_view mine, int root);
  // In place, in the order of ranks.
  void allreduce_values(std::span<double> values, Reduce reduce = Reduce::sum);
  void allreduce_values(std::span<std::int64_t> values, Reduce reduce = Reduce::sum);
  double allreduce_value(double value, Reduce reduce = Reduce::sum);
  std::int64_t allreduce_value(std::int64_t value, Reduce reduce = Reduce::sum);
  void barrier() { all_gather_bytes({}); }

  // Moves operations along where only a call does that; costs next to nothing where there is nothing to do. For those who compute for a
  // long time without a wait: to be called between pieces of the work.
  virtual void progress() {}

  // Ranks with the same color form a group, ordered by key, then rank. A negative color: no group, null. All ranks call it.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Ends the run for all ranks of the whole run, from any thread: every wait now throws and names this rank and the reason, unless one
  // has failed before. Afterwards no operation touches this rank's memory any more: it may be freed. This holds unless a library hangs for
  // two seconds, and but for oneCCL on GPUs, which has no abort: what is under way there is waited for, two seconds at most.
  virtual void abort(const std::string& reason) = 0;
  // Who aborted or died, once that is known.
  virtual std::optional<Failure> failure() const = 0;

 protected:
  Communicator() = default;
  void check_peer(int peer, const char* operation) const;

 private:
  std::chrono::milliseconds timeout_{default_timeout};
};

}  // namespace ppengine::comm
