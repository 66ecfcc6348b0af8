// .npy files of integers, memory-mapped: header versions 1, 2 and 3; nothing in them is trusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ppengine/base/file.hpp>

namespace ppengine::models {

class NpyFile {
 public:
  // FileError for anything but a 1-D or 2-D array of integers in C order.
  explicit NpyFile(const std::filesystem::path& path);

  const std::vector<std::uint64_t>& shape() const { return shape_; }
  std::uint64_t elements() const { return elements_; }
  std::int64_t at(std::uint64_t index) const;  // flat, row by row; u8 values above 2^63 - 1 come out negative
  const std::filesystem::path& path() const { return map_.path(); }
  void expect_whole() const { map_.expect_whole(); }  // FileError where the file has become shorter since it was opened

 private:
  MappedFile map_;
  std::vector<std::uint64_t> shape_;
  std::uint64_t elements_ = 0;
  const std::byte* data_ = nullptr;
  int item_bytes_ = 0;
  bool is_signed_ = false;
  bool swapped_ = false;
};

}  // namespace ppengine::models
