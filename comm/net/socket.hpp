// TCP sockets with an owner.
#pragma once

#include <chrono>
#include <string>

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

// Listens on the interface that has this name or address; empty: on all of them. Port 0: any free one. Error with the reason when the port
// is taken.
inline const std::string this_machine = "127.0.0.1";
Socket listen_on(int port, const std::string& host);
// Where a listening socket is reached from this machine.
std::string address_of(const Socket& socket);
int port_of(const Socket& socket);
// A name or address that belongs to this machine.
bool is_this_machine(const std::string& host);
// The interface to listen on for those who know this machine as `host`: that one; empty (all) where it is no address of this machine (a
// forwarded port), or where others must reach it and it is the loopback's (as Debian's /etc/hosts has the machine's own name).
std::string interface_for(const std::string& host, bool one_machine);
// Tries until the deadline: the other side may not be listening yet. Empty when it passes; `why` then tells the last reason.
Socket connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline, std::string& why);
// An empty socket when there is nothing to accept.
Socket accept_from(const Socket& listener);

}  // namespace ppengine::comm::net
