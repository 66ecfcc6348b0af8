// Merging an adapter into the weights of a model folder.
#include <fmt/core.h>

#include <bit>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>

namespace ppengine::models {
namespace {

namespace fs = std::filesystem;

// Round to nearest, ties to even; subnormals and overflow as IEEE has them.
std::uint16_t f16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal: an addition of 0.5 aligns and rounds the mantissa
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

// Values in the type that the tensor has in its file.
std::vector<std::byte> narrowed(const std::vector<float>& values, const StoredTensor& like) {
  std::vector<std::byte> bytes(values.size() * stored_type_size(like.type));
  if (like.type == StoredType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else if (like.type == StoredType::bf16) {
    StoredTensor wide = like;
    wide.type = StoredType::f32;
    wide.data = reinterpret_cast<const std::byte*>(values.data());
    wide.bytes = values.size() * sizeof(float);
    std::vector<std::uint16_t> halves(values.size());
    read_bf16(wide, 0, values.size(), halves.data());
    std::memcpy(bytes.data(), halves.data(), bytes.size());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half = f16_from_f32(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, sizeof half);
    }
  }
  return bytes;
}

}  // namespace

void merge_adapter(const fs::path& model, const fs::path& adapter_folder, const fs::path& out) {
  const ModelConfig config = load_config(model);
  const auto graph = build_graph(config);
  const Adapter adapter = Adapter::open(adapter_folder);
  adapter.check(*graph);
  if (fs::exists(out) && !fs::is_directory(out)) throw FileError(fmt::format("{}: is a file: --out wants a folder", out.string()));
  if (fs::exists(out) && (fs::equivalent(out, model) || fs::equivalent(out, adapter_folder)))
    throw ConfigError(fmt::format("--out {}: is what is merged; name another folder", out.string()));
  fs::create_directories(out);
  const WeightFiles files = WeightFiles::open(model);
  std::vector<TensorSpec> tensors;
  for (const StoredTensor& tensor : files.tensors()) tensors.push_back({tensor.name, tensor.type, tensor.shape});
  auto writer = SafetensorsWriter::create(out, SafetensorsLayout(tensors));
  std::size_t merged = 0;
  for (const StoredTensor& tensor : files.tensors()) {
    engine::ParameterId id = graph->find_parameter(tensor.name);
    for (const char* prefix : {"transformer.", "model.", "gpt_neox."})  // files of the model without its head leave it out
      if (!id) id = graph->find_parameter(prefix + tensor.name);
    if (!id || !adapter.changes(graph->parameters()[id].name)) {
      writer.write(tensor.name, 0, tensor.data, tensor.bytes);
      continue;
    }
    std::vector<float> values(tensor.elements);
    read_f32(tensor, 0, tensor.elements, values.data());
    adapter.add_to(graph->parameters()[id], values);
    const auto bytes = narrowed(values, tensor);
    writer.write(tensor.name, 0, bytes.data(), bytes.size());
    ++merged;
  }
  if (merged != adapter.options().targets.size())
    throw FileError(fmt::format("{}: {} of the adapter's {} modules are in the model's files", adapter_folder.string(), merged,
                                adapter.options().targets.size()));
  writer.commit();
  for (const auto& entry : fs::directory_iterator(model)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = entry.is_regular_file() &&
                        (name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model") || name.ends_with(".jinja"));
    if (wanted && !name.ends_with(".index.json") && name != "trainer_state.json" && name != adapter_config_file)
      fs::copy_file(entry.path(), out / name, fs::copy_options::overwrite_existing);
  }
}

}  // namespace ppengine::models
