// Messages between this rank and one peer.
#include <ppengine/comm/oneccl/channel.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace ppengine::comm::oneccl {

std::string Transfer::awaited() { return fmt::format("rank {} has not posted its side, or does not move it", peer()); }

Channel::Channel(MPI_Comm comm, int peer, int world_rank, int world_peer, Rendezvous& rendezvous)
    : comm_(comm), peer_(peer), world_rank_(world_rank), world_peer_(world_peer), rendezvous_(rendezvous) {}

void Channel::send(TransferPtr transfer) {
  unsent_.push_back(std::move(transfer));
  if (!own()) post();
}

void Channel::receive(TransferPtr transfer) {
  wanted_.push_back(std::move(transfer));
  if (!own()) post();
}

void Channel::step() {
  if (idle()) return;
  if (own()) return match_own();
  post();
  if (requests_.empty() || rendezvous_.failed()) return;
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) check(result);
  if (count == MPI_UNDEFINED || count == 0) return;
  for (int i = 0; i < count; ++i) {
    auto& status = statuses_[static_cast<std::size_t>(i)];
    if (result == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;  // MPI leaves it as it was
    finish(posted_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])], status);
  }
  std::erase_if(posted_, [](const Posted& one) { return one.transfer->finished(); });
  std::erase(requests_, MPI_REQUEST_NULL);
}

void Channel::post() {
  while (!unsent_.empty() && unsent_.front()->ready()) {
    const Transfer& one = *unsent_.front();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend_c(one.data, static_cast<MPI_Count>(one.wanted), MPI_BYTE, peer_, first_message_tag + one.tag(), comm_, &request));
    under_way(request, std::move(unsent_.front()), true);
    ++sending_;
    unsent_.pop_front();
  }
  for (auto want = wanted_.begin(); want != wanted_.end();) {
    const bool behind = std::any_of(wanted_.begin(), want, [&](const TransferPtr& one) { return one->tag() == (*want)->tag(); });
    MPI_Request request = MPI_REQUEST_NULL;
    if (behind || !(*want)->ready() || !begin_receive(**want, request)) {
      ++want;
      continue;
    }
    under_way(request, std::move(*want), false);
    want = wanted_.erase(want);
  }
}

// One that takes any size asks for the size first: MPI does not tell it of a message that was too large.
bool Channel::begin_receive(const Transfer& transfer, MPI_Request& request) {
  const auto room = static_cast<MPI_Count>(transfer.wanted);
  if (!transfer.up_to) {
    check(MPI_Irecv_c(transfer.data, room, MPI_BYTE, peer_, first_message_tag + transfer.tag(), comm_, &request));
    return true;
  }
  int came = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(peer_, first_message_tag + transfer.tag(), comm_, &came, &message, &status));
  if (came == 0) return false;
  MPI_Count bytes = 0;
  MPI_Get_count_c(&status, MPI_BYTE, &bytes);
  if (bytes > room) {
    refuse(transfer, fmt::format("{} bytes", bytes));
    return false;
  }
  check(MPI_Imrecv_c(transfer.data, bytes, MPI_BYTE, &message, &request));
  return true;
}

void Channel::under_way(MPI_Request request, TransferPtr transfer, bool sends) {
  requests_.push_back(request);
  posted_.push_back({std::move(transfer), sends});
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
}

void Channel::finish(const Posted& one, const MPI_Status& status) {
  Transfer& transfer = *one.transfer;
  int kind = MPI_SUCCESS;
  if (status.MPI_ERROR != MPI_SUCCESS) MPI_Error_class(status.MPI_ERROR, &kind);
  if (kind == MPI_ERR_TRUNCATE) return refuse(transfer, "more");
  check(status.MPI_ERROR);
  auto bytes = static_cast<MPI_Count>(transfer.wanted);
  if (one.sends)
    --sending_;
  else
    MPI_Get_count_c(&status, MPI_BYTE, &bytes);
  if (static_cast<std::size_t>(bytes) != transfer.wanted && !transfer.up_to) return refuse(transfer, fmt::format("{} bytes", bytes));
  transfer.finish(static_cast<std::size_t>(bytes));
}

// A size that does not fit ends the run on both sides.
void Channel::refuse(const Transfer& transfer, const std::string& sent) {
  rendezvous_.abort(fmt::format("recv with rank {} (tag {}): rank {} receives {}{} bytes, rank {} sends {}", world_peer_, transfer.tag(),
                                world_rank_, transfer.up_to ? "up to " : "", transfer.wanted, world_peer_, sent));
}

// A message to oneself is a copy.
void Channel::match_own() {
  for (auto want = wanted_.begin(); want != wanted_.end();) {
    const auto sent = std::ranges::find_if(unsent_, [&](const TransferPtr& one) { return one->tag() == (*want)->tag(); });
    if (sent == unsent_.end() || !(*sent)->ready() || !(*want)->ready()) {
      ++want;
      continue;
    }
    const std::size_t bytes = (*sent)->wanted;
    if (bytes != (*want)->wanted && (!(*want)->up_to || bytes > (*want)->wanted)) return refuse(**want, fmt::format("{} bytes", bytes));
    if (bytes > 0) std::memcpy((*want)->data, (*sent)->data, bytes);
    (*sent)->finish(bytes);
    (*want)->finish(bytes);
    unsent_.erase(sent);
    want = wanted_.erase(want);
  }
}

}  // namespace ppengine::comm::oneccl
