// Notices about a training run: a loss far above those of the last steps.
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

 private:
  std::vector<double> recent_;
};

}  // namespace ppengine::runs
