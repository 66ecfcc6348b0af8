// The machine behind the stand-in driver: devices with memories apart, streams whose work runs when somebody waits for it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "../ptx/launch.hpp"

namespace ppengine::standin {

// CUresult
enum Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  device_unavailable = 46,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  invalid_ptx = 218,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  launch_failed = 719,
  not_supported = 801
};

// Work in the order of submission.
struct Stream {
  int device = 0;
  std::deque<std::function<void()>> work;
};

struct Event {
  Stream* stream = nullptr;   // where it was recorded last
  std::uint64_t records = 0;  // how often it was recorded, and how many of these were reached
  std::uint64_t reached = 0;
  double milliseconds = 0;
};

struct Device {
  explicit Device(int number) : memory((std::uint64_t(number) + 1) << 40) {}
  ptx::GlobalMemory memory;
  std::map<std::uint64_t, std::size_t> allocations;
  std::size_t used = 0;
  std::vector<std::unique_ptr<Stream>> streams;
  std::uint64_t launches = 0;
  Result error = success;  // once a kernel has failed, everything fails, as with a real driver
};

struct Module {
  ptx::Module code;
};
struct Function {
  const Module* module;
  const ptx::Function* kernel;
};

// From the environment: STANDIN_CUDA_DEVICES (2), STANDIN_CUDA_MEMORY bytes each (1 GiB), STANDIN_CUDA_SEED, STANDIN_CUDA_LOSE=N: the last
// device is lost at its N-th launch.
class Machine {
 public:
  static Machine& get();

  std::mutex mutex;  // held by every function of the driver
  std::vector<Device> devices;
  std::size_t memory_limit;
  std::map<std::uint64_t, std::size_t> pinned;  // host memory that the driver gave
  std::mt19937_64 random;

  int device_of(std::uint64_t address) const;  // -1: host memory
  bool is_pinned(const void* address) const;
  Result allocate(int device, std::size_t bytes, std::uint64_t& address);
  Result release(std::uint64_t address);

  void submit(Stream& stream, std::function<void()> work);
  Result record(Stream& stream, const std::shared_ptr<Event>& event);
  void wait(Stream& stream, const std::shared_ptr<Event>& event);  // the stream's later work waits for it
  void finish(Stream& stream);                                     // runs all of a stream's work, and what that waits for
  void finish_until(Event& event);
  void finish_all(int device);   // its streams in turns, at random
  bool advance(Stream& stream);  // one piece of work; false: there is none

  Result launch(const Function& function, ptx::Launch launch, Stream& stream);
  Result copy(std::uint64_t to, std::uint64_t from, std::size_t bytes, Stream& stream, bool blocking);
  Result fill(std::uint64_t to, std::uint64_t pattern, std::size_t pattern_bytes, std::size_t count, Stream& stream);

 private:
  Machine();
  void fail(int device, Result error, const std::string& why);
  void read(std::uint64_t from, void* to, std::size_t bytes);
  void write(std::uint64_t to, const void* from, std::size_t bytes);
  std::uint64_t lose_at_;
};

}  // namespace ppengine::standin
