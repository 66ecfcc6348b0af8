// Communicators in shared modules of their own, loaded when chosen: the core library runs without oneCCL, MPI or NCCL.
#pragma once

#include <memory>
#include <string>

#include <ppengine/comm/environment.hpp>
#include <ppengine/comm/process/communicator.hpp>
#include <ppengine/comm/processes.hpp>

namespace ppengine::comm {

// What a module gets, and what it must export: extern "C" Communicator* ppengine_make_communicator(const ModuleInput&).
struct ModuleInput {
  std::shared_ptr<Rendezvous> rendezvous;
  std::vector<std::string> hosts;  // by rank
  const RankEnvironment& environment;
  const ProcessOptions& options;
};
// How long ranks that have come and live may take to start, however short the deadlines of the run are: libraries take their time on a busy
// machine.
std::chrono::milliseconds start_timeout(const ProcessOptions& options);
using MakeCommunicator = Communicator* (*)(const ModuleInput&);

// lib/ppengine/ppengine_comm_<name>.so beside libppengine.so. Error with a sentence when it is not there or does not load.
MakeCommunicator load_module(const std::string& kind);
// Loads it and asks whether it could work here: a module may export extern "C" const char* ppengine_why_not(), null when it can.
void check_module(const std::string& kind);
std::string module_path(const std::string& kind);

}  // namespace ppengine::comm
