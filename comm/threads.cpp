// Ranks as threads of this process.
#include <ppengine/comm/threads.hpp>

#include <exception>
#include <mutex>
#include <thread>

namespace ppengine::comm {

void run_threads(int ranks, const LocalOptions& options, const std::function<void(Communicator&)>& body) {
  auto communicators = make_local(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (auto& communicator : communicators)
      threads.emplace_back([&, rank = communicator.get()] {
        try {
          body(*rank);
        } catch (const std::exception& e) {
          std::lock_guard lock(mutex);
          if (!first) {  // what the others throw from now on is only the echo
            first = std::current_exception();
            rank->abort(e.what());
          }
        }
      });
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace ppengine::comm
