// Messages between this rank and one peer. oneCCL's messages have no tags and no sizes: a header goes ahead of each by MPI, the data
// follow by oneCCL in the order of the headers, and the receiver finds the memory that waits for the tag. The data of a large message wait
// until the receiver says that it is there: MPI then moves them in one copy, and in both directions at once.
#pragma once

#include <mpi.h>
#include <oneapi/ccl.hpp>

#include <deque>
#include <list>

#include <ppengine/comm/oneccl/engine.hpp>

namespace ppengine::comm::oneccl {

// A send or a receive.
class Transfer : public Operation {
 public:
  Transfer(Engine& engine, const char* name, int rank, int peer, int tag, void* memory, size_t bytes, bool any_size, ops::Event after,
           std::chrono::milliseconds timeout)
      : Operation(engine, name, rank, peer, tag, bytes, std::move(after), timeout), data(memory), wanted(bytes), up_to(any_size) {}
  std::string awaited() override;

  void* const data;
  const size_t wanted;
  const bool up_to;  // receives any size up to `wanted`
};
using TransferPtr = std::shared_ptr<Transfer>;

class Channel {
 public:
  // `peer` in the group of both communicators.
  Channel(ccl::communicator& data, MPI_Comm headers, int peer, int world_rank, int world_peer, Rendezvous& rendezvous);
  void send(TransferPtr transfer) { unsent_.push_back(std::move(transfer)); }
  void receive(TransferPtr transfer) { wanted_.push_back(std::move(transfer)); }
  void step();
  bool idle() const;
  bool moving() const { return !outgoing_.empty() || !incoming_.empty(); }
  void close();

 private:
  struct Header {
    int64_t tag, bytes;
  };
  struct Outgoing {
    TransferPtr transfer;
    Header header;
    MPI_Request request;  // of the header
    ccl::event event;
    bool begun = false;
    MPI_Request awaited = MPI_REQUEST_NULL;  // the receiver's word, for large ones
    bool listening = false;
  };
  // Came ahead of one that is waited for, while nobody wanted it: kept aside.
  struct Unexpected {
    int tag;
    std::vector<std::byte> contents;
    bool complete = false;
  };
  struct Incoming {
    TransferPtr transfer;  // null: kept aside
    Unexpected* kept;
    size_t bytes;
    void* data;  // the transfer's, or where an unexpected message is kept
    ccl::event event;
    bool begun = false;
    MPI_Request word = MPI_REQUEST_NULL;  // to the sender, for large ones
  };

  void send_waiting();
  void read_headers();
  void match();
  bool match_unexpected();
  void match_own();
  bool accepts(const Transfer& transfer, size_t bytes);
  bool receiver_is_there(Outgoing& out);
  void move_outgoing();
  void move_incoming();

  ccl::communicator& data_;
  const MPI_Comm headers_;
  const int peer_, world_rank_, world_peer_;
  Rendezvous& rendezvous_;
  std::deque<TransferPtr> unsent_, wanted_;
  // oneCCL does not keep the order of several messages under way between two ranks: one at a time in each direction.
  std::list<Outgoing> outgoing_;
  std::list<Incoming> incoming_;
  std::list<Unexpected> unexpected_;
  std::deque<Header> arrived_;
  Header next_{};
  MPI_Request listening_ = MPI_REQUEST_NULL;
};

}  // namespace ppengine::comm::oneccl
