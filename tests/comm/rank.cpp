// One rank of the process tests: runs cases of the interface suite, or misbehaves as told.
//   comm_rank suite              all cases that leave the communicator usable
//   comm_rank case NAME          one case
//   comm_rank collectives        those cases alone that need no messages
//   comm_rank die|stop|throw R   rank R is killed, stops, or fails while the others wait for it
//   comm_rank vanish R           rank R is killed in the middle of a large message to the next one
//   comm_rank badly R            oneCCL does not start on rank R
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include <ppengine/base/log.hpp>
#include <ppengine/comm/processes.hpp>

#include "suite.hpp"

using namespace ppengine;
using namespace ppengine::comm;

namespace {

int run_cases(suite::Place& place, const std::string& only, bool collectives_only = false) {
  int failed = 0;
  for (const auto& list : {suite::messages(), suite::collectives(), suite::failures()})
    if (!collectives_only || list.data() == suite::collectives().data())
      for (const suite::Case& one : list) {
        if (only.empty() ? one.fatal : only != one.name) continue;
        const bool with_messages = one.name == "sub_groups" || one.name.find("messages") != std::string::npos;
        if (place.size() < one.ranks || (collectives_only && with_messages)) continue;
        try {
          one.body(place);
        } catch (const std::exception& error) {
          fmt::print(stderr, "FAILED {} on rank {} of {}: {}\n", one.name, place.rank(), place.size(), error.what());
          if (++failed > 0) return 1;
        }
        if (!one.fatal) place.comm.barrier();
      }
  return failed;
}

// Ranks pass a token around for ever; one of them misbehaves on the way.
void ring(suite::Place& place, const std::string& how, int who) {
  suite::Memory out(place, 300000), in(place, 300000);
  for (int round = 0;; ++round) {
    if (round == 20 && place.rank() == who) {
      if (how == "die") raise(SIGKILL);
      if (how == "stop") raise(SIGSTOP);
      if (how == "throw") throw Error("the disk is full");
    }
    const Message both[] = {Message::send(out.data(), 300000, place.next(), round),
                            Message::recv(in.data(), 300000, place.previous(), round)};
    place.comm.exchange(both, place.after()).wait();
  }
}

// On one machine MPI reads large messages out of their sender's memory. Here half of it is gone a moment before the process is, as when a
// process is killed: the receiver meets that half however late it gets time to read.
void large_message(suite::Place& place, int who) {
  constexpr std::size_t bytes = std::size_t{96} << 20;
  void* const memory = suite::map_memory(bytes);
  place.comm.barrier();
  if (place.rank() != who)
    for (int tag = 0;; ++tag) place.comm.recv(memory, bytes, who, tag).wait();
  munmap(static_cast<std::byte*>(memory) + bytes / 2, bytes / 2);
  const Pending sent = place.comm.send(memory, bytes, (who + 1) % place.size(), 0);
  for (const auto end = Clock::now() + std::chrono::seconds(1); Clock::now() < end; usleep(100)) sent.done();
  raise(SIGKILL);
}

int run(Communicator& comm, const std::string& what, const std::string& argument, bool device, const std::shared_ptr<ops::Device>& on) {
  std::shared_ptr<ops::Device> cpu = on ? on : device ? ops::Device::open("cpu") : nullptr;
  std::optional<ops::Stream> stream;
  if (cpu) stream.emplace(cpu);
  suite::Place place{comm, cpu, stream ? &*stream : nullptr};
  if (what == "suite") return run_cases(place, "");
  if (what == "collectives") return run_cases(place, "", true);
  if (what == "case") return run_cases(place, argument);
  if (what == "vanish")
    large_message(place, std::stoi(argument));
  else
    ring(place, what, std::stoi(argument));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "suite", argument = argc > 2 ? argv[2] : "0";
  std::unique_ptr<Communicator> comm;
  try {
    const auto environment = detect_ranks();
    if (!environment) throw Error("comm_rank: not started as a rank");
    ProcessOptions options;
    if (const char* kind = std::getenv("SUITE_KIND")) options.kind = kind;
    if (options.kind == "oneccl-gpu") options.device = ops::Device::open("cpu");
    if (const char* progress = std::getenv("PPENGINE_PROGRESS")) options.progress = progress;
    if (const char* timeout = std::getenv("SUITE_TIMEOUT")) options.timeout = std::chrono::milliseconds(std::stoi(timeout));
    if (what == "badly" && environment->rank == std::stoi(argument)) setenv("CCL_ATL_TRANSPORT", "pigeons", 1);
    if (const char* code = std::getenv("SUITE_LAST_WORDS"))
      set_last_words([=](const CommError& error) { leave(error.peer() == std::stoi(argument) ? std::stoi(code) : 1); });
    comm = connect_processes(*environment, options);
    const int code = run(*comm, what, argument, std::getenv("SUITE_HOST") == nullptr, options.device);
    if (code != 0) leave(code);
    if (comm->failure()) leave(0);
    comm.reset();
    return 0;
  } catch (const CommError& error) {
    fmt::print(stderr, "{}\n", error.what());
    leave(static_cast<int>(error.exit_code()));
  } catch (const std::exception& error) {
    if (comm) comm->abort(error.what());
    fmt::print(stderr, "{}\n", error.what());
    leave(1);
  }
}
