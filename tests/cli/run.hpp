// Runs the ppengine program as a user would.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ppengine::test {

struct Outcome {
  int code;  // exit code; 128 + signal when it was killed
  std::string out;
  std::string err;
};

// Variables that begin with PPENGINE_ are taken from `environment` only; all others are inherited. interrupt_at: as soon as the
// program has printed this, it gets a SIGINT, or what `then` does with its process; until then it is at most one line further.
Outcome run(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment = {},
            const std::string& interrupt_at = {}, const std::function<void(int process)>& then = {});

// The same with another program in front.
Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                    const std::map<std::string, std::string>& environment = {}, const std::string& interrupt_at = {},
                    const std::function<void(int process)>& then = {});

// A TCP port that nobody listens at.
int free_port();

}  // namespace ppengine::test
