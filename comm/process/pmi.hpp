// PMI-1, the line protocol between an MPI library and its launcher: we speak it to mpiexec, and serve it to the MPI library when
// there is no mpiexec (our own launcher, torchrun, srun).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>

#include <ppengine/comm/net/rendezvous.hpp>
#include <ppengine/comm/net/socket.hpp>

namespace ppengine::comm {

// Rank 0's address ("host:port"), from rank 0 to all, through mpiexec's own channel.
class PmiClient {
 public:
  explicit PmiClient(int fd);
  ~PmiClient();  // says goodbye, so that mpiexec knows the end to be a clean one
  std::string share_address(int rank, const std::string& mine);

 private:
  std::string ask(const std::string& line);
  int fd_;
};

// Serves the MPI library of this process: puts are local until a barrier, where all ranks' are gathered by the rendezvous.
class PmiServer {
 public:
  PmiServer(std::shared_ptr<Rendezvous> rendezvous, std::string process_mapping);
  ~PmiServer();
  // Sets PMI_FD, PMI_RANK and PMI_SIZE for the MPI library that is about to start in this process.
  void set_environment();

 private:
  void run();
  std::string answer(const std::string& line);
  void barrier();

  const std::shared_ptr<Rendezvous> rendezvous_;
  net::Socket mine_, theirs_;
  std::map<std::string, std::string> values_, fresh_;
  int barriers_ = 0;
  std::thread thread_;
};

// "(vector,(0,2,4))" from every rank's host, in the form that MPI libraries expect.
std::string pmi_process_mapping(const std::vector<std::string>& hosts);

}  // namespace ppengine::comm
