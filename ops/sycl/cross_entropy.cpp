// Cross entropy fused with softmax: our kernel serves every device (oneDNN has none).
#include <ppengine/ops/cross_entropy.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

class SyclCrossEntropy final : public CrossEntropy {
 public:
  SyclCrossEntropy(Device& device, const CrossEntropySpec& spec)
      : spec_(spec),
        rows_(split_team_rows(device, spec.rows, spec.classes)),
        kernel_(typed_kernel(device, "loss", "cross_entropy", spec.type, rows_.wide)) {}

  void forward(Stream& stream, const void* logits, const int32_t* targets, float* losses) override {
    launch(stream, logits, targets, 0.0f, losses, nullptr);
  }

  void forward_backward(Stream& stream, const void* logits, const int32_t* targets, float weight, float* losses, void* diff) override {
    launch(stream, logits, targets, weight, losses, diff);
  }

 private:
  void launch(Stream& stream, const void* logits, const int32_t* targets, float weight, float* losses, void* diff) {
    kernel_.launch(stream, rows_.groups, rows_.size, logits, targets, weight, losses, diff, spec_.rows, spec_.classes, rows_.chunk);
  }

  CrossEntropySpec spec_;
  TeamSplit rows_;
  const Kernel& kernel_;
};

class SyclSplitCrossEntropy final : public SplitCrossEntropy {
 public:
  SyclSplitCrossEntropy(Device& device, const SplitCrossEntropySpec& spec)
      : SplitCrossEntropy(spec.rows),
        spec_(spec),
        rows_(split_team_rows(device, spec.rows, spec.classes)),
        part_(typed_kernel(device, "loss", "cross_entropy_part", spec.type, rows_.wide)),
        join_(typed_kernel(device, "loss", "cross_entropy_join", spec.type, rows_.wide)) {}

  void part(Stream& stream, const void* logits, const int32_t* targets, float* mine) override {
    part_.launch(stream, rows_.groups, rows_.size, logits, targets, mine, spec_.rows, spec_.classes, spec_.first_class, rows_.chunk);
  }

  void join(Stream& stream, const void* logits, const int32_t* targets, const float* all, float weight, float* losses,
            void* diff) override {
    join_.launch(stream, rows_.groups, rows_.size, logits, targets, all, spec_.ranks, weight, losses, diff, spec_.rows, spec_.classes,
                 spec_.first_class, spec_.all_classes, rows_.chunk);
  }

 private:
  SplitCrossEntropySpec spec_;
  TeamSplit rows_;
  const Kernel &part_, &join_;
};

}  // namespace

std::unique_ptr<SplitCrossEntropy> SplitCrossEntropy::make(Device& device, const SplitCrossEntropySpec& spec) {
  if (spec.rows < 0 || spec.classes <= 0 || spec.first_class < 0 || spec.first_class + spec.classes > spec.all_classes || spec.ranks < 1)
    throw ConfigError(fmt::format("cross entropy: {} rows with classes {} to {} of {} are not possible", spec.rows, spec.first_class,
                                  spec.first_class + spec.classes, spec.all_classes));
  if (spec.type == Type::i32) throw ConfigError("cross entropy: only f32 and bf16");
  return std::make_unique<SyclSplitCrossEntropy>(device, spec);
}

std::unique_ptr<CrossEntropy> CrossEntropy::make(Device& device, const CrossEntropySpec& spec) {
  if (spec.rows < 0 || spec.classes <= 0)
    throw ConfigError(fmt::format("cross entropy: a shape of [{},{}] is not possible", spec.rows, spec.classes));
  if (spec.type == Type::i32) throw ConfigError("cross entropy: only f32 and bf16");
  return std::make_unique<SyclCrossEntropy>(device, spec);
}

}  // namespace ppengine::ops
