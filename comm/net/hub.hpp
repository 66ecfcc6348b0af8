// The hub: the thread in rank 0's process that serves every rank's connection. Whoever does not know the secret of the run is turned away
// and changes nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/net/messages.hpp>
#include <ppengine/comm/net/socket.hpp>

namespace ppengine::comm {

class Hub {
 public:
  struct Options {
    int size = 1;
    std::string version, secret;
    std::chrono::milliseconds timeout{};
  };
  Hub(net::Socket listener, Options options);
  // Waits a little for ranks that have not said goodbye.
  ~Hub();

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    net::Socket socket;
    net::FrameReader reader;
    std::string challenge;
    int rank = -1;                       // until it has shown that it knows the secret
    bool left = false, stopped = false;  // stopped: after a failure it moves no messages any more
    Clock::time_point heard;
  };
  struct Gathering {
    std::vector<std::string> parts;
    std::vector<int> ranks;  // who takes part
    int arrived = 0;
  };

  void run();
  void accept_one();
  void serve(Connection& connection);
  void on_frame(Connection& connection, const net::Frame& frame);
  // From one that has not shown yet that it knows the secret.
  void on_hello(Connection& connection, const net::Frame& frame);
  void refuse_stranger(Connection& connection);
  void on_gather(Connection& connection, const std::string& contents);
  void on_ask(const Connection& connection, const std::string& contents);
  void lose(Connection& connection, const std::string& reason);
  void tell_all(std::uint8_t kind, const std::string& contents, const Connection* but = nullptr);
  void tell_when_all_stopped();
  void keep_watch(Clock::time_point now);

  net::Socket listener_;
  const Options options_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_beat_{}, last_watch_ = begin_;
  std::vector<Connection> connections_;
  std::map<std::string, Gathering> gatherings_;
  int here_ = 0, strangers_ = 0;
  bool told_missing_ = false, told_stopped_ = false;
  std::string verdict_;  // the first failure, for ranks that come later
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace ppengine::comm
