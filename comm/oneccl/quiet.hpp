// Keeps a library from printing while it starts.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace ppengine::comm::oneccl {

// oneCCL announces each changed setting on stdout, whatever its log level.
class Quiet {
 public:
  Quiet() : out_(dup(1)), err_(dup(2)) {
    std::fflush(nullptr);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    close(nowhere);
  }
  ~Quiet() {
    std::fflush(nullptr);
    restore(out_, 1);
    restore(err_, 2);
  }

  int err() const { return err_; }

 private:
  static void restore(int saved, int fd) {
    if (saved < 0) return;  // was not open
    dup2(saved, fd);
    close(saved);
  }

  int out_, err_;
};

}  // namespace ppengine::comm::oneccl
