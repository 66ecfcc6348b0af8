// Messages on a byte stream.
#include <ppengine/comm/net/frame.hpp>

#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/base/printable.hpp>

namespace ppengine::comm::net {
namespace {

constexpr std::size_t header_bytes = 5;

bool write_all(int fd, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace

bool write_frame(int fd, std::uint8_t kind, std::string_view contents) {
  if (contents.size() > FrameReader::from_ranks)
    throw Error(fmt::format("a message of {} bytes between ranks is too large: {} at most", contents.size(), FrameReader::from_ranks));
  const auto length = static_cast<std::uint32_t>(contents.size());
  std::string bytes(header_bytes, '\0');
  std::memcpy(bytes.data(), &length, 4);
  bytes[4] = static_cast<char>(kind);
  bytes += contents;
  return write_all(fd, bytes.data(), bytes.size());
}

bool FrameReader::read_from(int fd) {
  char piece[65536];
  const ssize_t got = recv(fd, piece, sizeof(piece), 0);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  add({piece, static_cast<std::size_t>(got)});
  return got > 0;
}

std::optional<Frame> FrameReader::next() {
  std::uint32_t length = 0;
  if (bytes_.size() - at_ < header_bytes) return {};
  std::memcpy(&length, bytes_.data() + at_, 4);
  if (length > largest_) throw Error(fmt::format("a message of {} bytes, where {} are allowed", length, largest_));
  if (bytes_.size() - at_ < header_bytes + length) return {};
  Frame frame{static_cast<std::uint8_t>(bytes_[at_ + 4]), bytes_.substr(at_ + header_bytes, length)};
  at_ += header_bytes + length;
  if (at_ == bytes_.size() || at_ > (1u << 20)) {
    bytes_.erase(0, at_);
    at_ = 0;
  }
  return frame;
}

Packer& Packer::number(std::int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

Packer& Packer::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  bytes_.append(value);
  return *this;
}

std::string_view Unpacker::take(std::size_t count) {
  if (count > bytes_.size()) throw Error("a message between ranks was cut short: are all ranks of the same version?");
  const auto taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

std::int64_t Unpacker::number() {
  std::int64_t value = 0;
  std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
  return value;
}

std::int64_t Unpacker::number(std::int64_t least, std::int64_t most) {
  const std::int64_t value = number();
  if (value < least || value > most)
    throw Error(fmt::format("a message between ranks says {}, where {} to {} make sense", value, least, most));
  return value;
}

std::string Unpacker::text() { return std::string(take(static_cast<std::size_t>(number()))); }

std::string printable(std::string text) {
  constexpr std::size_t most = 16384;
  if (text.size() > most) text = text.substr(0, most) + "...";
  return ppengine::printable(text);
}

}  // namespace ppengine::comm::net
