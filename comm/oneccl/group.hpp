// A group of ranks over oneCCL's CPU build: its two communicators, a channel per peer, collectives in order.
#pragma once

#include <list>

#include <ppengine/comm/oneccl/channel.hpp>
#include <ppengine/comm/oneccl/collective.hpp>

namespace ppengine::comm::oneccl {

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
  std::uint64_t begun_ = 0;
};

}  // namespace ppengine::comm::oneccl
