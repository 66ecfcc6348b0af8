// Zip files: the end record, the central directory, and where each entry's bytes begin.
#include <ppengine/models/import/archive.hpp>

#include <fmt/core.h>

#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

constexpr std::uint32_t end_mark = 0x06054b50, entry_mark = 0x02014b50, local_mark = 0x04034b50, wide_end_mark = 0x06064b50,
                        wide_locator_mark = 0x07064b50;
constexpr std::size_t max_entries = 1'000'000;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}
  template <class T>
  T get(std::uint64_t at) const {
    if (at > bytes_.size() || bytes_.size() - at < sizeof(T)) fail("is cut short");
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof value);  // little endian, as all machines that this runs on
    return value;
  }
  std::span<const std::byte> part(std::uint64_t at, std::uint64_t count) const {
    if (at > bytes_.size() || bytes_.size() - at < count) fail("has an entry that ends behind the file");
    return bytes_.subspan(at, count);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: the archive {}: is it what torch.export.save wrote?", file_, what));
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
};

}  // namespace

Archive::Archive(const std::filesystem::path& path) : map_(path) {
  const std::string file = path.string();
  const std::span<const std::byte> bytes = map_.bytes();
  const Reader in(bytes, file);
  if (bytes.size() < 22) in.fail("is too short for a zip file");
  std::uint64_t end = bytes.size() - 22;
  for (const std::uint64_t lowest = end > 65535 ? end - 65535 : 0; in.get<std::uint32_t>(end) != end_mark; --end)
    if (end == lowest) in.fail("is no zip file");
  std::uint64_t count = in.get<std::uint16_t>(end + 10), at = in.get<std::uint32_t>(end + 16);
  if ((count == 0xffff || at == 0xffffffff) && end >= 20 && in.get<std::uint32_t>(end - 20) == wide_locator_mark) {
    const auto wide = in.get<std::uint64_t>(end - 12);
    if (in.get<std::uint32_t>(wide) != wide_end_mark) in.fail("has a broken end record");
    count = in.get<std::uint64_t>(wide + 32), at = in.get<std::uint64_t>(wide + 48);
  }
  if (count > max_entries) in.fail("has too many entries");
  for (std::uint64_t i = 0; i < count; ++i) {
    if (in.get<std::uint32_t>(at) != entry_mark) in.fail("has a broken directory");
    const auto method = in.get<std::uint16_t>(at + 10), name_size = in.get<std::uint16_t>(at + 28),
               extra_size = in.get<std::uint16_t>(at + 30), comment_size = in.get<std::uint16_t>(at + 32);
    std::uint64_t packed = in.get<std::uint32_t>(at + 20), size = in.get<std::uint32_t>(at + 24), local = in.get<std::uint32_t>(at + 42);
    const auto name_bytes = in.part(at + 46, name_size);
    std::string name(reinterpret_cast<const char*>(name_bytes.data()), name_bytes.size());
    // Sizes that do not fit into 32 bits stand in an extra field, in this order.
    for (std::uint64_t extra = at + 46 + name_size, last = extra + extra_size; extra + 4 <= last;) {
      const auto id = in.get<std::uint16_t>(extra), length = in.get<std::uint16_t>(extra + 2);
      std::uint64_t field = extra + 4;
      const std::uint64_t field_end = field + length;
      const auto widen = [&](std::uint64_t& value) {
        if (value != 0xffffffff || field + 8 > field_end) return;
        value = in.get<std::uint64_t>(field), field += 8;
      };
      if (id == 1) widen(size), widen(packed), widen(local);
      extra = field_end;
    }
    if (method != 0 || packed != size)
      throw FileError(fmt::format("{}: the entry '{}' is compressed: save it with torch.export.save", file, name));
    if (in.get<std::uint32_t>(local) != local_mark) in.fail("has a broken entry");
    const std::uint64_t begin = local + 30 + in.get<std::uint16_t>(local + 26) + in.get<std::uint16_t>(local + 28);
    const std::size_t slash = name.find('/');
    if (slash != std::string::npos) name.erase(0, slash + 1);
    if (!entries_.emplace(name, in.part(begin, size)).second) in.fail(fmt::format("has two entries '{}'", name));
    at += 46u + name_size + extra_size + comment_size;
  }
}

std::span<const std::byte> Archive::at(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw FileError(fmt::format("{}: the archive has no '{}': is it what torch.export.save wrote?", path().string(), name));
  return found->second;
}

}  // namespace ppengine::models
