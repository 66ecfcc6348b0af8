// How long a training step takes on a device that may not be there: counted work over the device's figures, laid out in time by the
// same simulation that draws plans.
#pragma once

#include <map>
#include <string>

#include <ppengine/engine/predict/device_model.hpp>
#include <ppengine/schedules/simulate.hpp>

namespace ppengine::engine {

struct PredictionOptions {
  std::int64_t batch = 1, length = 1;  // sequences of a microbatch, tokens of a sequence
  int data = 1, tensor = 1;            // ranks beside those of the plan
  bool sharded = false;                // optimizer state and its work are divided over the data-parallel ranks
  std::string type = "f32";            // of products: f32, tf32, bf16, f16
};

struct Prediction {
  schedules::Costs costs;                 // of the plan's actions, in seconds
  double pipeline = 0;                    // seconds of the plan
  double reduction = 0;                   // of gradients over data-parallel ranks, as far as nothing hides it
  double optimizer = 0;                   // of the slowest rank
  double idle_share = 0;                  // of the plan, all ranks
  double flops = 0;                       // of a step, all ranks together
  double weight_bytes = 0;                // of the rank with the most
  std::map<std::string, double> by_kind;  // seconds of all ranks of the plan, as profiles count them
  double step() const { return pipeline + reduction + optimizer; }
  schedules::Costs costs_in_milliseconds() const;
};

// graph: one tensor-parallel rank's (shard_graph). The plan decides which rank has which stage.
Prediction predict(const Graph& graph, const std::vector<StageCut>& stages, const schedules::Plan& plan, const DeviceModel& device,
                   const PredictionOptions& options);

}  // namespace ppengine::engine
