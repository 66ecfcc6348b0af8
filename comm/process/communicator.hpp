// What communicators of processes share: names of ranks, host values and failures go through the rendezvous.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/net/rendezvous.hpp>

namespace ppengine::comm {

class ProcessCommunicator : public Communicator {
 public:
  // `name` is unique among the groups of a run and the same on all members.
  ProcessCommunicator(std::shared_ptr<Rendezvous> rendezvous, std::string name, std::vector<int> members, int index);

  int rank() const override { return index_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const override { return members_[static_cast<std::size_t>(rank)]; }
  std::vector<std::string> all_gather_bytes(std::string_view mine) override;
  void abort(const std::string& reason) override { rendezvous_->abort(reason); }
  std::optional<Failure> failure() const override { return rendezvous_->failure(); }

 protected:
  struct Subgroup {
    std::string name;
    std::vector<int> members;  // ranks of the whole run
    int index = -1;            // this rank's place; -1: not a member
  };
  Subgroup agree_on_split(int color, int key);
  // Carried out while this rank waits for others' host values.
  virtual void meanwhile() {}
  virtual bool has_meanwhile() const { return false; }
  // Throws when some rank has failed.
  void check_alive(const char* operation, int peer, int tag) const;

  const std::shared_ptr<Rendezvous>& rendezvous() const { return rendezvous_; }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  std::string name_;
  std::vector<int> members_;
  int index_;
  std::uint64_t gatherings_ = 0, splits_ = 0;
};

}  // namespace ppengine::comm
