// PMI-1: the client for mpiexec, the server for an MPI library in this process.
#include <ppengine/comm/process/pmi.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include <ppengine/base/error.hpp>

namespace ppengine::comm {
namespace {

bool write_line(int fd, std::string line) {
  line += '\n';
  return ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// Lines are short and rare: a byte at a time is fine.
bool read_line(int fd, std::string& line) {
  line.clear();
  for (char c = 0;;) {
    if (::read(fd, &c, 1) != 1) return false;
    if (c == '\n') return true;
    line += c;
  }
}

std::string field(const std::string& line, const std::string& name) {
  const std::string mark = name + "=";
  std::size_t at = line.starts_with(mark) ? 0 : line.find(" " + mark);
  if (at == std::string::npos) return {};
  at = line.find('=', at) + 1;
  // A value is the last field and may hold spaces.
  return line.substr(at, name == "value" ? std::string::npos : line.find(' ', at) - at);
}

}  // namespace

PmiClient::PmiClient(int fd) : fd_(fd) {
  if (field(ask("cmd=init pmi_version=1 pmi_subversion=1"), "rc") != "0")
    throw Error("mpiexec does not speak PMI-1: set MASTER_ADDR and MASTER_PORT instead");
}

PmiClient::~PmiClient() {
  std::string line;
  if (write_line(fd_, "cmd=finalize")) read_line(fd_, line);
}

std::string PmiClient::ask(const std::string& line) {
  std::string reply;
  if (!write_line(fd_, line) || !read_line(fd_, reply)) throw Error("mpiexec has closed its channel (PMI_FD)");
  return reply;
}

std::string PmiClient::share_address(int rank, const std::string& mine) {
  const std::string name = field(ask("cmd=get_my_kvsname"), "kvsname");
  if (rank == 0) ask(fmt::format("cmd=put kvsname={} key=ppengine-master value={}", name, mine));
  ask("cmd=barrier_in");
  return field(ask(fmt::format("cmd=get kvsname={} key=ppengine-master", name)), "value");
}

PmiServer::PmiServer(std::shared_ptr<Rendezvous> rendezvous, std::string process_mapping) : rendezvous_(std::move(rendezvous)) {
  values_["PMI_process_mapping"] = std::move(process_mapping);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw Error(fmt::format("socketpair: {}", std::strerror(errno)));
  mine_ = net::Socket(pair[0]);
  theirs_ = net::Socket(pair[1]);
  thread_ = std::thread([this] { run(); });
}

PmiServer::~PmiServer() {
  shutdown(mine_.fd(), SHUT_RDWR);
  thread_.join();
}

void PmiServer::set_environment() {
  setenv("PMI_FD", std::to_string(theirs_.fd()).c_str(), 1);
  setenv("PMI_RANK", std::to_string(rendezvous_->rank()).c_str(), 1);
  setenv("PMI_SIZE", std::to_string(rendezvous_->size()).c_str(), 1);
  unsetenv("PMI_PORT");
  unsetenv("PMI_ID");
}

void PmiServer::run() {
  std::string line;
  while (read_line(mine_.fd(), line)) {
    try {
      if (const std::string reply = answer(line); !reply.empty() && !write_line(mine_.fd(), reply)) return;
    } catch (const std::exception&) {  // a rank is lost: those that wait for it hear so from the rendezvous
      shutdown(mine_.fd(), SHUT_RDWR);
      return;
    }
  }
}

std::string PmiServer::answer(const std::string& line) {
  const std::string command = field(line, "cmd");
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "get_maxes") return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096";
  if (command == "get_appnum") return "cmd=appnum appnum=0";
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=ppengine";
  if (command == "get_universe_size") return fmt::format("cmd=universe_size size={}", rendezvous_->size());
  if (command == "put") {
    values_[field(line, "key")] = fresh_[field(line, "key")] = field(line, "value");
    return "cmd=put_result rc=0 msg=success";
  }
  if (command == "get") {
    const auto found = values_.find(field(line, "key"));
    if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
    return "cmd=get_result rc=0 msg=success value=" + found->second;
  }
  if (command == "barrier_in") {
    barrier();
    return "cmd=barrier_out";
  }
  if (command == "finalize") return "cmd=finalize_ack";
  // Most often because another rank is gone, which the rendezvous tells better.
  if (command == "abort" && !rendezvous_->wait_for_failure(std::chrono::seconds(2))) rendezvous_->abort("its MPI library gave up: " + line);
  return {};
}

void PmiServer::barrier() {
  net::Packer mine;
  mine.number(static_cast<std::int64_t>(fresh_.size()));
  for (const auto& [key, value] : fresh_) mine.text(key).text(value);
  fresh_.clear();
  std::vector<int> all(static_cast<std::size_t>(rendezvous_->size()));
  std::iota(all.begin(), all.end(), 0);
  for (const std::string& theirs : rendezvous_->gather(fmt::format("pmi {}", barriers_++), all, rendezvous_->rank(), mine.bytes(),
                                                       std::chrono::minutes(10), "start of the MPI library")) {
    net::Unpacker in(theirs);
    for (std::int64_t left = in.number(); left > 0; --left) {
      const std::string key = in.text();
      values_[key] = in.text();
    }
  }
}

std::string pmi_process_mapping(const std::vector<std::string>& hosts) {
  std::vector<std::string> seen, blocks;
  for (std::size_t i = 0; i < hosts.size();) {
    std::size_t end = i;
    while (end < hosts.size() && hosts[end] == hosts[i]) ++end;
    auto at = std::ranges::find(seen, hosts[i]);
    if (at == seen.end()) at = seen.insert(seen.end(), hosts[i]);
    blocks.push_back(fmt::format("({},1,{})", at - seen.begin(), end - i));
    i = end;
  }
  return fmt::format("(vector,{})", fmt::join(blocks, ","));
}

}  // namespace ppengine::comm
