// The interface test suite: what every communicator must do. Cases run on all ranks at once; a failed check throws.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/communicator.hpp>

namespace ppengine::comm::suite {

// One rank's place in a case.
struct Place {
  Communicator& comm;
  std::shared_ptr<ops::Device> device;  // null: host memory
  ops::Stream* stream;                  // null with host memory

  int rank() const { return comm.rank(); }
  int size() const { return comm.size(); }
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }
  After after() const { return stream ? After(*stream) : After(); }
};

struct Case {
  std::string name;
  int ranks;   // how many it needs at least
  bool fatal;  // the communicator cannot be used afterwards
  std::function<void(Place&)> body;
};

std::span<const Case> messages();
std::span<const Case> collectives();
std::span<const Case> failures();

[[noreturn]] void fail(const char* condition, int line, const std::string& detail);
// Runs the action, which must throw a CommError; gives it back.
CommError expect_comm_error(const std::function<void()>& action, int line);

// Host memory that the system takes back at once with munmap: who touches it then crashes.
void* map_memory(std::size_t bytes);

// Memory of a place, with its contents on the host.
class Memory {
 public:
  Memory(const Place& place, std::size_t bytes);
  void* data() { return buffer_.data() ? buffer_.data() : host_.data(); }
  // Fills it through the stream, so that what follows on the stream comes after.
  void fill(const std::vector<std::uint8_t>& contents);
  std::vector<std::uint8_t> read();
  ops::Buffer& block() { return buffer_; }  // for places with a device

 private:
  const Place& place_;
  ops::Buffer buffer_;
  std::vector<std::uint8_t> host_;
};

std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed);

}  // namespace ppengine::comm::suite

#define SUITE_CHECK(condition, detail) ((condition) ? void(0) : ::ppengine::comm::suite::fail(#condition, __LINE__, detail))
