// The hub: the thread in rank 0's process that serves every rank's connection.
#include <ppengine/comm/net/hub.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::comm {

std::string net::pack(const Failure& failure) {
  return Packer().number(failure.rank).text(failure.reason).number(failure.lost ? 1 : 0).bytes();
}

Failure net::unpack_failure(Unpacker& in) {
  Failure failure{static_cast<int>(in.number()), in.text()};
  failure.lost = in.number() != 0;
  return failure;
}

Hub::Hub(net::Socket listener, int size, std::string version, std::chrono::milliseconds timeout)
    : listener_(std::move(listener)), port_(net::port_of(listener_)), size_(size), version_(std::move(version)), timeout_(timeout) {
  thread_ = std::thread([this] { run(); });
}

Hub::~Hub() {
  closing_ = true;
  thread_.join();
}

void Hub::run() {
  Clock::time_point close_at = Clock::time_point::max();
  for (;;) {
    std::vector<pollfd> waiting{{listener_.fd(), POLLIN, 0}};
    for (const Connection& one : connections_) waiting.push_back({one.socket.fd(), POLLIN, 0});
    poll(waiting.data(), waiting.size(), closing_ ? 10 : 100);
    for (size_t i = 1; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) serve(connections_[i - 1]);
    std::erase_if(connections_, [](const Connection& one) { return !one.socket; });
    if (waiting[0].revents != 0)
      if (net::Socket socket = net::accept_from(listener_)) connections_.push_back({std::move(socket), {}, -1, false, false, Clock::now()});
    const auto now = Clock::now();
    keep_watch(now);
    tell_when_all_stopped();
    if (!closing_) continue;
    close_at = std::min(close_at, now + std::min<Clock::duration>(timeout_, std::chrono::seconds(5)));
    if (connections_.empty() || now >= close_at) break;
  }
  tell_all(net::closing, {});
}

void Hub::serve(Connection& connection) {
  const bool open = connection.reader.read_from(connection.socket.fd());
  try {
    while (const auto frame = connection.reader.next()) {
      connection.heard = Clock::now();
      switch (frame->kind) {
        case net::hello:
          on_hello(connection, frame->contents);
          break;
        case net::gather:
          on_gather(connection, frame->contents);
          break;
        case net::ask:
          on_ask(connection, frame->contents);
          break;
        case net::abort:
          connection.stopped = true;
          tell_all(net::abort, frame->contents, &connection);
          break;
        case net::stopped:
          connection.stopped = true;
          break;
        case net::bye:
          connection.left = true;
          break;
        default:
          break;
      }
    }
  } catch (const std::exception&) {  // not one of ours
    connection.socket.close();
    return;
  }
  if (open) return;
  if (connection.left || connection.rank < 0)
    connection.socket.close();
  else
    lose(connection, "its process has ended (the connection was closed)");
}

void Hub::on_hello(Connection& connection, const std::string& contents) {
  net::Unpacker in(contents);
  if (in.text() != "ppengine") throw Error("not a rank");
  const auto rank = static_cast<int>(in.number()), size = static_cast<int>(in.number());
  const std::string version = in.text();
  const auto refuse = [&](const std::string& why) { tell_all(net::abort, net::pack({rank, why})); };
  const bool twice = std::ranges::any_of(connections_, [&](const Connection& one) { return one.rank == rank; });
  connection.rank = rank;
  if (!verdict_.empty()) net::write_frame(connection.socket.fd(), net::abort, verdict_);
  if (size != size_) return refuse(fmt::format("it was started for {} ranks, rank 0 for {}", size, size_));
  if (version != version_) return refuse(fmt::format("it is ppengine {}, rank 0 is {}: install the same everywhere", version, version_));
  if (rank < 0 || rank >= size_ || twice) return refuse(fmt::format("two processes say that they are rank {}", rank));
  if (++here_ == size_) tell_all(net::welcome, {});
}

void Hub::on_gather(Connection& connection, const std::string& contents) {
  net::Unpacker in(contents);
  const std::string key = in.text();
  const auto members = static_cast<size_t>(in.number()), index = static_cast<size_t>(in.number());
  Gathering& gathering = gatherings_[key];
  gathering.parts.resize(std::max(gathering.parts.size(), members));
  gathering.ranks.push_back(connection.rank);
  gathering.parts.at(index) = in.text();
  if (static_cast<size_t>(++gathering.arrived) < members) return;
  net::Packer out;
  out.text(key).number(static_cast<int64_t>(members));
  for (const std::string& part : gathering.parts) out.text(part);
  for (const Connection& one : connections_)
    if (std::ranges::count(gathering.ranks, one.rank) != 0) net::write_frame(one.socket.fd(), net::gathered, out.bytes());
  gatherings_.erase(key);
}

void Hub::on_ask(const Connection& connection, const std::string& contents) {
  const std::string key = net::Unpacker(contents).text();
  const auto found = gatherings_.find(key);
  const std::vector<int> ranks = found == gatherings_.end() ? std::vector<int>() : found->second.ranks;
  net::Packer out;
  out.text(key).number(static_cast<int64_t>(ranks.size()));
  for (const int rank : ranks) out.text(std::to_string(rank));
  net::write_frame(connection.socket.fd(), net::present, out.bytes());
}

void Hub::lose(Connection& connection, const std::string& reason) {
  connection.socket.close();
  tell_all(net::abort, net::pack({connection.rank, reason, true}));
}

void Hub::tell_all(uint8_t kind, const std::string& contents, const Connection* but) {
  if (kind == net::abort && verdict_.empty()) verdict_ = contents;
  for (const Connection& one : connections_)
    if (one.socket && one.rank >= 0 && &one != but) net::write_frame(one.socket.fd(), kind, contents);
}

void Hub::tell_when_all_stopped() {
  if (verdict_.empty() || told_stopped_) return;
  if (!std::ranges::all_of(connections_, [](const Connection& one) { return one.rank < 0 || one.left || one.stopped; })) return;
  told_stopped_ = true;
  tell_all(net::all_stopped, {});
}

void Hub::keep_watch(Clock::time_point now) {
  // When this process itself had no time to run, the others' silence says nothing.
  if (const auto away = now - last_watch_; away > net::beat_every)
    for (Connection& one : connections_) one.heard += away;
  last_watch_ = now;
  if (now - last_beat_ >= net::beat_every) {
    last_beat_ = now;
    tell_all(net::beat, {});
  }
  for (Connection& one : connections_)
    if (one.rank >= 0 && !one.left && now - one.heard > std::max<Clock::duration>(timeout_, 3 * net::beat_every)) {
      lose(one, fmt::format("it gave no sign of life for {:.0f} s (stopped, or cut off)",
                            std::chrono::duration<double>(now - one.heard).count()));
    }
  std::erase_if(connections_, [](const Connection& one) { return !one.socket; });
  if (here_ < size_ && !told_missing_ && now - begin_ > timeout_) {
    told_missing_ = true;
    std::vector<int> missing;
    for (int r = 0; r < size_; ++r)
      if (std::ranges::none_of(connections_, [&](const Connection& one) { return one.rank == r; })) missing.push_back(r);
    if (missing.empty()) return;
    const std::string reason = fmt::format("it did not come within {:.0f} s; of {} ranks these are missing: {}",
                                           std::chrono::duration<double>(timeout_).count(), size_, fmt::join(missing, ", "));
    tell_all(net::abort, net::pack({missing.front(), reason, true}));
  }
}

}  // namespace ppengine::comm
