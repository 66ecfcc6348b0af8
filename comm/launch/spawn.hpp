// One rank's process, with its output read by us.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include <ppengine/comm/net/socket.hpp>

namespace ppengine::comm {

struct Pipe {
  net::Socket read, write;
  Pipe();
};

struct SpawnOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::vector<int> cores;      // empty: any
  std::vector<int> keep_open;  // descriptors that the child inherits under the same numbers
  bool own_output = false;     // writes results and stderr itself, to where ours go
  std::string input = {};      // a few bytes for its standard input
};

struct Child {
  pid_t pid = -1;
  net::Socket out, err;  // pipes; empty with own_output
};

// The child is killed when this process ends. Error when it cannot be started.
Child spawn(const SpawnOptions& options);

// The remote shell with the host and what its shell is to run: the command in this folder, with the options' environment and with
// those variables of ours that are settings of ppengine or of the libraries under it. The run's secret is its first line of input.
std::vector<std::string> remote_command(const std::string& remote_shell, const std::string& host, const SpawnOptions& options);

}  // namespace ppengine::comm
