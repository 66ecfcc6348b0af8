// Communication hooks: what is done with a bucket of gradients when it is full. The built-in ones sum it over the data-parallel ranks, as
// it is or in fewer bits; a program can bring its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/ops/device/memory.hpp>

namespace ppengine::engine {

// A full bucket. Its gradients are weighted such that their plain sum over ranks is the gradient of the whole batch.
struct GradientBucket {
  StageId stage = {};
  std::size_t index = 0;
  bool last = false;           // of its stage
  float* data = nullptr;       // this rank's gradients; not sharded: the result goes here too
  std::size_t count = 0;       // elements, with what alignment adds
  float* part = nullptr;       // sharded: this rank's part of the result goes here; otherwise null
  std::size_t part_count = 0;  // count / ranks
  struct Gradient {
    const ParameterInfo* parameter;
    ops::Shape shape;    // as it is stored: transposed against the file or not
    std::size_t offset;  // in data
  };
  std::vector<Gradient> gradients;
};

struct HookContext {
  comm::Communicator& data;  // the ranks to sum over; nobody else uses it
  ops::Stream& stream;       // this thread's; empty
  ops::MemoryCounter& memory;
};

// One per model and rank. Called on a thread of its own, bucket by bucket, in the same order on all ranks and in every step.
class GradientHook {
 public:
  virtual ~GradientHook() = default;
  virtual const char* name() const = 0;
  // ConfigError where it cannot work with parts (sharded) or whole buckets. Called once, before the first step.
  virtual void check(bool /*sharded*/) const {}
  // Whether it sums each element for itself, and zeros to zero: then what is zero on all ranks (most rows of an embedding's gradient) is
  // left out of buckets, whose sizes change from step to step.
  virtual bool elementwise() const { return false; }
  // Blocks until the result is in place.
  virtual void reduce(const GradientBucket& bucket, HookContext& context) = 0;
};

struct HookOptions {
  std::string name = "allreduce";  // allreduce | bf16 | fp16 | powersgd | none
  int rank = 4;                    // powersgd: columns of the factors
  int warmup = 2;                  // powersgd: steps that are summed as they are
  std::uint64_t seed = 0;          // powersgd: of the first factors; the same on all ranks
};
std::vector<std::string> hook_names();
// ConfigError for an unknown name.
std::shared_ptr<GradientHook> make_hook(const HookOptions& options);

// The plain sum, for hooks to build upon: in place, or this rank's part of it.
void sum_bucket(const GradientBucket& bucket, HookContext& context);

}  // namespace ppengine::engine
