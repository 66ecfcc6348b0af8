// Indexes of lines: scanned on all cores, kept in a file, mapped.
#include <ppengine/models/data/line_index.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>

namespace ppengine::models {
namespace {

constexpr std::string_view blank = " \t\r";
constexpr std::array<char, 8> magic{'p', 'p', 'e', 'l', 'i', 'n', 'e', '1'};

// Held while the index of a file is made. Where the file system has no locks, several ranks may make the same one.
class Turn {
 public:
  explicit Turn(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ >= 0) (void)::flock(fd_, LOCK_EX);
  }
  ~Turn() {
    if (fd_ >= 0) ::close(fd_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int fd_;
};

// Lines that begin in a part of the file.
struct Found {
  std::vector<std::uint64_t> begin;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> blanks;  // before which of them, how many
};

Found find_lines(std::string_view text, std::size_t first, std::size_t last) {
  Found found;
  std::size_t at = first;
  if (at > 0) at = std::min(text.find('\n', at - 1), text.size() - 1) + 1;
  while (at < last) {
    const std::size_t begin = text.find_first_not_of(blank, at);
    if (begin == std::string_view::npos || text[begin] == '\n') {
      if (found.blanks.empty() || found.blanks.back().first != found.begin.size()) found.blanks.emplace_back(found.begin.size(), 0);
      ++found.blanks.back().second;
      at = begin == std::string_view::npos ? text.size() : begin + 1;
      continue;
    }
    found.begin.push_back(at);
    at = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  release_mapped(text.data() + first, last - first);
  return found;
}

}  // namespace

// Of the kept file; behind it the lines' beginnings, then the gaps.
struct LineIndex::Header {
  std::array<char, 8> magic;
  std::uint64_t bytes, seconds, nanoseconds, lines, gaps;  // of the text: size and time
  bool operator==(const Header&) const = default;
};

LineIndex::LineIndex(const std::filesystem::path& path, std::uint64_t keep_from) : file_(path) {
  const std::filesystem::path kept = path.string() + ".lines";
  if (file_.size() < keep_from) {
    scan();
  } else if (!map_kept(kept)) {
    const Turn turn(path);
    if (!map_kept(kept)) {  // nor has another rank made it meanwhile
      log::info(fmt::format("{}: indexing {:.1f} GB of lines, once", path.string(), double(file_.size()) / 1e9));
      scan();
      keep(kept);
    }
  }
  if (begin_.empty()) throw FileError(fmt::format("{}: holds no examples", path.string()));
}

LineIndex::Header LineIndex::header() const {
  struct stat now{};
  if (::stat(path().c_str(), &now) != 0) throw FileError(fmt::format("{}: cannot be read: {}", path().string(), std::strerror(errno)));
  return {magic,         file_.size(), static_cast<std::uint64_t>(now.st_mtim.tv_sec), static_cast<std::uint64_t>(now.st_mtim.tv_nsec),
          begin_.size(), gaps_.size()};
}

void LineIndex::scan() {
  constexpr std::size_t part = 16 << 20;
  const std::string_view text(reinterpret_cast<const char*>(file_.data()), file_.size());
  const std::size_t threads = text.size() < part ? 1 : std::max(1u, std::thread::hardware_concurrency());
  std::uint64_t blanks = 0;
  for (std::size_t first = 0; first < text.size(); first += threads * part) {
    std::vector<Found> found(threads);
    {
      std::vector<std::jthread> workers;
      for (std::size_t t = 0; t < threads; ++t) {
        const std::size_t from = std::min(text.size(), first + t * part), to = std::min(text.size(), from + part);
        if (from < to) workers.emplace_back([&, t, from, to] { found[t] = find_lines(text, from, to); });
      }
    }
    for (const Found& one : found) {
      for (const auto& [before, count] : one.blanks) made_gaps_.push_back({made_begin_.size() + before, blanks += count});
      made_begin_.insert(made_begin_.end(), one.begin.begin(), one.begin.end());
    }
  }
  begin_ = made_begin_;
  gaps_ = made_gaps_;
}

bool LineIndex::map_kept(const std::filesystem::path& kept) try {
  if (std::error_code failed; !std::filesystem::exists(kept, failed)) return false;
  MappedFile file(kept);
  Header of_file{};
  if (file.size() < sizeof of_file) return false;
  std::memcpy(&of_file, file.data(), sizeof of_file);
  Header expected = header();
  expected.lines = of_file.lines;
  expected.gaps = of_file.gaps;
  const std::uint64_t rest = file.size() - sizeof of_file;
  if (of_file != expected || of_file.lines > rest / sizeof(std::uint64_t) || of_file.gaps > rest / sizeof(Gap) ||
      rest != of_file.lines * sizeof(std::uint64_t) + of_file.gaps * sizeof(Gap))
    return false;
  begin_ = {reinterpret_cast<const std::uint64_t*>(file.data() + sizeof of_file), of_file.lines};
  gaps_ = {reinterpret_cast<const Gap*>(begin_.data() + of_file.lines), of_file.gaps};
  kept_ = std::move(file);
  return true;
} catch (const FileError&) {
  return false;
}

void LineIndex::keep(const std::filesystem::path& kept) const try {
  AtomicFile file(kept);
  const Header first = header();
  file.write(&first, sizeof first);
  file.write(begin_.data(), begin_.size_bytes());
  file.write(gaps_.data(), gaps_.size_bytes());
  file.commit();
} catch (const std::exception& error) {
  log::info(fmt::format("the index is not kept: {}", error.what()));
}

std::string_view LineIndex::text(std::uint64_t index) const {
  const std::string_view all(reinterpret_cast<const char*>(file_.data()), file_.size());
  if (begin_[index] >= all.size()) throw FileError(fmt::format("{0}.lines does not fit {0}: remove it", path().string()));
  return all.substr(begin_[index], all.find('\n', begin_[index]) - begin_[index]);
}

std::uint64_t LineIndex::number(std::uint64_t index) const {
  const auto behind = std::ranges::upper_bound(gaps_, index, {}, &Gap::before);
  return index + 1 + (behind == gaps_.begin() ? 0 : (behind - 1)->blanks);
}

}  // namespace ppengine::models
