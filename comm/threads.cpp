// Ranks as threads of this process.
#include <ppengine/comm/threads.hpp>

#include <exception>
#include <mutex>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/local.hpp>

namespace ppengine::comm {

void run_threads(int ranks, const LocalOptions& options, const std::function<void(Communicator&)>& body) {
  auto communicators = make_local(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  bool first_is_echo = false;
  {
    std::vector<std::jthread> threads;
    threads.reserve(communicators.size());
    for (auto& communicator : communicators)
      threads.emplace_back([&, rank = communicator.get()] {
        try {
          body(*rank);
        } catch (const std::exception& e) {
          std::lock_guard lock(mutex);
          // What the others throw from now on is only the echo; but a rank may have ended the run before it came here with the cause.
          const bool echo = dynamic_cast<const CommError*>(&e) != nullptr;
          if (!first) rank->abort(e.what());
          if (!first || (first_is_echo && !echo)) {
            first = std::current_exception();
            first_is_echo = echo;
          }
        }
      });
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace ppengine::comm
