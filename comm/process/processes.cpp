// Ranks as processes: rendezvous, then a communicator from its module.
#include <ppengine/comm/processes.hpp>

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <numeric>

#include <ppengine/base/log.hpp>
#include <ppengine/comm/launch.hpp>
#include <ppengine/comm/net/secret.hpp>
#include <ppengine/comm/process/module.hpp>
#include <ppengine/comm/process/pmi.hpp>

namespace ppengine::comm {
namespace {

std::mutex last_words_mutex;
std::function<void(const CommError&)> last_words;

std::string kind_for(const ProcessOptions& options) {
  if (options.kind != "auto") return options.kind;
  if (!options.device || options.device->info().is_cpu) return "oneccl-cpu";
  const std::string& backend = options.device->info().backend;
  if (backend == "standin") return "oneccl-cpu";  // its memory is the host's
  return backend == "cuda" ? "nccl" : backend == "hip" ? "rccl" : "oneccl-gpu";
}

// "0-3,8": the cores that this process may use.
std::string cores_text() {
  const auto cores = usable_cores();
  std::string text;
  for (std::size_t i = 0, j = 0; i < cores.size(); i = ++j) {
    while (j + 1 < cores.size() && cores[j + 1] == cores[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (j > i) text += fmt::format("-{}", cores[j]);
  }
  return text;
}

RendezvousOptions where(const RankEnvironment& environment, const ProcessOptions& options) {
  RendezvousOptions result{environment.rank, environment.size,     environment.master,
                           environment.port, environment.listener, options.timeout,
                           options.version,  net::given_secret(),  environment.local_size == environment.size};
  if (!environment.master.empty()) {
    if (result.secret.empty()) result.secret = net::user_secret();
    return result;
  }
  // Under mpiexec rank 0 takes any free port and tells it to the others through mpiexec, with a secret where none was given.
  if (environment.rank == 0) {
    net::Socket listener = net::listen_on(0, result.one_machine ? net::this_machine : "");
    result.port = net::port_of(listener);
    result.listener = listener.release();
  }
  static std::unique_ptr<PmiClient> client;  // says goodbye to mpiexec at the end of the process
  client = std::make_unique<PmiClient>(environment.pmi_fd);
  const std::string address =
      client->share_address(environment.rank, fmt::format("{}:{}:{}", net::make_secret(), host_name(), result.port));
  const auto first = address.find(':'), colon = address.rfind(':');
  if (result.secret.empty()) result.secret = address.substr(0, first);
  result.port = 0;
  if (first < colon) std::from_chars(address.data() + colon + 1, address.data() + address.size(), result.port);
  if (result.port <= 0) throw Error("mpiexec gave no address of rank 0");
  const std::string host = address.substr(first + 1, colon - first - 1);
  result.host = host == host_name() ? net::this_machine : host;
  return result;
}

}  // namespace

std::chrono::milliseconds start_timeout(const ProcessOptions& options) { return std::max(options.timeout, Communicator::default_timeout); }

std::unique_ptr<Communicator> connect_processes(const RankEnvironment& environment, const ProcessOptions& options) {
  const std::string kind = kind_for(options);
  const MakeCommunicator make = load_module(kind);
  auto rendezvous = std::make_shared<Rendezvous>(where(environment, options));
  if (environment.joined >= 0) {
    [[maybe_unused]] const auto written = write(environment.joined, "j", 1);
    close(environment.joined);
  }
  std::vector<int> all(static_cast<std::size_t>(environment.size));
  std::iota(all.begin(), all.end(), 0);
  const std::string device = options.device ? options.device->info().selector + " " + options.device->info().name : "host memory";
  const auto places =
      rendezvous->gather("places", all, environment.rank,
                         net::Packer().text(kind).text(environment.host).number(getpid()).text(device).text(cores_text()).bytes(),
                         start_timeout(options), "start");
  std::vector<std::string> hosts;
  for (std::size_t r = 0; r < places.size(); ++r) {
    net::Unpacker in(places[r]);
    const std::string their_kind = in.text();
    hosts.push_back(in.text());
    const std::int64_t pid = in.number();
    if (their_kind != kind)
      throw ConfigError(fmt::format("rank {} wants to talk by {}, rank {} by {}: give all ranks the same kind of device", environment.rank,
                                    kind, r, their_kind));
    const std::string their_device = in.text();
    if (environment.rank == 0)
      log::info(net::printable(
          fmt::format("rank {}: host {}, process {}, {}, cores {}, {}", r, hosts.back(), pid, their_device, in.text(), kind)));
  }
  try {
    std::unique_ptr<Communicator> communicator(make({rendezvous, hosts, environment, options}));
    communicator->set_timeout(options.timeout);
    return communicator;
  } catch (const std::exception& error) {  // the others are in the middle of the same and would wait
    if (!rendezvous->failed()) rendezvous->abort(fmt::format("{} does not start: {}", kind, error.what()));
    throw;
  }
}

std::vector<Availability> available_communicators() {
  std::vector<Availability> list{{"local", true, "ranks as threads of one process"}};
  for (const char* kind : {"oneccl-cpu", "oneccl-gpu", "nccl", "rccl"}) {
    try {
      check_module(kind);
      list.push_back({kind, true, module_path(kind)});
    } catch (const Error& error) {
      list.push_back({kind, false, error.what()});
    }
  }
  return list;
}

void set_last_words(std::function<void(const CommError&)> say) {
  const std::lock_guard lock(last_words_mutex);
  last_words = std::move(say);
}

void say_last_words(const CommError& error) {
  std::function<void(const CommError&)> say;
  {
    const std::lock_guard lock(last_words_mutex);
    say = last_words;
  }
  say ? say(error) : log::error(error.what());
}

void leave(int exit_code) {
  std::fflush(nullptr);
  _exit(exit_code);
}

}  // namespace ppengine::comm
