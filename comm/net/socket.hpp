// TCP sockets with an owner, and messages of any length on them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ppengine::comm::net {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  int release();
  void close();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Port 0: any free one. Error with the reason when it is taken.
enum class Reach { anywhere, this_machine };
Socket listen_on(int port, Reach reach = Reach::anywhere);
int port_of(const Socket& socket);
// A name or address that belongs to this machine.
bool is_this_machine(const std::string& host);
// Tries until the deadline: the other side may not be listening yet. Empty when it passes; `why` then tells the last reason.
Socket connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline, std::string& why);
// An empty socket when there is nothing to accept.
Socket accept_from(const Socket& listener);

// A message on the wire: length, kind, contents.
struct Frame {
  uint8_t kind;
  std::string contents;
};
// False when the connection is gone.
bool write_frame(int fd, uint8_t kind, std::string_view contents);

// Puts frames together from whatever pieces arrive.
class FrameReader {
 public:
  // Reads what is there. False when the connection is gone.
  bool read_from(int fd);
  std::optional<Frame> next();

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Numbers and texts packed into a frame's contents.
class Packer {
 public:
  Packer& number(int64_t value);
  Packer& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  int64_t number();
  std::string text();

 private:
  std::string_view take(size_t count);
  std::string_view bytes_;
};

}  // namespace ppengine::comm::net
