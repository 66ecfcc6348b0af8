// Summing the gradients of tied weights.
#include <ppengine/engine/gradients/tied_gradients.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

TiedGradients::TiedGradients(ModelRank& model, comm::Communicator& pipeline) : model_(model), pipeline_(pipeline) {
  const auto& parameters = model.graph().parameters();
  std::size_t largest = 0;
  for (ParameterId id : parameters.ids()) {
    Tied tied{id, 0, model.users(id)};
    if (tied.stages.size() < 2 || parameters[id].frozen) continue;
    // Its bucket is its own, and cut into the same parts on every stage.
    for (StageId stage : tied.stages)
      if (model.has_stage(stage)) tied.count = model.parameters(stage).local_count(bucket_of(tied, stage));
    if (tied.count == 0) continue;  // no stage of this rank uses it
    const auto elsewhere = [&](StageId stage) { return !model.has_stage(stage); };
    if (model.has_stage(tied.stages.front()) && std::any_of(tied.stages.begin(), tied.stages.end(), elsewhere))
      largest = std::max(largest, tied.bytes());
    tied_.push_back(std::move(tied));
  }
  if (largest > 0) incoming_ = ops::Buffer(model.device(), largest, &model.memory());
}

void TiedGradients::sum(ops::Stream& stream) {
  for (const Tied& tied : tied_) try {
      if (model_.has_stage(tied.stages.front()))
        sum_here(stream, tied);
      else
        hand_over(stream, tied);
    } catch (const CommError& error) {  // its tag says nothing
      const auto& name = model_.graph().parameters()[tied.parameter].name;
      throw CommError(error.peer(), error.operation() + " of the gradient of " + name, -1, error.reason());
    }
}

const Bucket& TiedGradients::bucket_of(const Tied& tied, StageId stage) const {
  const ParameterStore& parameters = model_.parameters(stage);
  return parameters.bucket_of(*parameters.find(tied.parameter));
}

float* TiedGradients::gradient(const Tied& tied, StageId stage) const {
  const ParameterStore& parameters = model_.parameters(stage);
  return parameters.gradients() + parameters.gradient_begin(bucket_of(tied, stage));
}

void TiedGradients::sum_here(ops::Stream& stream, const Tied& tied) {
  float* const total = gradient(tied, tied.stages.front());
  for (std::size_t k = 1; k < tied.stages.size(); ++k) {
    const StageId stage = tied.stages[k];
    const bool here = model_.has_stage(stage);
    if (!here) pipeline_.recv(incoming_.data(), tied.bytes(), rank_of(stage), tied.tag(), stream).wait();
    ops::add(stream, ops::Type::f32, total, here ? gradient(tied, stage) : incoming_.as<float>(), total,
             static_cast<std::int64_t>(tied.count));
  }
  for (std::size_t k = 1; k < tied.stages.size(); ++k) {
    const StageId stage = tied.stages[k];
    if (model_.has_stage(stage))
      stream.copy(gradient(tied, stage), total, tied.bytes());
    else
      pipeline_.send(total, tied.bytes(), rank_of(stage), tied.tag(), stream).wait();
  }
}

void TiedGradients::hand_over(ops::Stream& stream, const Tied& tied) {
  const int to = rank_of(tied.stages.front());
  const auto each = [&](auto&& move) {
    for (StageId stage : tied.stages)
      if (model_.has_stage(stage)) move(gradient(tied, stage));
  };
  // All that this rank has before the first total: that comes when the gradients of all stages are there.
  each([&](float* own) { pipeline_.send(own, tied.bytes(), to, tied.tag(), stream).wait(); });
  each([&](float* own) { pipeline_.recv(own, tied.bytes(), to, tied.tag(), stream).wait(); });
}

}  // namespace ppengine::engine
