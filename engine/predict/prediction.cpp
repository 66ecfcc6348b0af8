// Predicting a training step.
#include <ppengine/engine/predict/prediction.hpp>

#include <algorithm>

namespace ppengine::engine {
namespace {

constexpr double adamw_bytes = 28;  // of an element: weight, gradient and both moments are read, all but the gradient written
constexpr double bucket_bytes = 25e6;

}  // namespace

schedules::Costs Prediction::costs_in_milliseconds() const {
  schedules::Costs scaled = costs;
  for (auto& stage : scaled.stages) stage.forward *= 1e3, stage.backward_input *= 1e3, stage.backward_weight *= 1e3;
  scaled.latency *= 1e3;
  scaled.bandwidth /= 1e3;
  return scaled;
}

Prediction predict(const Graph& graph, const std::vector<StageCut>& stages, const schedules::Plan& plan, const DeviceModel& device,
                   const PredictionOptions& options) {
  const bool narrow = options.type == "bf16" || options.type == "f16";
  const WorkOptions counting{
      .batch = options.batch, .length = options.length, .type_bytes = narrow ? 2 : 4, .accumulates = plan.microbatches > 1};
  Prediction result;
  result.costs.stages.clear();
  std::vector<double> parameters(static_cast<std::size_t>(plan.ranks)), weights(parameters), backward(parameters);
  double message = 0;
  for (int s = 0; s < plan.stages; ++s) {
    const StageWork work = count_work(graph, stages[static_cast<std::size_t>(s)], counting);
    const auto sum = [&](const std::vector<Work>& all) {
      double total = 0;
      for (const Work& one : all) {
        const double seconds = device.seconds(one, options.type, options.tensor);
        total += seconds;
        result.by_kind[one.kind] += seconds * plan.microbatches;
        result.flops += one.flops * plan.microbatches * options.data * options.tensor;
      }
      return total;
    };
    schedules::StageCosts costs;
    costs.forward = sum(work.forward);
    costs.backward_input = sum(work.backward_input);
    costs.backward_weight = sum(work.backward_weight);
    result.costs.stages.push_back(costs);
    const auto rank = static_cast<std::size_t>(plan.rank_of(s));
    parameters[rank] += work.parameters;
    weights[rank] += work.weight_bytes;
    backward[rank] += costs.backward_input + costs.backward_weight;
    message = std::max(message, work.bytes_out);
  }
  if (plan.ranks > 1) {
    result.costs.latency = device.latency;
    result.costs.bandwidth = device.link;
    result.costs.message_bytes = message;
  }
  const schedules::Simulation simulation = schedules::simulate(plan, result.costs);
  result.pipeline = simulation.makespan;
  result.idle_share = simulation.idle_share();
  for (std::size_t rank = 0; rank < parameters.size(); ++rank) {
    // Buckets are reduced beside the last microbatch's backward; the last bucket has nothing left to hide behind.
    const double gradient_bytes = parameters[rank] * 4, all = device.reduce_seconds(gradient_bytes, options.data);
    const double last = all * std::min(1.0, bucket_bytes / std::max(gradient_bytes, 1.0));
    result.reduction = std::max(result.reduction, std::max(last, all - backward[rank]));
    const double mine = parameters[rank] / (options.sharded ? options.data : 1);
    result.optimizer = std::max(
        result.optimizer, device.optimizer > 0 ? mine / device.optimizer
                                               : mine * (adamw_bytes + (narrow ? 2 : 0)) / (device.bandwidth * device.memory_reached));
    result.weight_bytes = std::max(result.weight_bytes, weights[rank]);
  }
  return result;
}

}  // namespace ppengine::engine
