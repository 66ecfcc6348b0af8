// The signals that end a run in order.
#include <ppengine/comm/launch/stop_signals.hpp>

#include <initializer_list>

namespace ppengine::comm {

sigset_t stop_signals() {
  static const sigset_t signals = [] {
    sigset_t found;
    sigemptyset(&found);
    sigaddset(&found, SIGINT);
    sigaddset(&found, SIGTERM);
    struct sigaction hangup{};
    if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&found, SIGHUP);
    return found;
  }();
  return signals;
}

void on_stop_signals(void (*handler)(int)) {
  const sigset_t stop = stop_signals();
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) std::signal(one, sigismember(&stop, one) ? handler : SIG_IGN);
}

}  // namespace ppengine::comm
