// Messages between this rank and one peer. They go by the MPI library that oneCCL rides on: oneCCL's own have neither tags nor sizes, and
// keep their order only one at a time, so that each would need a header ahead of it.
#pragma once

#include <deque>

#include <ppengine/comm/oneccl/engine.hpp>
#include <ppengine/comm/oneccl/mpi.hpp>

namespace ppengine::comm::oneccl {

// A send or a receive.
class Transfer : public Operation {
 public:
  Transfer(Engine& engine, const char* name, int rank, int peer, int tag, void* memory, std::size_t bytes, bool any_size, ops::Event after,
           std::chrono::milliseconds timeout)
      : Operation(engine, name, rank, peer, tag, bytes, std::move(after), timeout), data(memory), wanted(bytes), up_to(any_size) {}
  std::string awaited() override;

  void* const data;
  const std::size_t wanted;
  const bool up_to;  // receives any size up to `wanted`
};
using TransferPtr = std::shared_ptr<Transfer>;

class Channel {
 public:
  // `peer` in the group of the communicator.
  Channel(MPI_Comm comm, int peer, int world_rank, int world_peer, Rendezvous& rendezvous);
  // Handed to MPI at once where their memory is ready. Nothing is received here: the other direction may still be about to be posted.
  void send(TransferPtr transfer);
  void receive(TransferPtr transfer);
  void step();
  bool idle() const { return unsent_.empty() && wanted_.empty() && posted_.empty(); }
  bool moving() const { return sending_ > 0; }

 private:
  struct Posted {
    TransferPtr transfer;
    bool sends;
  };
  void post();
  bool begin_receive(const Transfer& transfer, MPI_Request& request);
  void under_way(MPI_Request request, TransferPtr transfer, bool sends);
  void match_own();
  void finish(const Posted& one, const MPI_Status& status);
  void refuse(const Transfer& transfer, const std::string& sent);
  bool own() const { return world_rank_ == world_peer_; }

  const MPI_Comm comm_;
  const int peer_, world_rank_, world_peer_;
  Rendezvous& rendezvous_;
  std::deque<TransferPtr> unsent_, wanted_;  // not handed to MPI yet
  // Under way, in the same order.
  std::vector<MPI_Request> requests_;
  std::vector<Posted> posted_;
  std::size_t sending_ = 0;  // of those
  // What MPI says of those that are done.
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace ppengine::comm::oneccl
