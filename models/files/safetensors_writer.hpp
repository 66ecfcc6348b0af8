// Writing safetensors that Hugging Face reads: offsets are fixed up front, so that ranks can write their parts at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ppengine/base/file.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

struct TensorSpec {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
};

// Where every byte goes: which shard, which offset. The same list gives the same layout on every rank.
class SafetensorsLayout {
 public:
  static constexpr std::uint64_t default_shard_bytes = 5'000'000'000;

  struct Shard {
    std::string file_name;  // model.safetensors, or model-00001-of-00003.safetensors
    std::string header;     // the eight length bytes and the JSON
    std::uint64_t file_bytes = 0;
  };
  struct Place {
    std::size_t shard = 0;
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;
  };

  explicit SafetensorsLayout(std::vector<TensorSpec> tensors, std::uint64_t max_shard_bytes = default_shard_bytes,
                             const std::string& stem = "model", const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  const std::vector<Shard>& shards() const { return shards_; }
  const Place& place(std::string_view name) const;            // ConfigError for a name that is not in the layout
  std::uint64_t total_bytes() const { return total_bytes_; }  // of all tensors
  const std::string& stem() const { return stem_; }
  std::string index_json() const;  // empty where there is one shard

 private:
  std::string stem_;
  std::vector<TensorSpec> tensors_;
  std::vector<Shard> shards_;
  std::vector<Place> places_;
  std::unordered_map<std::string, std::size_t> index_;
  std::uint64_t total_bytes_ = 0;
};

// <stem>.safetensors, <stem>-00001-of-00002.safetensors, <stem>.safetensors.index.json
bool is_shard_of(const std::string& file_name, const std::string& stem);

// The files of a layout, written aside in the folder as <file_name>.part and renamed by commit().
//   one rank: create(); then all ranks, after a barrier: open(), write() their parts, sync();
//   then, after another barrier, one rank: commit().
// In one process create() alone is enough; write() may be called from several threads at once.
class SafetensorsWriter {
 public:
  static SafetensorsWriter create(const std::filesystem::path& folder, SafetensorsLayout layout);
  static SafetensorsWriter open(const std::filesystem::path& folder, SafetensorsLayout layout);

  const SafetensorsLayout& layout() const { return layout_; }
  // Bytes [offset, offset + bytes) of a tensor.
  void write(std::string_view name, std::uint64_t offset, const void* data, std::size_t bytes);
  void sync();
  // Syncs, renames every shard, writes the index, and removes files of an earlier layout of the same stem.
  void commit();

 private:
  SafetensorsWriter(const std::filesystem::path& folder, SafetensorsLayout layout, RandomAccessFile::Mode mode);

  std::filesystem::path folder_;
  SafetensorsLayout layout_;
  std::vector<RandomAccessFile> files_;
};

}  // namespace ppengine::models
