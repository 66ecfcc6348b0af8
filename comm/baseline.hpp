// What lies under a communicator of processes, called without our layer: to measure what the layer costs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ppengine::comm {

// Every call blocks, without a deadline.
class Baseline {
 public:
  virtual ~Baseline() = default;
  virtual std::string name() const = 0;
  virtual void send(const void* data, std::size_t bytes, int peer) = 0;
  virtual void recv(void* data, std::size_t bytes, int peer) = 0;
  virtual void exchange(const void* out, void* in, std::size_t bytes, int peer) = 0;  // both directions at once
  virtual void allreduce(float* data, std::size_t count) = 0;
};

// A communicator that can tell (dynamic_cast).
class HasBaselines {
 public:
  virtual ~HasBaselines();
  // All ranks call it. They must not outlive the communicator.
  virtual std::vector<std::unique_ptr<Baseline>> baselines() = 0;
};

}  // namespace ppengine::comm
