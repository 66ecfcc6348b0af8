// What training chooses: the optimizer, the learning rate over the steps, which gradients are reduced together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <ppengine/ops/device/type.hpp>

namespace ppengine::engine {

// muon: Muon for the matrices of hidden layers, AdamW for all others.
enum class OptimizerKind { adamw, sgd, muon, adafactor };
OptimizerKind parse_optimizer(std::string_view name);  // adamw | sgd | muon | adafactor; ConfigError otherwise
const char* name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double momentum = 0.0;  // sgd
  double muon_momentum = 0.95;
  double weight_decay = 0.01;             // adamw: decoupled; sgd: L2
  bool decay_1d = true;                   // false: norms and biases are spared
  ops::Type state_type = ops::Type::f32;  // bf16: AdamW's moments take half the memory, and are rounded at random without bias
};

enum class LrShape { constant, cosine, wsd };
LrShape parse_lr_schedule(std::string_view name);  // constant | cosine | wsd

struct LrSchedule {
  LrShape shape = LrShape::constant;
  double peak = 1e-3;
  std::int64_t warmup = 0;  // steps; the k-th of them (from 1) runs at peak * k / warmup
  std::int64_t steps = 0;   // of the run. cosine: falls from peak after the warm-up towards the minimum at its end
  std::int64_t decay = 0;   // wsd: of these the last, in which it falls in a straight line, to reach the minimum with the last one
  double minimum = 0;       // cosine and wsd: it never falls below this
  double at(std::int64_t step) const;  // of step number `step`, from 1
};

// Of the gradients that travel together.
struct BucketOptions {
  std::vector<std::size_t> caps;  // bytes; empty: 1 MiB for the first bucket, so that communication starts early, then 25 MiB
  std::vector<std::size_t> effective() const { return caps.empty() ? std::vector<std::size_t>{1u << 20, 25u << 20} : caps; }
};

}  // namespace ppengine::engine
