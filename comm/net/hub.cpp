// The hub: the thread in rank 0's process that serves every rank's connection.
#include <ppengine/comm/net/hub.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/net/hmac.hpp>

namespace ppengine::comm {

namespace {
// A stranger may keep a connection for this long, and there may be this many of them at a time.
constexpr std::chrono::seconds time_for_hello{10};
constexpr std::ptrdiff_t most_strangers = 64;
}  // namespace

Hub::Hub(net::Socket listener, Options options) : listener_(std::move(listener)), options_(std::move(options)) {
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
    for (std::size_t i = 1; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) serve(connections_[i - 1]);
    std::erase_if(connections_, [](const Connection& one) { return !one.socket; });
    if (waiting[0].revents != 0) accept_one();
    const auto now = Clock::now();
    keep_watch(now);
    tell_when_all_stopped();
    if (!closing_) continue;
    close_at = std::min(close_at, now + std::min<Clock::duration>(options_.timeout, std::chrono::seconds(5)));
    if (connections_.empty() || now >= close_at) break;
  }
  tell_all(net::closing, {});
}

void Hub::accept_one() {
  net::Socket socket = net::accept_from(listener_);
  if (!socket) return;
  const auto is_stranger = [](const Connection& one) { return one.rank < 0; };
  if (std::ranges::count_if(connections_, is_stranger) >= most_strangers + options_.size)
    connections_.erase(std::ranges::find_if(connections_, is_stranger));  // the one that has been silent for longest
  connections_.push_back({std::move(socket), {}, net::random_bytes(net::nonce_bytes), -1, false, false, Clock::now()});
  net::write_frame(connections_.back().socket.fd(), net::challenge, connections_.back().challenge);
}

void Hub::serve(Connection& connection) {
  const bool open = connection.reader.read_from(connection.socket.fd());
  try {
    while (connection.socket) {
      const auto frame = connection.reader.next();
      if (!frame) break;
      connection.rank < 0 ? on_hello(connection, *frame) : on_frame(connection, *frame);
    }
  } catch (const std::exception& error) {
    if (connection.rank < 0)
      refuse_stranger(connection);
    else
      lose(connection, fmt::format("what it sent makes no sense ({})", error.what()));
  }
  if (open || !connection.socket) return;
  if (connection.left || connection.rank < 0)
    connection.socket.close();
  else
    lose(connection, "its process has ended (the connection was closed)");
}

void Hub::on_frame(Connection& connection, const net::Frame& frame) {
  connection.heard = Clock::now();
  switch (frame.kind) {
    case net::gather:
      return on_gather(connection, frame.contents);
    case net::ask:
      return on_ask(connection, frame.contents);
    case net::abort:
      connection.stopped = true;
      return tell_all(net::abort, net::pack(net::unpack_failure(frame.contents)), &connection);
    case net::stopped:
      connection.stopped = true;
      return;
    case net::bye:
      connection.left = true;
      return;
    default:
      return;
  }
}

void Hub::refuse_stranger(Connection& connection) {
  net::write_frame(connection.socket.fd(), net::refused, {});
  connection.socket.close();
  if (++strangers_ == 1) log::warning("a connection that does not know the secret of this run was refused (further ones are not reported)");
}

void Hub::on_hello(Connection& connection, const net::Frame& frame) {
  if (frame.kind != net::hello) throw Error("not a rank");
  const net::Hello said = net::Hello::unpack(frame.contents);
  if (!net::same_bytes(said.proof, said.expected_proof(options_.secret, connection.challenge))) return refuse_stranger(connection);
  net::write_frame(connection.socket.fd(), net::proof, net::hub_proof(options_.secret, connection.challenge, said.nonce));
  const auto rank = static_cast<int>(said.rank);
  const bool twice = std::ranges::any_of(connections_, [&](const Connection& one) { return one.rank == rank; });
  if (here_ == options_.size) {  // all are there: this one is too many, and none of the others' business
    net::write_frame(connection.socket.fd(), net::abort, net::pack({rank, "the run has all of its ranks already"}));
    connection.socket.close();
    return;
  }
  connection.rank = rank;
  connection.heard = Clock::now();
  connection.reader.set_largest(net::FrameReader::from_ranks);
  const auto refuse = [&](const std::string& why) { tell_all(net::abort, net::pack({rank, why})); };
  if (!verdict_.empty()) net::write_frame(connection.socket.fd(), net::abort, verdict_);
  if (said.size != options_.size) return refuse(fmt::format("it was started for {} ranks, rank 0 for {}", said.size, options_.size));
  if (said.version != options_.version)
    return refuse(
        fmt::format("it is ppengine {}, rank 0 is {}: install the same everywhere", net::printable(said.version), options_.version));
  if (rank >= options_.size || twice) return refuse(fmt::format("two processes say that they are rank {}", rank));
  if (++here_ == options_.size) tell_all(net::welcome, {});
}

void Hub::on_gather(Connection& connection, const std::string& contents) {
  net::GatherPart part = net::GatherPart::unpack(contents, options_.size);
  Gathering& gathering = gatherings_[part.key];
  gathering.parts.resize(std::max(gathering.parts.size(), static_cast<std::size_t>(part.members)));
  gathering.ranks.push_back(connection.rank);
  gathering.parts.at(static_cast<std::size_t>(part.index)) = std::move(part.value);
  if (++gathering.arrived < part.members) return;
  const std::string whole = net::KeyedTexts{part.key, std::move(gathering.parts)}.pack();
  for (const Connection& one : connections_)
    if (std::ranges::count(gathering.ranks, one.rank) != 0) net::write_frame(one.socket.fd(), net::gathered, whole);
  gatherings_.erase(part.key);
}

void Hub::on_ask(const Connection& connection, const std::string& contents) {
  net::KeyedTexts came{net::Unpacker(contents).text(), {}};
  if (const auto found = gatherings_.find(came.key); found != gatherings_.end())
    for (const int rank : found->second.ranks) came.texts.push_back(std::to_string(rank));
  net::write_frame(connection.socket.fd(), net::present, came.pack());
}

void Hub::lose(Connection& connection, const std::string& reason) {
  connection.socket.close();
  tell_all(net::abort, net::pack({connection.rank, reason, true}));
}

void Hub::tell_all(std::uint8_t kind, const std::string& contents, const Connection* but) {
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
    if (one.rank >= 0 && !one.left && now - one.heard > std::max<Clock::duration>(options_.timeout, 3 * net::beat_every)) {
      lose(one, fmt::format("it gave no sign of life for {:.0f} s (stopped, or cut off)",
                            std::chrono::duration<double>(now - one.heard).count()));
    }
  std::erase_if(connections_, [&](const Connection& one) { return !one.socket || (one.rank < 0 && now - one.heard > time_for_hello); });
  if (here_ < options_.size && !told_missing_ && now - begin_ > options_.timeout) {
    told_missing_ = true;
    std::vector<int> missing;
    for (int r = 0; r < options_.size; ++r)
      if (std::ranges::none_of(connections_, [&](const Connection& one) { return one.rank == r; })) missing.push_back(r);
    if (missing.empty()) return;
    const std::string reason =
        fmt::format("it did not come within {:.0f} s; of {} ranks these are missing: {}",
                    std::chrono::duration<double>(options_.timeout).count(), options_.size, fmt::join(missing, ", "));
    tell_all(net::abort, net::pack({missing.front(), reason, true}));
  }
}

}  // namespace ppengine::comm
