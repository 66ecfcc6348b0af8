// Weights of a model folder into a rank's stages. Each rank reads only the bytes of its own stages.
#pragma once

#include <ppengine/engine/model_rank.hpp>
#include <ppengine/models/config.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/models/source.hpp>

namespace ppengine::models {

// FileError naming file and tensor for anything that does not fit the configuration.
// Low-rank terms of the graph (engine/graph/lora.hpp) come from the adapter; without one they stay as they are. An adapter for a graph
// without such terms is added to the weights.
void load_weights(engine::ModelRank& model, ops::Stream& stream, const ModelConfig& config, const WeightFiles& files,
                  const Adapter* adapter = nullptr);
// The low-rank terms alone.
void load_adapter(engine::ModelRank& model, ops::Stream& stream, const Adapter& adapter);
// The terms of several adapters side by side (engine::add_adapters), in the same order.
void load_adapters(engine::ModelRank& model, ops::Stream& stream, std::span<const Adapter> adapters);
// From the source's folder, with its adapter.
void load_weights(engine::ModelRank& model, ops::Stream& stream, const ModelSource& source);

}  // namespace ppengine::models
