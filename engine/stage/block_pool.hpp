// Blocks of memory for what lives from one action of a plan to another, as many as a plan ever needs at once.
#pragma once

#include <deque>
#include <vector>

#include <ppengine/comm/pending.hpp>
#include <ppengine/ops/device/memory.hpp>

namespace ppengine::engine {

// What a microbatch needs on a stage. Memory of messages stands alone: it changes hands.
struct Block {
  ops::Buffer own, in, out;
};
struct BlockBytes {
  std::size_t own = 0, in = 0, out = 0;
  void include(const BlockBytes& other);
  bool operator==(const BlockBytes&) const = default;
};

class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const std::shared_ptr<ops::Device>& device, const BlockBytes& bytes, int blocks, ops::MemoryCounter* counter);

  // The block that was given back longest ago. Waits (with the communicator's deadline) for messages that still use it.
  int acquire();
  // `busy`: messages that still use the block.
  void release(int block, comm::Pending busy = {});
  // Until no message uses a free block.
  void wait();
  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  const BlockBytes& block_bytes() const { return bytes_; }
  std::size_t bytes() const { return (bytes_.own + bytes_.in + bytes_.out) * blocks_.size(); }

 private:
  struct Free {
    int block;
    comm::Pending busy;
  };
  BlockBytes bytes_;
  std::vector<Block> blocks_;
  std::deque<Free> free_;
};

}  // namespace ppengine::engine
