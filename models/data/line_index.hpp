// Where the lines of a text file begin. Of a large file the index is made once and kept beside it, in FILE.lines, which later runs map: a
// file of 10 GB is open at once, and its index takes no memory of the process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <ppengine/base/file.hpp>

namespace ppengine::models {

class LineIndex {
 public:
  static constexpr std::uint64_t kept_from = 64 << 20;  // bytes

  // Files of at least `keep_from` bytes have a kept index. It is made anew where the file's size or time has changed since; where the
  // folder cannot be written to, it is made in memory. Several ranks may open a file at the same time: one makes the index, the others wait
  // for it.
  explicit LineIndex(const std::filesystem::path& path, std::uint64_t keep_from = kept_from);

  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t bytes() const { return file_.size(); }
  std::uint64_t count() const { return begin_.size(); }  // of lines that are not blank
  std::string_view text(std::uint64_t index) const;      // without the line's end
  std::uint64_t number(std::uint64_t index) const;       // of the line in the file, from 1, blank ones included
  // FileError where the file has become shorter since it was opened.
  void expect_whole() const { file_.expect_whole(); }

 private:
  struct Gap {             // blank lines
    std::uint64_t before;  // the index of this line
    std::uint64_t blanks;  // from the file's beginning on
  };
  struct Header;
  Header header() const;
  void scan();
  bool map_kept(const std::filesystem::path& kept);
  void keep(const std::filesystem::path& kept) const;

  MappedFile file_;
  std::vector<std::uint64_t> made_begin_;
  std::vector<Gap> made_gaps_;
  std::optional<MappedFile> kept_;
  std::span<const std::uint64_t> begin_;  // of one of the two
  std::span<const Gap> gaps_;
};

}  // namespace ppengine::models
