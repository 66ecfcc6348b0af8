// The built-in hooks but PowerSGD: plain sums, sums in 16 bits, and none.
#include <ppengine/engine/gradients/hooks.hpp>

#include <fmt/ranges.h>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/gradients/hooks_powersgd.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/half.hpp>

namespace ppengine::engine {
namespace {

class Plain final : public GradientHook {
 public:
  const char* name() const override { return "allreduce"; }
  bool elementwise() const override { return true; }
  void reduce(const GradientBucket& bucket, HookContext& context) override { sum_bucket(bucket, context); }
};

// Messages in 16 bits, half as long; each sum is made in f32 and rounded once more. bf16 keeps the range of f32; fp16 has three bits more,
// and what is too large for it becomes infinite.
class Narrow final : public GradientHook {
 public:
  explicit Narrow(comm::Type type) : type_(type) {}
  const char* name() const override { return type_ == comm::Type::f16 ? "fp16" : "bf16"; }
  bool elementwise() const override { return true; }
  void reduce(const GradientBucket& bucket, HookContext& context) override {
    if (type_ == comm::Type::f16 && !half_) half_ = std::make_unique<ops::HalfCasts>(context.stream.device());
    if (memory_.bytes() < bucket.count * type_.size()) {
      memory_ = ops::Buffer();
      memory_ = ops::Buffer(context.stream.device_ptr(), bucket.count * type_.size(), &context.memory);
    }
    void* const all = memory_.data();
    narrow(context.stream, bucket.data, all, bucket.count);
    if (bucket.part) {
      void* const mine = memory_.at(bucket.part_count * type_.size() * static_cast<std::size_t>(context.data.rank()));
      context.data.reduce_scatter(all, mine, bucket.part_count, type_, context.stream).wait();
      widen(context.stream, mine, bucket.part, bucket.part_count);
    } else {
      context.data.allreduce(all, bucket.count, type_, context.stream).wait();
      widen(context.stream, all, bucket.data, bucket.count);
    }
    context.stream.wait();
  }

 private:
  void narrow(ops::Stream& stream, const float* src, void* dst, std::size_t count) const {
    if (half_)
      half_->narrow(stream, src, dst, static_cast<std::int64_t>(count));
    else
      ops::cast(stream, ops::Type::f32, src, ops::Type::bf16, dst, static_cast<std::int64_t>(count));
  }
  void widen(ops::Stream& stream, const void* src, float* dst, std::size_t count) const {
    if (half_)
      half_->widen(stream, src, dst, static_cast<std::int64_t>(count));
    else
      ops::cast(stream, ops::Type::bf16, src, ops::Type::f32, dst, static_cast<std::int64_t>(count));
  }

  const comm::Type type_;
  std::unique_ptr<ops::HalfCasts> half_;
  ops::Buffer memory_;
};

// Every rank keeps its own gradients: for measuring what communication costs.
class None final : public GradientHook {
 public:
  const char* name() const override { return "none"; }
  void reduce(const GradientBucket& bucket, HookContext& context) override {
    if (!bucket.part) return;
    context.stream.copy(bucket.part, bucket.data + bucket.part_count * static_cast<std::size_t>(context.data.rank()),
                        bucket.part_count * sizeof(float));
    context.stream.wait();
  }
};

}  // namespace

void sum_bucket(const GradientBucket& bucket, HookContext& context) {
  if (bucket.part)
    context.data.reduce_scatter(bucket.data, bucket.part, bucket.part_count, ops::Type::f32, context.stream).wait();
  else
    context.data.allreduce(bucket.data, bucket.count, ops::Type::f32, context.stream).wait();
}

std::vector<std::string> hook_names() { return {"allreduce", "bf16", "fp16", "powersgd", "none"}; }

std::shared_ptr<GradientHook> make_hook(const HookOptions& options) {
  if (options.name == "allreduce") return std::make_shared<Plain>();
  if (options.name == "bf16") return std::make_shared<Narrow>(comm::Type::bf16);
  if (options.name == "fp16") return std::make_shared<Narrow>(comm::Type::f16);
  if (options.name == "powersgd") return make_powersgd(options);
  if (options.name == "none") return std::make_shared<None>();
  throw ConfigError(fmt::format("unknown gradient hook '{}': use {}", options.name, fmt::join(hook_names(), ", ")));
}

}  // namespace ppengine::engine
