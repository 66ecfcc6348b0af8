// The hub: the thread in rank 0's process that serves every rank's connection.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/net/socket.hpp>

namespace ppengine::comm {

namespace net {
// What frames between a rank and the hub mean.
enum Kind : uint8_t { hello, welcome, gather, gathered, ask, present, abort, stopped, all_stopped, beat, bye, closing };
constexpr std::chrono::milliseconds beat_every{1000};
// The contents of an abort.
std::string pack(const Failure& failure);
Failure unpack_failure(Unpacker& in);
}  // namespace net

class Hub {
 public:
  Hub(net::Socket listener, int size, std::string version, std::chrono::milliseconds timeout);
  // Waits a little for ranks that have not said goodbye.
  ~Hub();
  int port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    net::Socket socket;
    net::FrameReader reader;
    int rank = -1;
    bool left = false, stopped = false;  // stopped: after a failure it moves no messages any more
    Clock::time_point heard;
  };
  struct Gathering {
    std::vector<std::string> parts;
    std::vector<int> ranks;  // who takes part
    int arrived = 0;
  };

  void run();
  void serve(Connection& connection);
  void on_hello(Connection& connection, const std::string& contents);
  void on_gather(Connection& connection, const std::string& contents);
  void on_ask(const Connection& connection, const std::string& contents);
  void lose(Connection& connection, const std::string& reason);
  void tell_all(uint8_t kind, const std::string& contents, const Connection* but = nullptr);
  void tell_when_all_stopped();
  void keep_watch(Clock::time_point now);

  net::Socket listener_;
  int port_;
  const int size_;
  const std::string version_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_beat_{}, last_watch_ = begin_;
  std::vector<Connection> connections_;
  std::map<std::string, Gathering> gatherings_;
  int here_ = 0, left_ = 0;
  bool told_missing_ = false, told_stopped_ = false;
  std::string verdict_;  // the first failure, for ranks that come later
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace ppengine::comm
