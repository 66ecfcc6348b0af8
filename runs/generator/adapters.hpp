// LoRA adapters by name (--adapter NAME=DIR of generate and serve): several in one batch, of which each sequence has one or none.
#pragma once

#include <string>
#include <vector>

#include <ppengine/engine/parallel.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/source.hpp>

namespace ppengine::runs {

// What --model and --adapter name, which may be given again: DIR is added to the weights and holds for everything, NAME=DIR is for those
// who ask for it. ConfigError, FileError for what does not go together or does not fit the model.
models::ModelSource open_model_with_adapters(const std::string& model, const std::vector<std::string>& adapters);
// ConfigError where ranks compute in a type that named adapters are not made for.
void check_adapters(const models::ModelSource& source, const engine::ParallelOptions& parallel);

// The named ones, opened.
std::vector<models::Adapter> open_adapters(const models::ModelSource& source);
// The model's graph with their terms, where there are any.
engine::AdapterBank graph_with_adapters(const models::ModelSource& source);

}  // namespace ppengine::runs
