// TCP sockets.
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
#include <optional>
#include <thread>
#include <utility>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::net {
namespace {

void prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  // A stuck peer must not hold up the thread that writes to it for ever.
  const timeval limit{10, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

// Nothing where there is no such host; `error` then tells why, for gai_strerror.
std::optional<sockaddr_in> resolve(const std::string& host, int port, int* error = nullptr) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error) *error = result;
  if (result != 0) return {};
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  return address;
}

sockaddr_in bound_to(const Socket& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return address;
}

// Connects within a second: a host that drops packets must not use up the whole deadline in one try.
bool connect_once(int fd, const sockaddr_in& to) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
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

Socket listen_on(int port, const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (!host.empty()) {
    const auto found = resolve(host, 0);
    if (!found) throw Error(fmt::format("cannot listen on {}: there is no such host; is MASTER_ADDR right?", host));
    address = *found;
  }
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket || bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(socket.fd(), 512) != 0)
    throw Error(fmt::format("cannot listen on port {}{}: {}; choose another with MASTER_PORT", port, host.empty() ? "" : " of " + host,
                            std::strerror(errno)));
  return socket;
}

int port_of(const Socket& socket) { return ntohs(bound_to(socket).sin_port); }

std::string address_of(const Socket& socket) {
  const in_addr address = bound_to(socket).sin_addr;
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return address.s_addr == htonl(INADDR_ANY) ? this_machine : text;
}

// Only addresses of its own can be bound.
bool is_this_machine(const std::string& host) {
  const auto address = resolve(host, 0);
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return address && socket && bind(socket.fd(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0;
}

std::string interface_for(const std::string& host, bool one_machine) {
  const auto address = resolve(host, 0);
  const bool loopback = address && ntohl(address->sin_addr.s_addr) >> 24 == 127;
  return is_this_machine(host) && (one_machine || !loopback) ? host : "";
}

Socket connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline, std::string& why) {
  for (auto pause = std::chrono::milliseconds(5);; pause = std::min(pause * 2, std::chrono::milliseconds(200))) {
    int error = 0;
    if (const auto address = resolve(host, port, &error); !address) {
      why = gai_strerror(error);
    } else {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const bool connected = connect_once(socket.fd(), *address);
      why = std::strerror(errno);
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

}  // namespace ppengine::comm::net
