// Runs the ppengine program as a user would.
#include "run.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

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

// A pipe that holds one piece of what a program writes: as long as nobody reads on, the program is not further than one line ahead of the
// reader, however late the reader gets time to run. What happens to it at a certain line happens there.
class Lockstep {
 public:
  Lockstep() {
    if (pipe2(ends_.data(), O_CLOEXEC | O_DIRECT) != 0) throw std::runtime_error("no pipe");
    fcntl(ends_[0], F_SETPIPE_SZ, 4096);
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Lockstep() {
    close(ends_[0]);
    close_writer();
  }
  Lockstep(const Lockstep&) = delete;

  int descriptor() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  // False when nothing is there.
  bool read_one() {
    std::array<char, 4096> piece{};
    const ssize_t got = read(ends_[0], piece.data(), piece.size());
    if (got > 0) text_.append(piece.data(), static_cast<std::size_t>(got));
    return got > 0;
  }
  const std::string& text() const { return text_; }

 private:
  std::array<int, 2> ends_{};
  std::string text_;
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

  const Capture err;
  const auto start = [&](int out) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child > 0) return child;
    dup2(out, STDOUT_FILENO);
    dup2(err.descriptor(), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  };
  const auto code_of = [](int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); };
  int status = 0;
  if (interrupt_at.empty()) {
    const Capture out;
    waitpid(start(out.descriptor()), &status, 0);
    return {code_of(status), out.text(), err.text()};
  }
  Lockstep out;
  const pid_t child = start(out.descriptor());
  out.close_writer();
  bool ended = false;
  while (!ended && out.text().find(interrupt_at) == std::string::npos)
    if (!out.read_one()) {
      ended = waitpid(child, &status, WNOHANG) == child;
      usleep(1000);
    }
  if (!ended) {
    // Nothing is read until `then` is done or has taken a second: by then it does not depend on where the program is.
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false, gone = false;
    std::jthread reader([&] {
      std::unique_lock lock(mutex);
      for (changed.wait_for(lock, std::chrono::seconds(1), [&] { return done; }); !gone; lock.lock()) {
        lock.unlock();
        if (!out.read_one()) usleep(1000);
      }
    });
    const auto set = [&](bool& what) {
      const std::lock_guard lock(mutex);
      what = true;
      changed.notify_all();
    };
    try {
      then ? then(child) : void(kill(child, SIGINT));
    } catch (...) {
      set(done), set(gone);
      throw;
    }
    set(done);
    waitpid(child, &status, 0);
    set(gone);
  }
  while (out.read_one()) {
  }
  return {code_of(status), out.text(), err.text()};
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(fd);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace ppengine::test
