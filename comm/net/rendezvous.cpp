// Rendezvous: one rank's connection to the hub.
#include <ppengine/comm/net/rendezvous.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/net/hmac.hpp>
#include <ppengine/comm/net/hub.hpp>

namespace ppengine::comm {

Rendezvous::Rendezvous(const RendezvousOptions& options) : options_(options), deadline_(Clock::now() + options.timeout) {
  if (options.rank == 0) {
    net::Socket listener = options.listener >= 0 ? net::Socket(options.listener)
                                                 : net::listen_on(options.port, net::interface_for(options.host, options.one_machine));
    options_.host = net::address_of(listener);
    options_.port = net::port_of(listener);
    hub_ = std::make_unique<Hub>(std::move(listener), Hub::Options{options.size, options.version, options.secret, options.timeout});
  }
  connect();
  listener_ = std::thread([this] {
    listen();
    const std::lock_guard lock(mutex_);
    alone_ = true;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  // A little longer than the hub, which knows who is missing.
  changed_.wait_until(lock, deadline_ + std::chrono::seconds(2), [&] { return welcome_ || failure_; });
  if (welcome_ && !failure_) return;
  const std::string reason = failure_ ? failure_->text() : "not all ranks came in time";
  const int peer = failure_ ? failure_->rank : 0;
  closing_ = true;
  lock.unlock();
  shutdown(socket_.fd(), SHUT_RDWR);
  listener_.join();
  throw CommError(peer, "start", -1, reason);
}

void Rendezvous::connect() {
  std::string why;
  do {  // the hub closes connections that say nothing for long, which a process without time to run may have done
    socket_ = net::connect_to(options_.host, options_.port, deadline_, why);
    if (!socket_)
      throw CommError(0, "start", -1,
                      fmt::format("rank {} cannot reach rank 0 at {}:{} ({}); is it running, and MASTER_ADDR right?", rank(), options_.host,
                                  options_.port, why));
  } while (!shake_hands());
}

bool Rendezvous::shake_hands() {
  reader_ = {};
  net::Hello mine{net::random_bytes(net::nonce_bytes), rank(), size(), options_.version, {}};
  std::string challenge;
  const auto stranger = [&](const char* why) {
    return CommError(0, "start", -1,
                     fmt::format("what listens at {}:{} {}; give all ranks the same PPENGINE_SECRET (or PPENGINE_SECRET_FILE)",
                                 options_.host, options_.port, why));
  };
  while (Clock::now() < deadline_) {
    pollfd waiting{socket_.fd(), POLLIN, 0};
    if (poll(&waiting, 1, 100) <= 0) continue;
    const bool open = reader_.read_from(socket_.fd());
    try {
      while (const auto frame = reader_.next()) {
        if (frame->kind == net::challenge && challenge.empty()) {
          challenge = frame->contents;
          if (challenge.size() != net::nonce_bytes) throw Error("not a rank");
          mine.proof = mine.expected_proof(options_.secret, challenge);
          net::write_frame(socket_.fd(), net::hello, mine.pack());
        } else if (frame->kind == net::proof && !challenge.empty() &&
                   net::same_bytes(frame->contents, net::hub_proof(options_.secret, challenge, mine.nonce))) {
          reader_.set_largest(net::FrameReader::from_ranks);
          return true;
        } else if (frame->kind == net::refused) {
          throw stranger("has another secret than this rank");
        } else {
          throw Error("not rank 0");
        }
      }
    } catch (const CommError&) {
      throw;
    } catch (const Error&) {
      throw stranger("is not rank 0 of this run");
    }
    if (!open) return false;
  }
  throw CommError(0, "start", -1, fmt::format("rank 0 at {}:{} did not answer in time", options_.host, options_.port));
}

Rendezvous::~Rendezvous() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  {
    const std::lock_guard lock(writing_);
    net::write_frame(socket_.fd(), net::bye, {});
  }
  shutdown(socket_.fd(), SHUT_WR);  // the hub closes its side when it has read the goodbye
  if (listener_.joinable()) listener_.join();
}

void Rendezvous::on_frame(const net::Frame& frame) {
  if (frame.kind == net::abort) {
    const bool known = [&] {
      const std::lock_guard lock(mutex_);
      return failure_ || own_failure_;
    }();
    fail(net::unpack_failure(frame.contents));
    if (!known) stop_messages();
  }
  const std::lock_guard lock(mutex_);
  if (frame.kind == net::all_stopped) all_stopped_ = true;
  if (frame.kind == net::welcome) welcome_ = true;
  if (frame.kind == net::closing) closing_ = true;
  if (frame.kind == net::gathered || frame.kind == net::present) {
    net::KeyedTexts told = net::KeyedTexts::unpack(frame.contents, size());
    (frame.kind == net::gathered ? gathered_ : present_)[told.key] = std::move(told.texts);
  }
  changed_.notify_all();
}

void Rendezvous::listen() {
  auto last_beat = Clock::now(), heard = last_beat, last_look = last_beat;
  const auto silence = std::max<Clock::duration>(options_.timeout, 3 * net::beat_every);
  Clock::time_point give_up = Clock::time_point::max();
  for (;;) {
    pollfd waiting{socket_.fd(), POLLIN, 0};
    poll(&waiting, 1, 100);
    const auto now = Clock::now();
    if (now - last_look > net::beat_every) heard += now - last_look;  // this process itself had no time to run
    last_look = now;
    bool open = true;
    if (waiting.revents != 0) {
      open = reader_.read_from(socket_.fd());
      heard = now;
    }
    try {
      while (const auto frame = reader_.next()) on_frame(*frame);
    } catch (const std::exception& error) {
      return fail({0, fmt::format("what it sent makes no sense ({})", error.what()), true});
    }
    bool closing = false;
    {
      const std::lock_guard lock(mutex_);
      closing = closing_;
    }
    if (!open) {
      if (!closing) fail({0, "its process has ended (the connection was closed)", true});
      return;
    }
    if (closing) {
      give_up = std::min(give_up, now + std::chrono::seconds(2));
      if (now >= give_up) return;
      continue;
    }
    if (now - heard > silence)
      return fail(
          {0, fmt::format("it gave no sign of life for {:.0f} s (stopped, or cut off)", std::chrono::duration<double>(now - heard).count()),
           true});
    if (now - last_beat >= net::beat_every) {
      last_beat = now;
      const std::lock_guard lock(writing_);
      net::write_frame(socket_.fd(), net::beat, {});
    }
  }
}

std::vector<std::string> Rendezvous::gather(const std::string& key, std::span<const int> members, int index, std::string_view mine,
                                            std::chrono::milliseconds timeout, const std::string& what, const std::atomic<bool>* give_up,
                                            const std::function<void()>& meanwhile) {
  const auto deadline = Clock::now() + timeout;
  const auto given_up = [&] { return give_up && *give_up; };
  announce(key, members, index, mine);
  {
    std::unique_lock lock(mutex_);
    const auto came = [&] { return gathered_.contains(key) || failure_ || given_up(); };
    while (!came() && Clock::now() < deadline) {
      if (meanwhile) {
        lock.unlock();
        meanwhile();
        lock.lock();
        changed_.wait_for(lock, std::chrono::microseconds(50), came);
      } else {
        changed_.wait_until(lock, give_up ? std::min(deadline, Clock::now() + std::chrono::milliseconds(50)) : deadline, came);
      }
    }
    if (const auto found = gathered_.find(key); found != gathered_.end()) {
      auto parts = std::move(found->second);
      gathered_.erase(found);
      return parts;
    }
    if (failure_) throw_failure(failure_->rank, what);
    if (given_up()) throw CommError(-1, what, -1, "the communicator was closed before its peer came");
  }
  const auto absent = missing(key, members);
  throw CommError(absent.empty() ? -1 : absent.front(), what, -1,
                  fmt::format("rank {} waited {:.1f} s, not there: rank {} (--timeout sets how long to wait)", rank(),
                              std::chrono::duration<double>(timeout).count(), fmt::join(absent, ", ")));
}

void Rendezvous::announce(const std::string& key, std::span<const int> members, int index, std::string_view mine) {
  const std::lock_guard lock(writing_);
  net::write_frame(socket_.fd(), net::gather,
                   net::GatherPart{key, static_cast<std::int64_t>(members.size()), index, std::string(mine)}.pack());
}

std::vector<int> Rendezvous::missing(const std::string& key, std::span<const int> members) {
  {
    const std::lock_guard lock(writing_);
    net::write_frame(socket_.fd(), net::ask, net::Packer().text(key).bytes());
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(2), [&] { return present_.contains(key) || failure_; });
  std::vector<int> absent(members.begin(), members.end());
  for (const std::string& one : present_[key]) std::erase_if(absent, [&](int member) { return std::to_string(member) == one; });
  present_.erase(key);
  return absent;
}

void Rendezvous::throw_failure(int peer, const std::string& what) const {
  const Failure& failure = failure_.value();
  throw CommError(peer, what, -1, failure.text());
}

void Rendezvous::fail(Failure failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = own_failure_.value_or(std::move(failure));
  }
  failed_ = true;
  changed_.notify_all();
}

void Rendezvous::abort(const std::string& reason) {
  const Failure mine{rank(), reason};
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !failure_ && !own_failure_;
    if (first) own_failure_ = mine;
  }
  if (first) {
    {
      const std::lock_guard lock(writing_);
      net::write_frame(socket_.fd(), net::abort, net::pack(mine));
    }
    fail(mine);
  }
  // Without a hub nobody tells: all ranks have seen it go at the same time.
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, std::chrono::milliseconds(2500), [&] { return all_stopped_ || alone_; }) || all_stopped_) return;
  changed_.wait_for(lock, std::chrono::milliseconds(300), [&] { return all_stopped_; });
}

void Rendezvous::on_failure(std::function<void()> stop) {
  const std::lock_guard lock(stopping_);
  stop_ = std::move(stop);
}

void Rendezvous::stop_messages() {
  {
    const std::lock_guard lock(stopping_);
    if (stop_) stop_();
  }
  const std::lock_guard lock(writing_);
  net::write_frame(socket_.fd(), net::stopped, {});
}

std::optional<Failure> Rendezvous::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Rendezvous::wait_for_failure(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return failure_.has_value(); });
}

}  // namespace ppengine::comm
