// Cross entropy: checks and the lists of implementations.
#include <ppengine/ops/cross_entropy.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::unique_ptr<SplitCrossEntropy> SplitCrossEntropy::make(Device& device, const SplitCrossEntropySpec& spec) {
  if (spec.rows < 0 || spec.classes <= 0 || spec.first_class < 0 || spec.first_class + spec.classes > spec.all_classes || spec.ranks < 1)
    throw ConfigError(fmt::format("cross entropy: {} rows with classes {} to {} of {} are not possible", spec.rows, spec.first_class,
                                  spec.first_class + spec.classes, spec.all_classes));
  if (spec.type == Type::i32) throw ConfigError("cross entropy: only f32 and bf16");
  static const std::array list{sycl_split_cross_entropy};
  return make_first<SplitCrossEntropy, SplitCrossEntropySpec>("cross entropy over ranks", list, device, spec);
}

std::unique_ptr<CrossEntropy> CrossEntropy::make(Device& device, const CrossEntropySpec& spec) {
  if (spec.rows < 0 || spec.classes <= 0)
    throw ConfigError(fmt::format("cross entropy: a shape of [{},{}] is not possible", spec.rows, spec.classes));
  if (spec.type == Type::i32) throw ConfigError("cross entropy: only f32 and bf16");
  static const std::array list{sycl_cross_entropy};
  return make_first<CrossEntropy, CrossEntropySpec>("cross entropy", list, device, spec);
}

}  // namespace ppengine::ops
