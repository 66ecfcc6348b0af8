// What moves memory between ranks that are threads: streams for copies on a device, a worker thread per rank for the rest.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <ppengine/comm/local.hpp>

namespace ppengine::comm::local {

// Copies that start when two events are reached. Each goes to a stream that is idle, so that none waits behind another whose
// sender is still computing.
class CopyStreams {
 public:
  explicit CopyStreams(std::shared_ptr<ops::Device> device) : device_(std::move(device)) {}
  ops::Event copy(void* dst, const void* src, std::size_t bytes, const ops::Event& first, const ops::Event& second);

 private:
  static constexpr std::size_t max_streams = 16;
  struct Lane {
    ops::Stream stream;
    ops::Event last;
  };
  std::shared_ptr<ops::Device> device_;
  std::mutex mutex_;
  std::vector<Lane> lanes_;
  std::size_t next_ = 0;
};

// A thread that carries out jobs in order. Started by its first job; the destructor finishes what is queued.
class Worker {
 public:
  ~Worker();
  void add(std::function<void()> job);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::thread thread_;
};

// Everything that belongs to one rank of the whole run.
struct Mover {
  std::shared_ptr<ops::Device> device;  // null: host memory
  std::unique_ptr<CopyStreams> copies;
  Worker worker;
  Clock::time_point link_free{};  // touched by the worker only

  bool host_accessible() const;
  // Between this rank's memory and the host, blocking. For devices whose memory the host cannot touch.
  void fetch(void* host, const void* src, std::size_t bytes);
  void store(void* dst, const void* host, std::size_t bytes);
  // Sleeps as long as the simulated link would take.
  void pass_link(const SimulatedLink& link, std::size_t bytes, int messages = 1);
};

}  // namespace ppengine::comm::local
