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
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    close(nowhere);
  }
  ~Quiet() {
    std::fflush(nullptr);
    dup2(out_, 1);
    dup2(err_, 2);
    close(out_);
    close(err_);
  }

  int err() const { return err_; }

 private:
  int out_, err_;
};

}  // namespace ppengine::comm::oneccl
