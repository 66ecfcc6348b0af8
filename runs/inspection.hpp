// What a model is made of and what it needs, known before anything is loaded: from its configuration and the headers of its files.
#pragma once

#include <string>
#include <vector>

#include <ppengine/engine/parallel.hpp>
#include <ppengine/models/source.hpp>

namespace ppengine::runs {

struct InspectedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string type;  // as stored; empty where there are no files (presets)
  std::int64_t elements = 0;
  std::vector<int> stages;  // that use it: more than one for a tied weight
};

struct InspectedStage {
  int rank = 0;
  std::string first_module, last_module;
  std::int64_t parameters = 0;
};

// A rank of the pipeline; its data- and tensor-parallel copies need the same. Bytes. What depends on the kernels (workspace, attention's
// own memory) is not in it: activations are an estimate.
struct InspectedRank {
  std::vector<int> stages;
  std::int64_t parameters = 0;                                              // that it computes with: its tensor-parallel part
  std::int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0;  // training with AdamW
  std::int64_t inference_weights = 0, cache = 0;                            // cache: keys and values of one full sequence
  std::int64_t training() const { return weights + gradients + optimizer + activations; }
  std::int64_t inference() const { return inference_weights + cache; }
};

struct Inspection {
  std::string family;
  std::int64_t parameters = 0, stored_bytes = 0, sequence_length = 0;
  std::vector<InspectedParameter> list;
  std::vector<InspectedStage> stages;
  std::vector<InspectedRank> ranks;
};

struct InspectionOptions {
  engine::ParallelOptions parallel;
  std::int64_t microbatch_size = 1;  // sequences
  std::int64_t sequence_length = 0;  // 0: the model's
};

// Where the folder has weights, they must fit the configuration: FileError otherwise. A folder with config.json only is fine.
Inspection inspect_model(const std::string& folder_or_preset, const InspectionOptions& options);

}  // namespace ppengine::runs
