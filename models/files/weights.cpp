// Weights of a model folder into a rank's stages.
#include <ppengine/models/files/weights.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/parameters.hpp>

namespace ppengine::models {

void load_weights(engine::ModelRank& model, ops::Stream& stream, const ModelConfig& config, const WeightFiles& files) {
  const auto list = list_parameters(config);
  const auto stored = match_parameters(config, files);
  const Checksums checksums(files.path());
  std::vector<float> host;
  for (int stage : model.stages()) {
    engine::ParameterStore& parameters = model.parameters(stage);
    for (const engine::ParameterRange& range : parameters.ranges()) {
      const engine::ParameterInfo& info = model.graph().parameters()[static_cast<size_t>(range.id)];
      const auto elements = static_cast<size_t>(info.whole_shape().count());
      size_t index = 0;
      while (index < list.size() && list[index].name != info.name) ++index;
      PPENGINE_ASSERT(index < list.size() && stored[index]->elements == elements);
      const StoredTensor& tensor = *stored[index];
      checksums.verify(tensor);
      const auto* mapped = reinterpret_cast<const float*>(tensor.data);
      if (tensor.type == StoredType::f32 && reinterpret_cast<std::uintptr_t>(mapped) % alignof(float) == 0) {  // straight from the file
        parameters.load(stream, range, {mapped, elements});
      } else {
        host.resize(elements);
        read_f32(tensor, 0, elements, host.data());
        parameters.load(stream, range, host);
      }
      release_mapped(tensor.data, tensor.bytes);
    }
    parameters.refresh(stream);
  }
  stream.wait();
}

}  // namespace ppengine::models
