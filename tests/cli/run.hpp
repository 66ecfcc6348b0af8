// Runs the ppengine program as a user would.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ppengine::test {

struct Outcome {
  int code;  // exit code; 128 + signal when it was killed
  std::string out;
  std::string err;
};

// Variables that begin with PPENGINE_ are taken from `environment` only; all others are inherited. interrupt_at: the program gets a
// SIGINT as soon as it has printed this.
Outcome run(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment = {}, const std::string& interrupt_at = {});

}  // namespace ppengine::test
