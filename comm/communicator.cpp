// What every communicator shares: host values on top of all_gather_bytes, batches on top of single messages.
#include <ppengine/comm/communicator.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/baseline.hpp>
#include <ppengine/comm/collective_call.hpp>

namespace ppengine::comm {

HasBaselines::~HasBaselines() = default;
namespace {

template <class T>
void allreduce_by_gathering(Communicator& comm, std::span<T> values, Reduce reduce) {
  const auto all = comm.all_gather_bytes({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::string& theirs = all[static_cast<std::size_t>(rank)];
    if (theirs.size() != values.size_bytes())
      throw CommError(comm.world_rank(rank), "allreduce of host values", -1,
                      fmt::format("rank {} gave {} bytes, rank {} gave {}", comm.world_rank(comm.rank()), values.size_bytes(),
                                  comm.world_rank(rank), theirs.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, theirs.data() + i * sizeof(T), sizeof(T));
      T& sum = values[i];
      if (rank == 0)
        sum = value;
      else if (reduce == Reduce::sum)
        sum += value;
      else
        sum = reduce == Reduce::max ? std::max(sum, value) : std::min(sum, value);
    }
  }
}

}  // namespace

std::string Failure::text() const { return fmt::format("rank {} failed: {}", rank, reason); }

Pending Communicator::hand_over(ops::Buffer& block, std::size_t bytes, int peer, int tag, const After& after) {
  return send(block.data(), bytes, peer, tag, after);
}

Pending Communicator::take_over(ops::Buffer& block, std::size_t bytes, int peer, int tag, const After& after) {
  return recv(block.data(), bytes, peer, tag, after);
}

Pending Communicator::exchange(std::span<const Message> messages, const After& after) {
  std::vector<Pending> parts;
  parts.reserve(messages.size());
  for (const Message& m : messages)
    parts.push_back(m.kind == Message::Kind::send ? send(m.data, m.bytes, m.peer, m.tag, after)
                                                  : recv(m.data, m.bytes, m.peer, m.tag, after));
  return Pending::all(std::move(parts));
}

using Kind = CollectiveCall::Kind;

Pending Communicator::allreduce(const void* in, void* out, std::size_t count, Type type, const After& after, Reduce reduce) {
  return collective({Kind::allreduce, count, type, reduce}, in, out, after);
}

Pending Communicator::reduce_scatter(const void* in, void* out, std::size_t count, Type type, const After& after, Reduce reduce) {
  return collective({Kind::reduce_scatter, count, type, reduce}, in, out, after);
}

Pending Communicator::all_gather(const void* in, void* out, std::size_t count, Type type, const After& after) {
  return collective({Kind::all_gather, count, type}, in, out, after);
}

Pending Communicator::broadcast(void* data, std::size_t bytes, int root, const After& after) {
  check_peer(root, "broadcast");
  return collective({.kind = Kind::broadcast, .count = bytes, .type = Type::u8, .root = root}, data, data, after);
}

std::string Communicator::broadcast_bytes(std::string_view mine, int root) {
  check_peer(root, "broadcast");
  return std::move(all_gather_bytes(rank() == root ? mine : std::string_view())[static_cast<std::size_t>(root)]);
}

void Communicator::allreduce_values(std::span<double> values, Reduce reduce) { allreduce_by_gathering(*this, values, reduce); }
void Communicator::allreduce_values(std::span<std::int64_t> values, Reduce reduce) { allreduce_by_gathering(*this, values, reduce); }

double Communicator::allreduce_value(double value, Reduce reduce) {
  allreduce_values(std::span(&value, 1), reduce);
  return value;
}

std::int64_t Communicator::allreduce_value(std::int64_t value, Reduce reduce) {
  allreduce_values(std::span(&value, 1), reduce);
  return value;
}

void Communicator::check_peer(int peer, const char* operation) const {
  if (peer < 0 || peer >= size()) throw Error(fmt::format("{}: there is no rank {} in a group of {}", operation, peer, size()));
}

}  // namespace ppengine::comm
