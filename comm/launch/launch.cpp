// Starts ranks as processes and watches over them.
#include <ppengine/comm/launch.hpp>

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/environment.hpp>
#include <ppengine/comm/launch/shared_memory.hpp>
#include <ppengine/comm/launch/spawn.hpp>
#include <ppengine/comm/launch/stop_signals.hpp>
#include <ppengine/comm/net/secret.hpp>

namespace ppengine::comm {
namespace {

using Clock = std::chrono::steady_clock;

// What ends a run, and SIGCHLD, as readable events while ranks run; the old mask returns afterwards.
class Signals {
 public:
  Signals() {
    sigaddset(&set_, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    socket_ = net::Socket(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  int fd() const { return socket_.fd(); }
  // The next signal, or 0.
  int next() const {
    signalfd_siginfo info{};
    return read(fd(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t set_ = stop_signals(), before_{};
  net::Socket socket_;
};

// Whole lines of one rank's output, each with its name before it.
class Lines {
 public:
  Lines(net::Socket source, std::string prefix) : source_(std::move(source)), prefix_(std::move(prefix)) {}
  int fd() const { return source_.fd(); }
  // False at the end.
  bool pass_on() {
    char piece[16384];
    const ssize_t got = read(source_.fd(), piece, sizeof(piece));
    if (got > 0)
      text_.append(piece, static_cast<std::size_t>(got));
    else if (!text_.empty())
      text_ += '\n';
    for (std::size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
      const std::string line = prefix_ + text_.substr(0, end + 1);
      [[maybe_unused]] const auto written = write(2, line.data(), line.size());
    }
    if (got <= 0) source_.close();
    return got > 0;
  }

 private:
  net::Socket source_;
  std::string prefix_, text_;
};

class Run {
 public:
  Run(const LaunchOptions& options, const Signals& signals, int attempt) : options_(options), signals_(signals) {
    std::vector<LaunchHost> hosts = options.hosts;
    if (hosts.empty()) hosts.push_back({"localhost", options.ranks});
    const bool one_host = hosts.size() == 1;
    const std::string first = one_host ? net::this_machine : hosts[0].name == "localhost" ? host_name() : hosts[0].name;
    const net::Socket listener = net::listen_on(0, net::interface_for(first, one_host));
    const std::string master = fmt::format("{}:{}", first, net::port_of(listener));
    std::string secret = net::given_secret();
    if (secret.empty()) secret = net::make_secret();
    ends_.resize(static_cast<std::size_t>(options.ranks));
    int rank = 0;
    for (const LaunchHost& host : hosts) {
      const bool here = host.name == "localhost" || host.name == host_name() || net::is_this_machine(host.name);
      if (rank == 0 && !here)
        throw ConfigError(fmt::format("--hosts: the first host must be this one ({}), not {}: rank 0 runs where the launcher does",
                                      host_name(), host.name));
      const auto cores = core_sets(by_topology(usable_cores()), host.ranks);
      for (int local = 0; local < host.ranks; ++local, ++rank) {
        SpawnOptions spawning{.command = options.command,
                              .environment = options.environment,
                              .cores = {},
                              .keep_open = {},
                              .own_output = rank == 0 || !options.prefix};
        auto& env = spawning.environment;
        env["PPENGINE_RANK"] = std::to_string(rank);
        env["PPENGINE_SIZE"] = std::to_string(options.ranks);
        env["PPENGINE_LOCAL_RANK"] = std::to_string(local);
        env["PPENGINE_LOCAL_SIZE"] = std::to_string(host.ranks);
        env["PPENGINE_MASTER"] = master;
        env["PPENGINE_RESTART"] = std::to_string(attempt);
        if (rank == 0) env["PPENGINE_LISTENER"] = std::to_string(listener.fd()), spawning.keep_open.push_back(listener.fd());
        Pipe joined;
        if (here) env["PPENGINE_JOINED"] = std::to_string(joined.write.fd()), spawning.keep_open.push_back(joined.write.fd());
        if (here && !shared_memory_.path().empty()) env.try_emplace("I_MPI_SHM_FILE_PREFIX_4K", shared_memory_.path().string());
        if (here && options.pin) spawning.cores = cores[static_cast<std::size_t>(local)];
        // Never on a command line, where other users of the machine can read it.
        if (here)
          env["PPENGINE_SECRET"] = secret;
        else
          spawning.input = secret + "\n", spawning.command = remote_command(options.remote_shell, host.name, spawning);
        add(spawn(spawning), rank, here, std::move(joined.read));
      }
    }
  }

  ~Run() { kill_all(SIGKILL); }

  bool interrupted() const { return interrupted_ != 0; }

  std::vector<RankEnd> watch() {
    while (running_ > 0) {
      std::vector<pollfd> waiting{{signals_.fd(), POLLIN, 0}};
      for (const Lines& one : lines_) waiting.push_back({one.fd(), POLLIN, 0});
      poll(waiting.data(), waiting.size(), 200);
      pass_on(waiting);
      for (int signal = signals_.next(); signal != 0; signal = signals_.next())
        if (signal != SIGCHLD) interrupt(signal);
      collect();
      if (options_.while_running) options_.while_running();
      if (running_ > 0 && Clock::now() > deadline_) {
        log::info(fmt::format("{} rank{} did not end after the first failure: killed", running_, running_ == 1 ? "" : "s"));
        kill_all(SIGKILL);
        deadline_ = Clock::time_point::max();
      }
    }
    while (!lines_.empty()) std::erase_if(lines_, [](Lines& one) { return !one.pass_on(); });
    return ends_;
  }

 private:
  void add(Child child, int rank, bool here, net::Socket joined) {
    pids_.push_back(child.pid);
    here_.push_back(here);
    joined_.push_back(std::move(joined));
    ++running_;
    const std::string prefix = fmt::format("[rank {}] ", rank);
    if (child.out) lines_.emplace_back(std::move(child.out), prefix);
    if (child.err) lines_.emplace_back(std::move(child.err), prefix);
  }

  void pass_on(const std::vector<pollfd>& ready) {
    std::size_t i = 0;
    std::erase_if(lines_, [&](Lines& one) { return ready[++i].revents != 0 && !one.pass_on(); });
  }

  void collect() {
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      int status = 0;
      if (pids_[r] <= 0 || waitpid(pids_[r], &status, WNOHANG) != pids_[r]) continue;
      kill(-pids_[r], SIGKILL);  // what the rank has started itself must not outlive it, nor hold its output open
      pids_[r] = -1;
      --running_;
      ends_[r] = WIFSIGNALED(status) ? RankEnd{-1, WTERMSIG(status), killed_} : RankEnd{WEXITSTATUS(status), 0};
      if (killed_) continue;  // by us: the cause has been told
      const std::string how = ends_[r].signal != 0
                                  ? fmt::format("was killed by signal {} ({})", ends_[r].signal, strsignal(ends_[r].signal))
                                  : fmt::format("ended with code {}", ends_[r].code);
      // The others wait for it and will not learn by themselves that it is gone.
      if (const bool failed = ends_[r].signal != 0 || (ends_[r].code != 0 && ends_[r].code != static_cast<int>(ExitCode::peer_lost));
          failed && running_ > 0 && here_[r] && !has_joined(r) && interrupted_ == 0) {
        log::error(fmt::format("rank {} {} before it joined the others", r, how));
        kill_all(SIGKILL);
        continue;
      }
      // Where others are left, or have ended for it, they tell that it is lost; one that got our signal before it could handle any ended as
      // it should.
      const bool asked = ends_[r].signal != 0 && ends_[r].signal == interrupted_;
      if (ends_[r].signal != 0)
        log::write(running_ > 0 || told_ || asked ? log::Level::info : log::Level::error, fmt::format("rank {} {}", r, how));
      if (ends_[r].code == 0) continue;
      // One that has lost a peer has told all others, who have nothing left to wait for.
      const bool tells = ends_[r].code == static_cast<int>(ExitCode::peer_lost);
      told_ = told_ || tells;
      deadline_ =
          std::min(deadline_, Clock::now() + (tells ? std::min(options_.patience, options_.patience_after_news) : options_.patience));
    }
  }

  // Ranks save what they were asked to save and end; a second signal does not let them. Those of other hosts hear it from rank 0:
  // a signal would end the remote shell and not the rank.
  void interrupt(int signal) {
    for (std::size_t r = 0; r < pids_.size(); ++r)
      if (pids_[r] > 0 && (here_[r] || interrupted_ != 0)) kill(-pids_[r], signal);
    interrupted_ = signal;
  }

  // A rank writes a byte when it has found the others; the pipe ends when it dies.
  bool has_joined(std::size_t rank) const {
    char byte = 0;
    return read(joined_[rank].fd(), &byte, 1) == 1;
  }

  void kill_all(int signal) {
    killed_ = true;
    for (const pid_t pid : pids_)
      if (pid > 0) kill(-pid, signal);
  }

  const LaunchOptions& options_;
  const Signals& signals_;
  std::vector<pid_t> pids_;
  const SharedMemoryFolder shared_memory_;
  std::vector<bool> here_;  // on this machine
  std::vector<net::Socket> joined_;
  std::vector<RankEnd> ends_;
  std::vector<Lines> lines_;
  int running_ = 0;
  int interrupted_ = 0;  // the last signal that was passed on
  bool killed_ = false;
  bool told_ = false;  // a rank has said whom it lost
  Clock::time_point deadline_ = Clock::time_point::max();
};

}  // namespace

LaunchResult launch(const LaunchOptions& wanted) {
  LaunchOptions options = wanted;
  if (options.command.empty() || options.ranks < 1) throw ConfigError("nothing to launch: give a command and at least one rank");
  LaunchResult result;
  const Signals signals;  // over all starts: one that comes between two is not lost
  for (int attempt = 0;; ++attempt) {
    Run run(options, signals, attempt);
    result.ranks = run.watch();
    result.exit_code = combined_exit_code(result.ranks);
    result.restarts = attempt;
    if (run.interrupted() && result.exit_code != 0) result.exit_code = static_cast<int>(ExitCode::interrupted);
    if (result.exit_code != static_cast<int>(ExitCode::peer_lost) || attempt >= options.restarts) return result;
    std::optional<std::string> text = fmt::format("a rank was lost: starting again ({} of {})", attempt + 1, options.restarts);
    if (options.before_restart) text = options.before_restart(options, result);
    if (!text) return result;
    log::warning(*text);
  }
}

}  // namespace ppengine::comm
