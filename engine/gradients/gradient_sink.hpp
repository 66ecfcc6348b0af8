// GradientSink: hears when gradients are final, in the last weight gradient that a stage computes in a step.
#pragma once

#include <span>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::engine {

class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Nothing submitted to the stream from now on writes these gradients or reads these parameters.
  virtual void final_gradients(StageId stage, std::span<const ParameterId> parameters, ops::Stream& stream) = 0;
  // REDUCE_GRAD: all of the stage's gradients are.
  virtual void stage_done(StageId stage) = 0;
  // Blocks until the sink reads the stage's gradients no more. Throws what went wrong on the way.
  virtual void wait_reduced(StageId stage) = 0;
};

}  // namespace ppengine::engine
