// Cross entropy fused with softmax: our kernel serves every device (oneDNN has none).
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

class SyclCrossEntropy final : public CrossEntropy {
 public:
  SyclCrossEntropy(Device& device, const CrossEntropySpec& spec)
      : spec_(spec),
        rows_(split_team_rows(device, spec.rows, spec.classes)),
        kernel_(typed_kernel(device, "loss", "cross_entropy", spec.type, rows_.wide)) {}

  void forward(Stream& stream, const void* logits, const std::int32_t* targets, float* losses) override {
    launch(stream, logits, targets, 0.0f, losses, nullptr);
  }

  void forward_backward(Stream& stream, const void* logits, const std::int32_t* targets, float weight, float* losses, void* diff) override {
    launch(stream, logits, targets, weight, losses, diff);
  }

 private:
  void launch(Stream& stream, const void* logits, const std::int32_t* targets, float weight, float* losses, void* diff) {
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

  void part(Stream& stream, const void* logits, const std::int32_t* targets, float* mine) override {
    part_.launch(stream, rows_.groups, rows_.size, logits, targets, mine, spec_.rows, spec_.classes, spec_.first_class, rows_.chunk);
  }

  void join(Stream& stream, const void* logits, const std::int32_t* targets, const float* all, float weight, float* losses,
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

constexpr Implementation<CrossEntropy, CrossEntropySpec> sycl_cross_entropy{"sycl", takes_all, construct<SyclCrossEntropy>};
constexpr Implementation<SplitCrossEntropy, SplitCrossEntropySpec> sycl_split_cross_entropy{"sycl", takes_all,
                                                                                            construct<SyclSplitCrossEntropy>};

}  // namespace ppengine::ops
