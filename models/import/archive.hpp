// A zip file with stored entries, memory-mapped: what torch.export.save writes. Nothing in it is trusted.
#pragma once

#include <map>
#include <span>
#include <string>

#include <ppengine/base/file.hpp>

namespace ppengine::models {

class Archive {
 public:
  // FileError for what is not a zip, is cut short, overlaps its end or is compressed.
  explicit Archive(const std::filesystem::path& path);

  // By the name below the archive's one top folder: "models/model.json". FileError when missing.
  std::span<const std::byte> at(const std::string& name) const;
  bool has(const std::string& name) const { return entries_.contains(name); }
  const std::filesystem::path& path() const { return map_.path(); }

 private:
  MappedFile map_;
  std::map<std::string, std::span<const std::byte>> entries_;
};

}  // namespace ppengine::models
