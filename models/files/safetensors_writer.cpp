// Writing safetensors: the layout is computed first, then every byte has its place and ranks write without asking.
#include <ppengine/models/files/safetensors_writer.hpp>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

std::uint64_t tensor_bytes(const TensorSpec& tensor) {
  std::uint64_t bytes = stored_type_size(tensor.type);
  if (bytes == 0) throw ConfigError(fmt::format("tensor '{}' has a type that cannot be written", tensor.name));
  for (std::int64_t extent : tensor.shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes) || bytes > (1ull << 60))
      throw ConfigError(fmt::format("tensor '{}' has an impossible shape", tensor.name));
  return bytes;
}

std::filesystem::path aside(const std::filesystem::path& folder, const std::string& file_name) { return folder / (file_name + ".part"); }

}  // namespace

bool is_shard_of(const std::string& file_name, const std::string& stem) {
  if (file_name == stem + ".safetensors" || file_name == stem + ".safetensors.index.json") return true;
  const std::string end = ".safetensors";
  if (!file_name.starts_with(stem + "-") || !file_name.ends_with(end)) return false;
  const std::string middle = file_name.substr(stem.size() + 1, file_name.size() - stem.size() - 1 - end.size());
  return middle.size() >= 14 && middle.find_first_not_of("0123456789-of") == std::string::npos && middle.find("-of-") != std::string::npos;
}

SafetensorsLayout::SafetensorsLayout(std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes, const std::string& stem,
                                     const std::map<std::string, std::string>& metadata)
    : stem_(stem), tensors_(std::move(tensors)) {
  places_.resize(tensors_.size());
  std::vector<std::uint64_t> shard_bytes(1, 0);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second || tensors_[i].name == "__metadata__")
      throw ConfigError(fmt::format("tensor '{}' cannot be written twice or under this name", tensors_[i].name));
    const std::uint64_t bytes = tensor_bytes(tensors_[i]);
    if (shard_bytes.back() > 0 && shard_bytes.back() + bytes > max_shard_bytes) shard_bytes.push_back(0);
    places_[i] = {shard_bytes.size() - 1, 0, bytes};
    shard_bytes.back() += bytes;
    total_bytes_ += bytes;
  }

  for (std::size_t shard = 0; shard < shard_bytes.size(); ++shard) {
    // Wider types first keeps every tensor aligned to its element, as Hugging Face's writer does it.
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (places_[i].shard == shard) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return stored_type_size(tensors_[a].type) > stored_type_size(tensors_[b].type); });
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::uint64_t offset = 0;
    for (std::size_t i : order) {
      places_[i].offset = offset;  // the header's length is added below
      header[tensors_[i].name] = {{"dtype", stored_type_name(tensors_[i].type)},
                                  {"shape", tensors_[i].shape},
                                  {"data_offsets", {offset, offset + places_[i].bytes}}};
      offset += places_[i].bytes;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    Shard& out = shards_.emplace_back();
    out.file_name =
        shard_bytes.size() == 1 ? stem + ".safetensors" : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, shard_bytes.size());
    out.header.resize(8);
    std::memcpy(out.header.data(), &length, 8);
    out.header += text;
    out.file_bytes = out.header.size() + offset;
    for (std::size_t i : order) places_[i].offset += out.header.size();
  }
}

const SafetensorsLayout::Place& SafetensorsLayout::place(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  if (found == index_.end()) throw ConfigError(fmt::format("tensor '{}' is not in the file's layout", name));
  return places_[found->second];
}

std::string SafetensorsLayout::index_json() const {
  if (shards_.size() == 1) return "";
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total_bytes_;
  auto& map = index["weight_map"];
  for (std::size_t i = 0; i < tensors_.size(); ++i) map[tensors_[i].name] = shards_[places_[i].shard].file_name;
  return index.dump(2) + "\n";
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& folder, SafetensorsLayout layout, RandomAccessFile::Mode mode)
    : folder_(folder), layout_(std::move(layout)) {
  for (const auto& shard : layout_.shards()) files_.emplace_back(aside(folder_, shard.file_name), mode);
}

SafetensorsWriter SafetensorsWriter::create(const std::filesystem::path& folder, SafetensorsLayout layout) {
  SafetensorsWriter writer(folder, std::move(layout), RandomAccessFile::Mode::create);
  for (std::size_t i = 0; i < writer.files_.size(); ++i) {
    const auto& shard = writer.layout_.shards()[i];
    try {
      writer.files_[i].allocate(shard.file_bytes);
    } catch (...) {  // a full disk: leave nothing behind
      std::error_code ignored;
      for (const auto& file : writer.files_) std::filesystem::remove(file.path(), ignored);
      throw;
    }
    writer.files_[i].write_at(0, shard.header.data(), shard.header.size());
  }
  return writer;
}

SafetensorsWriter SafetensorsWriter::open(const std::filesystem::path& folder, SafetensorsLayout layout) {
  return SafetensorsWriter(folder, std::move(layout), RandomAccessFile::Mode::update);
}

void SafetensorsWriter::write(std::string_view name, std::uint64_t offset, const void* data, std::size_t bytes) {
  const auto& place = layout_.place(name);
  if (offset > place.bytes || bytes > place.bytes - offset)
    throw ConfigError(fmt::format("bytes {}..{} of tensor '{}', which has {}", offset, offset + bytes, name, place.bytes));
  files_[place.shard].write_at(place.offset + offset, data, bytes);
}

void SafetensorsWriter::sync() {
  for (RandomAccessFile& file : files_) file.sync();
}

void SafetensorsWriter::commit() {
  sync();
  std::vector<std::string> fresh;
  for (const auto& shard : layout_.shards()) {
    rename_and_sync(aside(folder_, shard.file_name), folder_ / shard.file_name);
    fresh.push_back(shard.file_name);
  }
  if (const std::string index = layout_.index_json(); !index.empty()) {
    fresh.push_back(layout_.stem() + ".safetensors.index.json");
    write_file_atomically(folder_ / fresh.back(), index);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (is_shard_of(name, layout_.stem()) && std::find(fresh.begin(), fresh.end(), name) == fresh.end())
      std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace ppengine::models
