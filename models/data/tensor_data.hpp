// Samples for programs: tensors by input name in safetensors files, the first dimension counts samples.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ppengine/engine/batch.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

class TensorData {
 public:
  // FILE.safetensors, or a folder of them in the order of their names. FileError where they do not fit together.
  explicit TensorData(const std::string& path);

  std::uint64_t samples() const { return samples_; }
  const std::string& path() const { return path_; }
  // By tensor: the shape of a sample.
  const std::map<std::string, std::vector<std::int64_t>>& sizes() const { return sizes_; }
  // Every input of the graph for these samples; FileError for a tensor that is missing or has another size.
  engine::Batch read(const engine::Graph& graph, std::span<const std::uint64_t> samples) const;

 private:
  struct Part {
    std::uint64_t first = 0, count = 0;
    std::map<std::string, const StoredTensor*> tensors;
  };
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Part> parts_;
  std::uint64_t samples_ = 0;
  std::map<std::string, std::vector<std::int64_t>> sizes_;
};

}  // namespace ppengine::models
