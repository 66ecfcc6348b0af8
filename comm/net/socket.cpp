// TCP sockets and messages on them.
#include <ppengine/comm/net/socket.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::net {
namespace {

constexpr size_t header_bytes = 5;
constexpr uint32_t largest_frame = 1u << 30;

void prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  // A stuck peer must not hold up the thread that writes to it for ever.
  const timeval limit{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

bool write_all(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// Connects within a second: a host that drops packets must not use up the whole deadline in one try.
bool connect_once(int fd, const addrinfo& to) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  if (connect(fd, to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return false;
    pollfd waiting{fd, POLLOUT, 0};
    if (poll(&waiting, 1, 1000) <= 0) {
      errno = ETIMEDOUT;
      return false;
    }
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      errno = error;
      return false;
    }
  }
  fcntl(fd, F_SETFL, flags);
  return true;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

int Socket::release() { return std::exchange(fd_, -1); }

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Socket listen_on(int port, Reach reach) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(reach == Reach::this_machine ? INADDR_LOOPBACK : INADDR_ANY);
  if (!socket || bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(socket.fd(), 512) != 0)
    throw Error(fmt::format("cannot listen on port {}: {}; choose another with MASTER_PORT", port, std::strerror(errno)));
  return socket;
}

int port_of(const Socket& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// Only addresses of its own can be bound.
bool is_this_machine(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool mine = socket && bind(socket.fd(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  return mine;
}

Socket connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline, std::string& why) {
  for (auto pause = std::chrono::milliseconds(5);; pause = std::min(pause * 2, std::chrono::milliseconds(200))) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
      why = gai_strerror(error);
    } else {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const bool connected = connect_once(socket.fd(), *found);
      why = std::strerror(errno);
      freeaddrinfo(found);
      if (connected) {
        prepare(socket.fd());
        return socket;
      }
    }
    if (std::chrono::steady_clock::now() + pause >= deadline) return {};
    std::this_thread::sleep_for(pause);
  }
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) prepare(socket.fd());
  return socket;
}

bool write_frame(int fd, uint8_t kind, std::string_view contents) {
  const auto length = static_cast<uint32_t>(contents.size());
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
  bytes_.append(piece, static_cast<size_t>(got));
  return got > 0;
}

std::optional<Frame> FrameReader::next() {
  uint32_t length = 0;
  if (bytes_.size() - at_ < header_bytes) return {};
  std::memcpy(&length, bytes_.data() + at_, 4);
  if (length > largest_frame) throw Error("a stranger speaks on the port of the ranks: choose another with MASTER_PORT");
  if (bytes_.size() - at_ < header_bytes + length) return {};
  Frame frame{static_cast<uint8_t>(bytes_[at_ + 4]), bytes_.substr(at_ + header_bytes, length)};
  at_ += header_bytes + length;
  if (at_ == bytes_.size() || at_ > (1u << 20)) {
    bytes_.erase(0, at_);
    at_ = 0;
  }
  return frame;
}

Packer& Packer::number(int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

Packer& Packer::text(std::string_view value) {
  number(static_cast<int64_t>(value.size()));
  bytes_.append(value);
  return *this;
}

std::string_view Unpacker::take(size_t count) {
  if (count > bytes_.size()) throw Error("a message between ranks was cut short: are all ranks of the same version?");
  const auto taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

int64_t Unpacker::number() {
  int64_t value = 0;
  std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
  return value;
}

std::string Unpacker::text() { return std::string(take(static_cast<size_t>(number()))); }

}  // namespace ppengine::comm::net
