// A group of ranks over oneCCL's CPU build: its two communicators, a channel per peer, collectives in order.
#pragma once

#include <oneapi/ccl.hpp>

#include <list>

#include <ppengine/comm/oneccl/channel.hpp>

namespace ppengine::comm::oneccl {

// One collective, in one piece or several after each other. While oneCCL carries it out, MPI checks that all ranks called the same.
class Collective : public Operation {
 public:
  using Start = std::function<ccl::event(ccl::communicator&, size_t piece)>;
  Collective(Engine& engine, const char* name, int rank, size_t bytes, std::string text, Start start, size_t pieces, ops::Event after,
             std::chrono::milliseconds timeout)
      : Operation(engine, name, rank, -1, -1, bytes, std::move(after), timeout),
        text_(std::move(text)),
        start_(std::move(start)),
        pieces_(pieces) {}
  // What a group gives it when its turn has come.
  struct Context {
    ccl::communicator* data;
    MPI_Comm check;
    Rendezvous* rendezvous;
    std::span<const int> members;
    int index;
    std::string key;  // unique, the same on all ranks
  };
  void begin(Context context);
  bool all_begun() const { return piece_ + 1 >= pieces_; }
  void step() override;
  std::string awaited() override;
  void linger() override;

 private:
  void report_difference();

  const std::string text_;
  const Start start_;
  const size_t pieces_;
  size_t piece_ = 0;  // under way
  Context context_{};
  std::atomic<bool> begun_{false};
  bool agreed_ = false;
  int64_t mine_[2]{}, all_[2]{};
  MPI_Request request_ = MPI_REQUEST_NULL;
  ccl::event event_;
};

class Group final : public Stepper {
 public:
  Group(Engine& engine, ccl::communicator data, MPI_Comm mpi, std::string name, std::vector<int> members, int index);
  // Everything must be finished. After a failure, what the libraries hold is left to the end of the process.
  ~Group() override;

  void step() override;
  bool idle() const override;
  bool moving() const override;
  // These begin at once what is ready; with the engine's lock held.
  void add(std::shared_ptr<Collective> collective);
  void send(int peer, TransferPtr transfer);
  void receive(int peer, TransferPtr transfer);
  ccl::communicator& data() { return *data_; }
  MPI_Comm mpi() const { return mpi_; }

 private:
  // Calls of the libraries: what they throw ends the run.
  template <class Action>
  void guarded(Action&& action);
  void step_collectives();
  Channel& channel(int peer);

  Engine& engine_;
  std::unique_ptr<ccl::communicator> data_;
  MPI_Comm mpi_;
  const std::string name_;
  const std::vector<int> members_;
  const int index_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<std::shared_ptr<Collective>> collectives_;  // not begun
  std::list<std::shared_ptr<Collective>> running_;
  uint64_t begun_ = 0;
};

}  // namespace ppengine::comm::oneccl
