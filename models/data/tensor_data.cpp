// Samples for programs.
#include <ppengine/models/data/tensor_data.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/stored.hpp>

namespace ppengine::models {

namespace fs = std::filesystem;

TensorData::TensorData(const std::string& path) : path_(path) {
  std::vector<fs::path> list;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".safetensors") list.push_back(entry.path());
    std::ranges::sort(list);
    if (list.empty()) throw FileError(fmt::format("{}: holds no .safetensors files", path));
  } else {
    if (!path.ends_with(".safetensors"))
      throw ConfigError(fmt::format(
          "--data {}: a program reads FILE.safetensors or a folder of them, a tensor for each of its inputs and 'targets'", path));
    list.emplace_back(path);
  }
  for (const fs::path& file : list) {
    files_.push_back(std::make_unique<SafetensorsFile>(file));
    Part part{samples_, 0, {}};
    bool first = true;
    for (const StoredTensor& tensor : files_.back()->tensors()) {
      if (tensor.shape.empty())
        throw FileError(fmt::format("{}: tensor '{}' is a scalar: the first dimension counts samples", file.string(), tensor.name));
      const auto count = static_cast<std::uint64_t>(tensor.shape[0]);
      if (!first && count != part.count)
        throw FileError(fmt::format("{}: tensor '{}' has {} samples, others {}", file.string(), tensor.name, count, part.count));
      part.count = count;
      first = false;
      const std::vector<std::int64_t> shape(tensor.shape.begin() + 1, tensor.shape.end());
      const auto [known, fresh] = sizes_.try_emplace(tensor.name, shape);
      if (!fresh && known->second != shape)
        throw FileError(fmt::format("{}: samples of tensor '{}' are [{}], in the files before [{}]: one size for all is supported",
                                    file.string(), tensor.name, fmt::join(shape, ","), fmt::join(known->second, ",")));
      part.tensors[tensor.name] = &tensor;
    }
    samples_ += part.count;
    parts_.push_back(std::move(part));
  }
  if (samples_ == 0) throw FileError(fmt::format("{}: holds no samples", path));
}

engine::Batch TensorData::read(const engine::Graph& graph, std::span<const std::uint64_t> samples) const {
  engine::Batch batch;
  batch.sequences = static_cast<std::int64_t>(samples.size());
  batch.length = 1;
  for (const engine::ValueInfo& value : graph.values()) {
    if (value.producer) continue;
    const bool integers = value.kind == engine::ValueKind::tokens;
    const auto width = static_cast<std::size_t>(value.width);
    engine::BatchInput input;
    input.name = value.name;
    if (integers)
      input.tokens.resize(samples.size() * width);
    else
      input.values.resize(samples.size() * width);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto part = std::ranges::find_if(parts_, [&](const Part& one) { return samples[i] < one.first + one.count; });
      const auto found = part->tensors.find(value.name);
      if (found == part->tensors.end())
        throw FileError(fmt::format("{}: there is no tensor '{}', which the program reads; there are: {}", path_, value.name,
                                    fmt::join(
                                        [&] {
                                          std::vector<std::string> names;
                                          for (const auto& [name, shape] : sizes_) names.push_back(name);
                                          return names;
                                        }(),
                                        ", ")));
      const StoredTensor& tensor = *found->second;
      if (tensor.elements != part->count * width)
        throw FileError(fmt::format("{}: a sample of tensor '{}' has {} elements, the program reads {}", tensor.file, tensor.name,
                                    tensor.elements / part->count, width));
      const std::size_t first = (samples[i] - part->first) * width;
      if (integers)
        read_integers(tensor, first, width, input.tokens.data() + i * width);
      else
        read_floats(tensor, first, width, input.values.data() + i * width);
    }
    batch.inputs.push_back(std::move(input));
  }
  return batch;
}

}  // namespace ppengine::models
