// Runs the ppengine program as a user would.
#include "run.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace ppengine::test {
namespace {

// A file that is gone at the end, for what the program prints: a pipe would fill up.
class Capture {
 public:
  Capture()
      : path_((std::filesystem::temp_directory_path() / "ppengine-test-XXXXXX").string()), descriptor_(mkostemp(path_.data(), O_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("no temporary file " + path_);
  }
  ~Capture() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  Capture(const Capture&) = delete;

  int descriptor() const { return descriptor_; }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
  int descriptor_;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Outcome run(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
            const std::string& interrupt_at, const std::function<void(int process)>& then) {
  return run_program(PPENGINE_BINARY, arguments, environment, interrupt_at, then);
}

Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                    const std::map<std::string, std::string>& environment, const std::string& interrupt_at,
                    const std::function<void(int process)>& then) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable)
    if (!std::string(*variable).starts_with("PPENGINE_")) variables.emplace_back(*variable);
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);

  const Capture out;
  const Capture err;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(out.descriptor(), STDOUT_FILENO);
    dup2(err.descriptor(), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  int status = 0;
  if (!interrupt_at.empty()) {
    pid_t ended = 0;
    while (out.text().find(interrupt_at) == std::string::npos && (ended = waitpid(child, &status, WNOHANG)) == 0) usleep(5000);
    if (ended == 0 && then)
      then(child);
    else if (ended == 0)
      kill(child, SIGINT);
    if (ended == 0) waitpid(child, &status, 0);
  } else {
    waitpid(child, &status, 0);
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.text(), err.text()};
}

}  // namespace ppengine::test
