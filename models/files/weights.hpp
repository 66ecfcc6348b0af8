// Weights of a model folder into a rank's stages. Each rank reads only the bytes of its own stages.
#pragma once

#include <ppengine/engine/model_rank.hpp>
#include <ppengine/models/config.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

// FileError naming file and tensor for anything that does not fit the configuration.
void load_weights(engine::ModelRank& model, ops::Stream& stream, const ModelConfig& config, const WeightFiles& files);

}  // namespace ppengine::models
