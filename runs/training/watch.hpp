// Notices about a training run: a loss far above those of the last steps, and a rank that is slower than the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ppengine/engine/trainer.hpp>

namespace ppengine::runs {

class Watch {
 public:
  // Of a step's loss: a text where it jumped.
  std::optional<std::string> loss(const engine::StepResult& step);
  // Seconds of work of all ranks in the last steps: a text where one took much longer than most.
  static std::optional<std::string> ranks(const std::vector<double>& seconds, std::int64_t step);

 private:
  std::vector<double> recent_;
};

}  // namespace ppengine::runs
