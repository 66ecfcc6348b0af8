// Blocks of equal size in one buffer.
#include <ppengine/engine/block_pool.hpp>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

BlockPool::BlockPool(std::shared_ptr<ops::Device> device, size_t block_bytes, int blocks, ops::MemoryCounter* counter)
    : buffer_(std::move(device), ops::align_up(block_bytes) * static_cast<size_t>(blocks), counter),
      block_bytes_(ops::align_up(block_bytes)),
      blocks_(blocks) {
  for (int i = 0; i < blocks; ++i) free_.push_back({i, {}});
}

int BlockPool::acquire() {
  PPENGINE_ASSERT(!free_.empty());  // the plan was counted wrongly
  Free next = std::move(free_.front());
  free_.pop_front();
  next.busy.wait();
  return next.block;
}

void BlockPool::release(int block, comm::Pending busy) { free_.push_back({block, std::move(busy)}); }

}  // namespace ppengine::engine
