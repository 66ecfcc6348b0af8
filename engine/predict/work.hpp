// What the nodes of a stage have to do for one microbatch, counted: arithmetic of products, bytes read and written, what tensor-parallel
// ranks exchange. From the graph alone: nothing is compiled and nothing allocated, so that a model of any size can be counted anywhere.
#pragma once

#include <string>
#include <vector>

#include <ppengine/engine/graph/split.hpp>

namespace ppengine::engine {

// One instruction of a compiled stage.
struct Work {
  std::string kind = {};         // as a profile names it: "linear dX"
  double flops = 0;              // of products
  bool attention = false;        // products with a softmax between them
  double rows = 0, columns = 0;  // of the product's result; 0: not a single product
  double bytes = 0;              // read and written
  double exchanged = 0;          // between tensor-parallel ranks: bytes of the value, twice where it is summed
};

struct StageWork {
  std::vector<Work> forward, backward_input, backward_weight;
  double parameters = 0;    // elements that are trained
  double bytes_out = 0;     // of the message to the next stage
  double weight_bytes = 0;  // of all parameters in the compute type
};

struct WorkOptions {
  std::int64_t batch = 1, length = 1;  // of a microbatch
  std::int64_t type_bytes = 4;         // of activations and of the weights that compute uses
  bool accumulates = false;            // gradients of several microbatches add up
};

StageWork count_work(const Graph& graph, const StageCut& stage, const WorkOptions& options);

}  // namespace ppengine::engine
