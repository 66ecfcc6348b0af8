// Ranks as processes: finds the other ranks and makes a communicator of the kind that the device wants.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/environment.hpp>

namespace ppengine::comm {

struct ProcessOptions {
  // "oneccl-cpu", "oneccl-gpu", "nccl"; "auto": by the device.
  std::string kind = "auto";
  std::shared_ptr<ops::Device> device;
  std::chrono::milliseconds timeout = Communicator::default_timeout;
  // Who moves messages while this rank computes: "thread" (one of ours) or "polling" (only whoever waits). PPENGINE_PROGRESS.
  std::string progress = "thread";
  std::string version;  // compared between ranks
};

// Until all ranks have come; logs rank, host and device of each.
std::unique_ptr<Communicator> connect_processes(const RankEnvironment& environment, const ProcessOptions& options = {});

// What could be used here, and why not: for `ppengine devices`.
struct Availability {
  std::string kind;
  bool usable;
  std::string why;  // "runs", or the reason that it does not
};
std::vector<Availability> available_communicators();

// A library may end the process when a peer is gone, without a word and without coming back. What this rank says then, in the thread that
// was in the library; nothing set: the error's text.
void set_last_words(std::function<void(const CommError&)> say);
void say_last_words(const CommError& error);

// Ends the process at once with the code, after a rank was lost: destructors of libraries would wait for it.
[[noreturn]] void leave(int exit_code);

}  // namespace ppengine::comm
