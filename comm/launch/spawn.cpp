// One rank's process.
#include <ppengine/comm/launch/spawn.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <ppengine/base/error.hpp>
#include <ppengine/base/results.hpp>

namespace ppengine::comm {
namespace {

std::string quoted(const std::string& text) {
  std::string result(1, '\'');
  for (const char c : text) {
    if (c == '\'') result.append("'\\'");
    result.push_back(c);
  }
  result.push_back('\'');
  return result;
}

}  // namespace

Pipe::Pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("no pipe for a rank: {}", std::strerror(errno)));
  read = net::Socket(ends[0]);
  write = net::Socket(ends[1]);
}

Child spawn(const SpawnOptions& options) {
  // All memory is laid out before the fork: the child of a process with threads may only make system calls.
  std::map<std::string, std::string> variables = options.environment;
  for (char** one = environ; *one; ++one) {
    const std::string entry = *one;
    const auto equal = entry.find('=');
    variables.try_emplace(entry.substr(0, equal), entry.substr(equal + 1));
  }
  std::vector<std::string> entries;
  entries.reserve(variables.size());
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  std::vector<char*> env, args;
  for (std::string& one : entries) env.push_back(one.data());
  env.push_back(nullptr);
  std::vector<std::string> command = options.command;
  for (std::string& one : command) args.push_back(one.data());
  args.push_back(nullptr);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : options.cores) CPU_SET(static_cast<std::size_t>(core), &cores);

  Pipe failed, input;
  if (!options.input.empty() &&
      write(input.write.fd(), options.input.data(), options.input.size()) != static_cast<ssize_t>(options.input.size()))
    throw Error(fmt::format("cannot start a rank: {}", std::strerror(errno)));
  std::vector<Pipe> output(options.own_output ? 0 : 2);
  const pid_t parent = getpid();
  Child child;
  child.pid = fork();
  if (child.pid < 0) throw Error(fmt::format("cannot start a rank: {}", std::strerror(errno)));
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setpgid(0, 0);  // what is typed on the terminal comes to the launcher, which passes it on once
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int from = options.input.empty() ? open("/dev/null", O_RDONLY) : input.read.fd();
    if (from >= 0) dup2(from, 0);
    if (!options.own_output) dup2(output[1].write.fd(), 2);
    dup2(options.own_output ? results::descriptor() : output[0].write.fd(), 1);
    for (const int one : options.keep_open) fcntl(one, F_SETFD, 0);
    if (!options.cores.empty()) sched_setaffinity(0, sizeof(cores), &cores);
    execvpe(args[0], args.data(), env.data());
    const int reason = errno;
    [[maybe_unused]] const auto written = write(failed.write.fd(), &reason, sizeof(reason));
    _exit(127);
  }
  setpgid(child.pid, child.pid);  // here as in the child: either may come first
  failed.write.close();
  int reason = 0;
  if (read(failed.read.fd(), &reason, sizeof(reason)) == sizeof(reason))
    throw Error(fmt::format("cannot start '{}': {}", options.command[0], std::strerror(reason)));
  if (!options.own_output) {
    child.out = std::move(output[0].read);
    child.err = std::move(output[1].read);
  }
  return child;
}

std::vector<std::string> remote_command(const std::string& remote_shell, const std::string& host, const SpawnOptions& options) {
  std::map<std::string, std::string> variables = options.environment;
  for (char** one = environ; *one; ++one) {
    const std::string entry = *one;
    const auto equal = entry.find('=');
    for (const char* ours : {"PPENGINE_", "CCL_", "I_MPI_", "FI_", "NCCL_", "ONEAPI_", "ONEDNN_", "SYCL_", "UR_"})
      if (entry.starts_with(ours) && !entry.starts_with("PPENGINE_SECRET"))
        variables.try_emplace(entry.substr(0, equal), entry.substr(equal + 1));
  }
  std::string text = fmt::format("IFS= read -r PPENGINE_SECRET && export PPENGINE_SECRET && cd {} && exec env",
                                 quoted(std::filesystem::current_path().string()));
  for (const auto& [name, value] : variables) text += fmt::format(" {}={}", name, quoted(value));
  for (const std::string& word : options.command) text.append(1, ' ').append(quoted(word));
  text += " </dev/null";
  std::vector<std::string> words;
  std::istringstream shell(remote_shell);
  for (std::string word; shell >> word;) words.push_back(word);
  if (words.empty()) throw ConfigError("--remote-shell names no program: ssh is the usual one");
  words.push_back(host);
  words.push_back(text);
  return words;
}

}  // namespace ppengine::comm
