// A rank's last message when the MPI library ends its process.
#include <ppengine/comm/oneccl/last_words.hpp>

#include <cstdlib>

#include <ppengine/comm/processes.hpp>

namespace ppengine::comm::oneccl {
namespace {

thread_local Rendezvous* in_the_library = nullptr;

void speak() {
  if (!in_the_library) return;  // the program ends by itself
  Rendezvous& rendezvous = *in_the_library;
  if (!rendezvous.wait_for_failure(std::chrono::seconds(3))) rendezvous.abort("its MPI library gave up");
  // A thread that computes meanwhile finds out at its next wait, and knows more: where in the plan that is.
  if (LastWords::aside()) std::this_thread::sleep_for(std::chrono::seconds(3));
  const Operation* const awaited = LastWords::awaited();
  const Failure failed = rendezvous.failure().value();
  if (rendezvous.rank() == (failed.rank == 0 ? 1 : 0))
    say_last_words(CommError(awaited && awaited->peer() >= 0 ? awaited->peer() : failed.rank, awaited ? awaited->name() : "messages",
                             awaited ? awaited->tag() : -1, failed.text()));
  leave(static_cast<int>(ExitCode::peer_lost));
}

}  // namespace

LastWords::LastWords(Rendezvous& rendezvous) {
  static const bool once = std::atexit(speak) == 0;
  static_cast<void>(once);
  in_the_library = &rendezvous;
}

LastWords::~LastWords() { in_the_library = nullptr; }

const Operation*& LastWords::awaited() {
  thread_local const Operation* operation = nullptr;
  return operation;
}

bool& LastWords::aside() {
  thread_local bool background = false;
  return background;
}

}  // namespace ppengine::comm::oneccl
