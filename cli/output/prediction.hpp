// A predicted training step: the flags of `plan`, and how predictions are printed.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>

#include <ppengine/engine/predict/prediction.hpp>

namespace ppengine::cli {

// A prediction with what it is for.
struct PredictedStep {
  engine::Prediction prediction;
  engine::DeviceModel device;
  std::string model, type;
  double tokens = 0;  // of a step
  int ranks = 1;      // all of them
  std::string text() const;
  nlohmann::json json() const;
};

// `plan --model M --on DEVICE`.
struct PredictionFlags {
  std::string model, device, type;
  std::int64_t microbatch_size = 1, length = 0;
  int data = 1, tensor = 1;
  bool shard = false;

  void add(CLI::App& command);
  bool wanted() const { return !device.empty(); }
  PredictedStep predict(const schedules::Plan& plan) const;
};

}  // namespace ppengine::cli
