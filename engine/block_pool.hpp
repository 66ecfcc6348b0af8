// Blocks of equal size in one buffer, as many as a plan ever needs at once; a block may be lent while a message still reads it.
#pragma once

#include <deque>

#include <ppengine/comm/pending.hpp>
#include <ppengine/ops/memory.hpp>

namespace ppengine::engine {

class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(std::shared_ptr<ops::Device> device, size_t block_bytes, int blocks, ops::MemoryCounter* counter);

  // The block that was given back longest ago. Waits (with the communicator's deadline) for messages that still use it.
  int acquire();
  // `busy`: messages that still read the block.
  void release(int block, comm::Pending busy = {});
  std::byte* at(int block) const { return buffer_.at(static_cast<size_t>(block) * block_bytes_); }
  int blocks() const { return blocks_; }
  size_t bytes() const { return buffer_.bytes(); }

 private:
  struct Free {
    int block;
    comm::Pending busy;
  };
  ops::Buffer buffer_;
  size_t block_bytes_ = 0;
  int blocks_ = 0;
  std::deque<Free> free_;
};

}  // namespace ppengine::engine
