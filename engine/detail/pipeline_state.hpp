// What a Pipeline keeps per stage and per microbatch in flight.
#pragma once

#include <map>

#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/stage/plan_memory.hpp>

namespace ppengine::engine {

// One microbatch on one stage, from its first message or forward to its last backward.
struct Pipeline::InFlight {
  int activations = -1, gradients = -1;  // blocks
  comm::Pending received_activation, received_gradient, sent_activation, sent_gradient;
  // SEND_F, SEND_B were posted: until the message is done, the block's memory for it is the communicator's.
  bool activation_sent = false, gradient_sent = false;
  bool weights_done = false;  // B or W has run
};

struct Pipeline::Stage {
  StageId index;
  const StageCut* cut = nullptr;
  ParameterStore* parameters = nullptr;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<CompiledStage>> shapes;  // by (sequences, length) of a microbatch
  std::vector<const CompiledStage*> by_microbatch;
  BlockCount blocks;
  BlockPool activations, gradients;
  ops::Buffer inputs, results;
  size_t input_stride = 0;
  std::vector<InFlight> flights;
  int weight_gradients = 0;  // microbatches whose weight gradient is in
};

}  // namespace ppengine::engine
