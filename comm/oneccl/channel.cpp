// Messages between this rank and one peer.
#include <ppengine/comm/oneccl/channel.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace ppengine::comm::oneccl {
namespace {
constexpr int header_tag = 1, word_tag = 2;
constexpr size_t large = size_t{1} << 20;  // bytes
}  // namespace

std::string Transfer::awaited() { return fmt::format("rank {} has not posted its side, or does not move it", peer()); }

Channel::Channel(ccl::communicator& data, MPI_Comm headers, int peer, int world_rank, int world_peer, Rendezvous& rendezvous)
    : data_(data), headers_(headers), peer_(peer), world_rank_(world_rank), world_peer_(world_peer), rendezvous_(rendezvous) {}

bool Channel::idle() const { return unsent_.empty() && wanted_.empty() && outgoing_.empty() && incoming_.empty() && unexpected_.empty(); }

void Channel::step() {
  if (idle()) return;
  if (world_rank_ == world_peer_) return match_own();
  send_waiting();
  if (!wanted_.empty()) {
    read_headers();
    match();
    if (rendezvous_.failed()) return;  // by the match itself: the peers may have stopped by now
  }
  move_outgoing();
  move_incoming();
}

// A message to oneself is a copy.
void Channel::match_own() {
  for (auto want = wanted_.begin(); want != wanted_.end();) {
    const auto sent = std::ranges::find_if(unsent_, [&](const TransferPtr& one) { return one->tag() == (*want)->tag(); });
    if (sent == unsent_.end() || !(*sent)->ready() || !(*want)->ready()) {
      ++want;
      continue;
    }
    const size_t bytes = (*sent)->wanted;
    if (!accepts(**want, bytes)) return;
    if (bytes > 0) std::memcpy((*want)->data, (*sent)->data, bytes);
    (*sent)->finish(bytes);
    (*want)->finish(bytes);
    unsent_.erase(sent);
    want = wanted_.erase(want);
  }
}

void Channel::send_waiting() {
  while (!unsent_.empty() && unsent_.front()->ready()) {
    TransferPtr transfer = std::move(unsent_.front());
    unsent_.pop_front();
    auto& out =
        outgoing_.emplace_back(transfer, Header{transfer->tag(), static_cast<int64_t>(transfer->wanted)}, MPI_REQUEST_NULL, ccl::event());
    MPI_Isend(&out.header, sizeof(Header), MPI_BYTE, peer_, header_tag, headers_, &out.request);
  }
}

void Channel::read_headers() {
  for (int came = 1; came != 0;) {
    if (listening_ == MPI_REQUEST_NULL) MPI_Irecv(&next_, sizeof(Header), MPI_BYTE, peer_, header_tag, headers_, &listening_);
    came = 0;
    MPI_Test(&listening_, &came, MPI_STATUS_IGNORE);
    if (came != 0) arrived_.push_back(next_);
  }
}

// A size that does not fit ends the run on both sides: the sender's data could go nowhere.
bool Channel::accepts(const Transfer& transfer, size_t bytes) {
  if (transfer.up_to ? bytes <= transfer.wanted : bytes == transfer.wanted) return true;
  rendezvous_.abort(fmt::format("recv with rank {} (tag {}): rank {} sends {} bytes, rank {} receives {}{} bytes", world_peer_,
                                transfer.tag(), world_peer_, bytes, world_rank_, transfer.up_to ? "up to " : "", transfer.wanted));
  return false;
}

bool Channel::match_unexpected() {
  for (auto kept = unexpected_.begin(); kept != unexpected_.end(); ++kept) {
    const auto found = std::ranges::find_if(wanted_, [&](const TransferPtr& one) { return one->tag() == kept->tag; });
    if (found == wanted_.end() || !(*found)->ready() || !kept->complete) continue;
    if (!accepts(**found, kept->contents.size())) return false;
    std::memcpy((*found)->data, kept->contents.data(), kept->contents.size());
    (*found)->finish(kept->contents.size());
    wanted_.erase(found);
    unexpected_.erase(kept);
    return true;
  }
  return false;
}

void Channel::match() {
  while (match_unexpected()) {
  }
  while (!arrived_.empty()) {
    const Header head = arrived_.front();
    const auto bytes = static_cast<size_t>(head.bytes);
    const auto waits_for = [&](const Header& header) {
      return std::ranges::find_if(wanted_, [&](const TransferPtr& one) { return one->tag() == header.tag; });
    };
    const auto found = waits_for(head);
    // An earlier message of the same tag that is kept aside comes first.
    const bool behind = std::ranges::any_of(unexpected_, [&](const Unexpected& one) { return one.tag == head.tag; });
    if (found != wanted_.end() && !behind) {
      if (!(*found)->ready()) return;
      if (!accepts(**found, bytes)) return;
      void* data = (*found)->data;
      incoming_.emplace_back(std::move(*found), nullptr, bytes, data, ccl::event());
      wanted_.erase(found);
    } else {
      const bool blocks =
          std::ranges::any_of(arrived_.begin() + 1, arrived_.end(), [&](const Header& later) { return waits_for(later) != wanted_.end(); });
      if (!blocks) return;
      auto& kept = unexpected_.emplace_back(static_cast<int>(head.tag), std::vector<std::byte>(bytes));
      incoming_.emplace_back(nullptr, &kept, bytes, kept.contents.data(), ccl::event());
    }
    arrived_.pop_front();
  }
}

bool Channel::receiver_is_there(Outgoing& out) {
  if (out.transfer->wanted < large) return true;
  if (!out.listening) MPI_Irecv(nullptr, 0, MPI_BYTE, peer_, word_tag, headers_, &out.awaited);
  out.listening = true;
  int came = 0;
  MPI_Test(&out.awaited, &came, MPI_STATUS_IGNORE);
  return came != 0;
}

void Channel::move_outgoing() {
  while (!outgoing_.empty()) {
    Outgoing& out = outgoing_.front();
    if (out.transfer->wanted > 0) {
      if (!out.begun && !receiver_is_there(out)) return;
      if (!out.begun) out.event = ccl::send(out.transfer->data, out.transfer->wanted, ccl::datatype::uint8, peer_, data_);
      out.begun = true;
      if (!out.event.test()) return;
    }
    int sent = 1;
    if (out.request != MPI_REQUEST_NULL) MPI_Test(&out.request, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) return;
    out.transfer->finish(out.transfer->wanted);
    outgoing_.pop_front();
  }
}

void Channel::move_incoming() {
  while (!incoming_.empty()) {
    Incoming& in = incoming_.front();
    if (in.bytes > 0) {
      if (!in.begun) in.event = ccl::recv(in.data, in.bytes, ccl::datatype::uint8, peer_, data_);
      const bool first = !std::exchange(in.begun, true), came = in.event.test();
      if (first && in.bytes >= large) MPI_Isend(nullptr, 0, MPI_BYTE, peer_, word_tag, headers_, &in.word);
      if (!came) return;
      MPI_Wait(&in.word, MPI_STATUS_IGNORE);
    }
    if (in.transfer)
      in.transfer->finish(in.bytes);
    else
      in.kept->complete = true;
    incoming_.pop_front();
  }
}

void Channel::close() {
  if (listening_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&listening_);
  MPI_Wait(&listening_, MPI_STATUS_IGNORE);
}

}  // namespace ppengine::comm::oneccl
