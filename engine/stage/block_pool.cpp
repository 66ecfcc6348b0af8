// Blocks of memory for what lives from one action of a plan to another.
#include <ppengine/engine/stage/block_pool.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

void BlockBytes::include(const BlockBytes& other) {
  own = std::max(own, other.own);
  in = std::max(in, other.in);
  out = std::max(out, other.out);
}

BlockPool::BlockPool(const std::shared_ptr<ops::Device>& device, const BlockBytes& bytes, int blocks, ops::MemoryCounter* counter)
    : bytes_(bytes) {
  for (int i = 0; i < blocks; ++i) {
    blocks_.push_back(
        {ops::Buffer(device, bytes.own, counter), ops::Buffer(device, bytes.in, counter), ops::Buffer(device, bytes.out, counter)});
    free_.push_back({i, {}});
  }
}

int BlockPool::acquire() {
  PPENGINE_ASSERT(!free_.empty());  // the plan was counted wrongly
  Free next = std::move(free_.front());
  free_.pop_front();
  next.busy.wait();
  return next.block;
}

void BlockPool::release(int block, comm::Pending busy) { free_.push_back({block, std::move(busy)}); }

void BlockPool::wait() {
  for (Free& one : free_) one.busy.wait();
}

}  // namespace ppengine::engine
