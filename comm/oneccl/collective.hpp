// One collective between CPU processes.
#pragma once

#include <oneapi/ccl.hpp>

#include <span>

#include <ppengine/comm/collective_call.hpp>
#include <ppengine/comm/oneccl/engine.hpp>
#include <ppengine/comm/oneccl/mpi.hpp>

namespace ppengine::comm::oneccl {

// Carried out by oneCCL, in one piece or several after each other; small sums by MPI. Meanwhile each rank compares its call with that of
// the rank before it: where no two neighbours in the ring differ, all have called the same.
class Collective : public Operation {
 public:
  Collective(Engine& engine, const CollectiveCall& call, const void* in, void* out, int rank, ops::Event after,
             std::chrono::milliseconds timeout);
  // What a group gives it when its turn has come.
  struct Place {
    ccl::communicator* data;
    MPI_Comm mpi;
    Rendezvous* rendezvous;
    std::span<const int> members;
    int index;
    const std::string* group;
    std::uint64_t number;  // of the collective in the group
  };
  void begin(const Place& place);
  bool all_begun() const { return piece_ + 1 >= pieces_; }
  void step() override;
  std::string awaited() override;
  void linger() override;

 private:
  void compare_calls();
  void begin_piece();
  bool moved();             // the piece
  std::string key() const;  // unique, the same on all ranks
  int before() const { return (place_.index == 0 ? static_cast<int>(place_.members.size()) : place_.index) - 1; }  // in the ring

  const CollectiveCall call_;
  const void* const in_;
  void* const out_;
  const std::size_t piece_count_, pieces_;
  std::size_t piece_ = 0;  // under way
  Place place_{};
  std::atomic<bool> begun_{false};
  bool agreed_ = false;
  CollectiveCall call_before_;  // of the rank before this one
  MPI_Request comparison_[2]{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  // Of the piece: by MPI, by oneCCL.
  const bool by_mpi_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  ccl::event event_;
};

}  // namespace ppengine::comm::oneccl
