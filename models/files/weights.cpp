// Weights of a model folder into a rank's stages.
#include <ppengine/models/files/weights.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/parameters.hpp>

namespace ppengine::models {

namespace {

constexpr std::string_view term_b = ".lora_B.weight";

void load_term(engine::ParameterStore& parameters, ops::Stream& stream, const engine::ParameterRange& range,
               const engine::ParameterInfo& info, const Adapter& adapter) {
  const StoredTensor* const tensor = adapter.find(info.name);
  const auto elements = static_cast<std::size_t>(info.whole_shape().count());
  PPENGINE_ASSERT(tensor && tensor->elements == elements);
  std::vector<float> host(elements);
  read_f32(*tensor, 0, elements, host.data());
  parameters.load(stream, range, host);
}

// Some rows at a time: what has been read is let go of before the next are, so that a large table is not there twice.
void load_rows(engine::ParameterStore& parameters, ops::Stream& stream, const engine::ParameterRange& range, const StoredTensor& tensor,
               std::vector<float>& host) {
  constexpr std::int64_t at_once = 1 << 21;  // elements
  const std::int64_t width = tensor.shape[1], rows = std::max<std::int64_t>(1, at_once / std::max<std::int64_t>(width, 1));
  const std::size_t size = stored_type_size(tensor.type);
  const bool straight = tensor.type == StoredType::f32 && reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(float) == 0;
  for (std::int64_t first = 0; first < tensor.shape[0]; first += rows) {
    const auto begin = static_cast<std::size_t>(first * width),
               count = static_cast<std::size_t>(std::min(rows, tensor.shape[0] - first) * width);
    if (!straight) {
      host.resize(std::max(host.size(), count));
      read_f32(tensor, begin, count, host.data());
    }
    const float* const from = straight ? reinterpret_cast<const float*>(tensor.data) + begin : host.data();
    parameters.load_rows(stream, range, first, {from, count});
    release_mapped(tensor.data + begin * size, count * size);
  }
}

}  // namespace

void load_adapter(engine::ModelRank& model, ops::Stream& stream, const Adapter& adapter) {
  for (engine::StageId stage : model.stages()) {
    engine::ParameterStore& parameters = model.parameters(stage);
    for (const engine::ParameterRange& range : parameters.ranges()) {
      const engine::ParameterInfo& info = model.graph().parameters()[range.id];
      if (is_adapter_parameter(info.name)) load_term(parameters, stream, range, info, adapter);
    }
    parameters.refresh(stream);
  }
  stream.wait();
}

void load_adapters(engine::ModelRank& model, ops::Stream& stream, std::span<const Adapter> adapters) {
  std::vector<float> host, one;
  for (engine::StageId stage : model.stages()) {
    engine::ParameterStore& parameters = model.parameters(stage);
    for (const engine::ParameterRange& range : parameters.ranges()) {
      const engine::ParameterInfo& info = model.graph().parameters()[range.id];
      if (!is_adapter_parameter(info.name)) continue;
      const auto& shape = info.whole_shape();
      host.assign(static_cast<std::size_t>(shape.count()), 0.0f);
      const auto width = static_cast<std::size_t>(shape[1]);
      std::size_t done = 0;  // rows of A, columns of B
      for (const Adapter& adapter : adapters) {
        const StoredTensor* const tensor = adapter.find(info.name);
        if (!tensor) continue;
        one.resize(tensor->elements);
        read_f32(*tensor, 0, tensor->elements, one.data());
        if (info.name.ends_with(".lora_A.weight")) {
          std::ranges::copy(one, host.begin() + static_cast<std::ptrdiff_t>(done * width));
          done += static_cast<std::size_t>(tensor->shape[0]);
          continue;
        }
        const auto rank = static_cast<std::size_t>(tensor->shape[1]), rows = static_cast<std::size_t>(tensor->shape[0]);
        const auto scale = static_cast<float>(adapter.options().scale(info.name.substr(0, info.name.size() - term_b.size())));
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t k = 0; k < rank; ++k) host[row * width + done + k] = scale * one[row * rank + k];
        done += rank;
      }
      parameters.load(stream, range, host);
    }
    parameters.refresh(stream);
  }
  stream.wait();
}

void load_weights(engine::ModelRank& model, ops::Stream& stream, const ModelSource& source) {
  PPENGINE_ASSERT(source.folder);
  if (source.adapter.empty()) return load_weights(model, stream, source.config, WeightFiles::open(*source.folder));
  const Adapter adapter = Adapter::open(source.adapter);
  load_weights(model, stream, source.config, WeightFiles::open(*source.folder), &adapter);
}

void load_weights(engine::ModelRank& model, ops::Stream& stream, const ModelConfig& config, const WeightFiles& files,
                  const Adapter* adapter) {
  const auto& all = model.graph().parameters();
  const bool merges = adapter && std::ranges::none_of(all, is_adapter_parameter, &engine::ParameterInfo::name);
  if (merges) adapter->check(*build_graph(config));
  const auto list = list_parameters(config);
  const auto stored = match_parameters(config, files);
  const Checksums checksums(files.path());
  std::vector<float> host;
  for (engine::StageId stage : model.stages()) {
    engine::ParameterStore& parameters = model.parameters(stage);
    for (const engine::ParameterRange& range : parameters.ranges()) {
      const engine::ParameterInfo& info = model.graph().parameters()[range.id];
      const auto elements = static_cast<std::size_t>(info.whole_shape().count());
      if (is_adapter_parameter(info.name)) {
        if (adapter) load_term(parameters, stream, range, info, *adapter);
        continue;
      }
      const bool changed = merges && adapter->changes(info.name);
      std::size_t index = 0;
      while (index < list.size() && list[index].name != info.name) ++index;
      PPENGINE_ASSERT(index < list.size() && list[index].elements() == static_cast<std::int64_t>(elements));
      const StoredTensor& tensor = *stored[index];
      if (tensor.name.ends_with(".qweight")) {
        const QuantizedWeight quantized = find_quantized(config, files, list[index]).value();
        for (const StoredTensor* part : quantized.tensors()) checksums.verify(*part);
        host.resize(elements);
        quantized.read(list[index].inputs_first, host.data());
        if (changed) adapter->add_to(info, host);
        parameters.load(stream, range, host);
        for (const StoredTensor* part : quantized.tensors()) release_mapped(part->data, part->bytes);
        continue;
      }
      checksums.verify(tensor);
      if (!changed && parameters.loads_rows(stream, range)) {
        load_rows(parameters, stream, range, tensor, host);
        continue;
      }
      const auto* mapped = reinterpret_cast<const float*>(tensor.data);
      if (!changed && tensor.type == StoredType::f32 &&
          reinterpret_cast<std::uintptr_t>(mapped) % alignof(float) == 0) {  // straight from the file
        parameters.load(stream, range, {mapped, elements});
      } else {
        host.resize(elements);
        read_f32(tensor, 0, elements, host.data());
        if (changed) adapter->add_to(info, host);
        parameters.load(stream, range, host);
      }
      release_mapped(tensor.data, tensor.bytes);
    }
    parameters.refresh(stream);
  }
  stream.wait();
}

}  // namespace ppengine::models
