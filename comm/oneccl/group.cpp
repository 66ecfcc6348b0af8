// A group of ranks over oneCCL's CPU build.
#include <ppengine/comm/oneccl/group.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <list>
#include <mutex>

#include <ppengine/comm/oneccl/last_words.hpp>

namespace ppengine::comm::oneccl {
namespace {

// What is under way when a rank is lost: its destructor would wait for ranks that are gone, or complain. Never destroyed, still reachable.
template <class T>
void keep_forever(T left) {
  static std::mutex mutex;
  static auto& kept = *new std::list<T>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(left));
}

}  // namespace

void Collective::begin(Context context) {
  context_ = std::move(context);
  // The largest of h and of -h over all ranks: equal when all texts are.
  const auto hash = static_cast<int64_t>(std::hash<std::string>()(text_) >> 1);
  mine_[0] = hash;
  mine_[1] = -hash;
  MPI_Iallreduce(mine_, all_, 2, MPI_INT64_T, MPI_MAX, context_.check, &request_);
  event_ = start_(*context_.data, 0);
  begun_ = true;
}

void Collective::step() {
  if (!agreed_) {
    int came = 0;
    MPI_Test(&request_, &came, MPI_STATUS_IGNORE);
    if (came != 0) {
      if (all_[0] != -all_[1]) return report_difference();
      agreed_ = true;
    }
  }
  if (!agreed_) return;
  if (bytes() > 0 && !event_.test()) return;
  if (++piece_ < pieces_)
    event_ = start_(*context_.data, piece_);
  else
    finish(bytes());
}

// Every rank comes here, so that their texts can be put side by side.
void Collective::report_difference() {
  std::string error = "ranks called different collectives";
  try {
    const auto texts = context_.rendezvous->gather(context_.key + " differs", context_.members, context_.index, text_, timeout());
    for (size_t r = 1; r < texts.size(); ++r)
      if (texts[r] != texts[0])
        error = fmt::format("rank {} called {}, rank {} called {}", context_.members[0], texts[0], context_.members[r], texts[r]);
  } catch (const std::exception&) {  // then another rank says it
  }
  keep_forever(std::move(event_));
  context_.rendezvous->abort(error);
  fail(error);
}

void Collective::linger() {
  if (begun_) context_.rendezvous->announce(context_.key + " waits", context_.members, context_.index);
}

std::string Collective::awaited() {
  if (!begun_) return "the work before it has not finished";
  return fmt::format("not there: rank {}", fmt::join(context_.rendezvous->missing(context_.key + " waits", context_.members), ", "));
}

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
  auto& channel = channels_[static_cast<size_t>(peer)];
  if (!channel)
    channel = std::make_unique<Channel>(mpi_, peer, members_[static_cast<size_t>(index_)], members_[static_cast<size_t>(peer)],
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
    running_.back()->begin({data_.get(), mpi_, &engine_.rendezvous(), members_, index_, fmt::format("{} collective {}", name_, begun_++)});
  }
  for (const auto& one : running_) one->step();
  std::erase_if(running_, [](const auto& one) { return one->finished(); });
}

}  // namespace ppengine::comm::oneccl
