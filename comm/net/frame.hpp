// Messages of any length on a byte stream, and numbers and texts packed into them. Nothing that was received is trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ppengine::comm::net {

// A message on the wire: length, kind, contents.
struct Frame {
  std::uint8_t kind;
  std::string contents;
};
// False when the connection is gone.
bool write_frame(int fd, std::uint8_t kind, std::string_view contents);

// Puts frames together from whatever pieces arrive.
class FrameReader {
 public:
  static constexpr std::uint32_t from_strangers = 1024, from_ranks = 256u << 20;

  // Frames with more contents than this are an error: strangers must not make this process take memory.
  void set_largest(std::uint32_t bytes) { largest_ = bytes; }
  // Reads what is there. False when the connection is gone.
  bool read_from(int fd);
  void add(std::string_view bytes) { bytes_.append(bytes); }
  // Error when what arrived cannot be a frame.
  std::optional<Frame> next();

 private:
  std::string bytes_;
  std::size_t at_ = 0;
  std::uint32_t largest_ = from_strangers;
};

// Numbers and texts packed into a frame's contents.
class Packer {
 public:
  Packer& number(std::int64_t value);
  Packer& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};
// Error where the bytes end too early.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  std::int64_t number();
  // Error when it is not in [least, most].
  std::int64_t number(std::int64_t least, std::int64_t most);
  std::string text();

 private:
  std::string_view take(std::size_t count);
  std::string_view bytes_;
};

// Text from another process as it may be shown: control characters, which a terminal would obey, become '?', and it ends somewhere.
std::string printable(std::string text);

}  // namespace ppengine::comm::net
