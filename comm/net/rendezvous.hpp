// Rendezvous: the ranks of a run as processes find each other, exchange small host values, and learn at once when one is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/net/messages.hpp>
#include <ppengine/comm/net/socket.hpp>

namespace ppengine::comm {

struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";  // where rank 0 listens: on the interface with this address
  int port = 0;
  int listener = -1;  // rank 0: a socket that listens already (the launcher's), instead of `port`
  std::chrono::milliseconds timeout = Communicator::default_timeout;
  std::string version = {};  // must be the same on all ranks
  std::string secret = {};   // of the run: whoever does not know it is not let in
  bool one_machine = true;   // all ranks are on this one
};

class Hub;

// A TCP connection from each rank to rank 0, where a thread of its own serves all. A process that dies closes its connection; one
// that stops, or is cut off, gives no more signs of life: either way every other rank learns which one it was.
class Rendezvous {
 public:
  // Until all ranks have come. CommError names the missing ones after the timeout.
  explicit Rendezvous(const RendezvousOptions& options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  // The values of some ranks (of the whole run) that name the same key; this one is members[index]. Each key is used once.
  // CommError (with `what`) at the deadline names who is missing. Gives up early (CommError) when `give_up` turns true. `meanwhile` is
  // called again and again: another rank may come only when a message of this one has moved.
  std::vector<std::string> gather(const std::string& key, std::span<const int> members, int index, std::string_view mine,
                                  std::chrono::milliseconds timeout, const std::string& what = "gathering of host values",
                                  const std::atomic<bool>* give_up = nullptr, const std::function<void()>& meanwhile = {});
  // The same without waiting: says that this rank is there. Then missing() tells others who has not said so.
  void announce(const std::string& key, std::span<const int> members, int index, std::string_view mine = {});
  std::vector<int> missing(const std::string& key, std::span<const int> members);

  // Tells all ranks that this one has failed, unless one has before. Until none of them moves messages any more, which may be out of this
  // rank's memory: two seconds and a half at most.
  void abort(const std::string& reason);
  // What stops this rank's messages after a failure: called from a thread of ours, before the others are told that it has stopped.
  void on_failure(std::function<void()> stop);
  std::optional<Failure> failure() const;
  bool failed() const { return failed_; }  // cheap
  // Until somebody has failed or the time is over; tells which.
  bool wait_for_failure(std::chrono::milliseconds timeout) const;

 private:
  void connect();
  // Both sides show that they know the secret. False when the connection was closed before that.
  bool shake_hands();
  void listen();
  void on_frame(const net::Frame& frame);
  void fail(Failure failure);
  void stop_messages();
  [[noreturn]] void throw_failure(int peer, const std::string& what) const;

  using Clock = std::chrono::steady_clock;
  RendezvousOptions options_;
  const Clock::time_point deadline_;  // for the start
  std::unique_ptr<Hub> hub_;          // rank 0
  net::Socket socket_;
  net::FrameReader reader_;
  std::mutex writing_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool welcome_ = false, closing_ = false, all_stopped_ = false, alone_ = false;  // alone: there is no hub any more
  std::mutex stopping_;
  std::function<void()> stop_;
  std::map<std::string, std::vector<std::string>> gathered_, present_;
  std::optional<Failure> failure_;
  std::optional<Failure> own_failure_;  // about to be told: ranks that end because of it are not the cause
  std::atomic<bool> failed_{false};
  std::thread listener_;
};

}  // namespace ppengine::comm
