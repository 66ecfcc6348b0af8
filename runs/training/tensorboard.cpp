// TensorBoard event files: protocol buffers of tensorflow.Event, each framed by its length and two checksums.
#include <ppengine/runs/training/tensorboard.hpp>

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine::runs {
namespace {

static_assert(std::endian::native == std::endian::little);

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0x82f63b78u : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

// As TFRecord files store checksums.
std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Fields of protocol buffers: a key, then the value.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(int field, int kind) { return varint(static_cast<std::uint64_t>(field << 3 | kind)); }
std::string text_field(int field, std::string_view text) { return key(field, 2) + varint(text.size()) + std::string(text); }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// tensorflow.Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string event(std::int64_t step, const std::string& rest) {
  return key(1, 1) + bytes_of(now()) + key(2, 0) + varint(static_cast<std::uint64_t>(step)) + rest;
}

}  // namespace

TensorBoardFile::TensorBoardFile(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  path_ = folder / fmt::format("events.out.tfevents.{}.{}.{}", static_cast<std::int64_t>(now()), host, getpid());
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) throw FileError(fmt::format("{}: cannot be written: --tensorboard wants a folder", path_.string()));
  record(event(0, text_field(3, "brain.Event:2")));
}

void TensorBoardFile::write(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;  // of values: tag = 1, simple_value = 2
  for (const auto& [tag, value] : scalars) summary += text_field(1, text_field(1, tag) + key(2, 5) + bytes_of(static_cast<float>(value)));
  record(event(step, text_field(5, summary)));
}

void TensorBoardFile::record(const std::string& event) {
  const std::string length = bytes_of(static_cast<std::uint64_t>(event.size()));
  file_ << length << bytes_of(masked(crc32c(length))) << event << bytes_of(masked(crc32c(event)));
  file_.flush();
  if (!file_) throw Error(fmt::format("{}: cannot be written; is the disk full?", path_.string()));
}

}  // namespace ppengine::runs
