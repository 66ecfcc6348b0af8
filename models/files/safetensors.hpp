// safetensors files: memory-mapped reading of one file or of shards with an index; nothing in them is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ppengine/base/file.hpp>

namespace ppengine::models {

// The element types the format knows. Weights are f32, f16 or bf16; the others can be listed but not converted.
enum class StoredType { f32, f16, bf16, f64, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e4m3, f8_e5m2, other };

const char* stored_type_name(StoredType type);  // as in the file: "F32", "BF16", ...
std::size_t stored_type_size(StoredType type);  // bytes per element; 0 for other

// One tensor of an open file. data stays valid as long as the SafetensorsFile or WeightFiles it came from.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::string type_name;  // the file's own word, also for types not known here
  std::vector<std::int64_t> shape;
  std::size_t elements = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::string file;  // path, for messages
};

// Copies elements [first, first + count) converted to f32 or bf16 (round to nearest even; bf16 as its 16 bits).
// FileError naming file and tensor where the type is not F32, F16 or BF16.
void read_f32(const StoredTensor& tensor, std::size_t first, std::size_t count, float* destination);
void read_bf16(const StoredTensor& tensor, std::size_t first, std::size_t count, std::uint16_t* destination);

// One .safetensors file. Throws FileError naming file and tensor for anything that is not exactly in order.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const std::filesystem::path& path() const { return map_.path(); }

 private:
  MappedFile map_;
  std::vector<StoredTensor> tensors_;
};

// All weights of a model folder: model.safetensors, or the shards that model.safetensors.index.json names.
class WeightFiles {
 public:
  // A folder, or one .safetensors file.
  static WeightFiles open(const std::filesystem::path& folder_or_file);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  const StoredTensor& at(std::string_view name) const;  // FileError when missing
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace ppengine::models
