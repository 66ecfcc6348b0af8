// A group of ranks over oneCCL's CPU build.
#include <ppengine/comm/oneccl/group.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/comm/oneccl/forever.hpp>
#include <ppengine/comm/oneccl/last_words.hpp>

namespace ppengine::comm::oneccl {

Group::Group(Engine& engine, ccl::communicator data, MPI_Comm mpi, std::string name, std::vector<int> members, int index)
    : engine_(engine),
      data_(std::make_unique<ccl::communicator>(std::move(data))),
      mpi_(mpi),
      name_(std::move(name)),
      members_(std::move(members)),
      index_(index),
      channels_(members_.size()) {
  engine.add(this);
}

Group::~Group() {
  engine_.remove(this);
  if (engine_.rendezvous().failed() || !idle()) {
    keep_forever(std::move(data_));
    keep_forever(std::move(channels_));
    keep_forever(std::move(running_));
    return;
  }
  MPI_Comm_free(&mpi_);
}

Channel& Group::channel(int peer) {
  auto& channel = channels_[static_cast<std::size_t>(peer)];
  if (!channel)
    channel = std::make_unique<Channel>(mpi_, peer, members_[static_cast<std::size_t>(index_)], members_[static_cast<std::size_t>(peer)],
                                        engine_.rendezvous());
  return *channel;
}

bool Group::idle() const {
  return collectives_.empty() && running_.empty() && std::ranges::all_of(channels_, [](const auto& one) { return !one || one->idle(); });
}

bool Group::moving() const {
  return !running_.empty() || std::ranges::any_of(channels_, [](const auto& one) { return one && one->moving(); });
}

template <class Action>
void Group::guarded(Action&& action) {
  if (engine_.stopped()) return;
  const LastWords last_words(engine_.rendezvous());
  try {
    action();
  } catch (const std::exception& error) {  // oneCCL or MPI refused: most often a connection that broke
    if (!engine_.rendezvous().wait_for_failure(std::chrono::seconds(2)))
      engine_.rendezvous().abort(fmt::format("oneCCL: {}", error.what()));
  }
}

void Group::send(int peer, TransferPtr transfer) {
  guarded([&] { channel(peer).send(std::move(transfer)); });
}

void Group::receive(int peer, TransferPtr transfer) {
  guarded([&] { channel(peer).receive(std::move(transfer)); });
}

void Group::add(std::shared_ptr<Collective> collective) {
  collectives_.push_back(std::move(collective));
  guarded([&] { step_collectives(); });
}

void Group::step() {
  guarded([&] {
    step_collectives();
    for (const auto& channel : channels_)
      if (channel && !engine_.stopped()) channel->step();
  });
}

void Group::step_collectives() {
  // The next one after the last piece of the one before: the order in which oneCCL sees them is the same on all ranks.
  while (!collectives_.empty() && collectives_.front()->ready() && (running_.empty() || running_.back()->all_begun())) {
    running_.push_back(std::move(collectives_.front()));
    collectives_.pop_front();
    running_.back()->begin({data_.get(), mpi_, &engine_.rendezvous(), members_, index_, &name_, begun_++});
  }
  for (const auto& one : running_) one->step();
  std::erase_if(running_, [](const auto& one) { return one->finished(); });
}

}  // namespace ppengine::comm::oneccl
