// The signals that end a run in order: it finishes what is under way and saves what it was asked to save.
#pragma once

#include <csignal>

namespace ppengine::comm {

// SIGINT, SIGTERM, and SIGHUP: a terminal or a connection that is closed. Not SIGHUP where it was ignored at the first call: the run was
// started with nohup to outlive its terminal. That call belongs at the program's start: OpenCL's runtime sets handlers of its own.
sigset_t stop_signals();
// Calls `handler` for these, and ignores SIGHUP (again) where it is not one.
void on_stop_signals(void (*handler)(int));

}  // namespace ppengine::comm
