// Which rank this process is: from our own launcher, mpiexec, torchrun or Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ppengine::comm {

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  std::string host = {};    // this machine's name
  std::string master = {};  // where rank 0 listens; empty: asked for through mpiexec (pmi_fd)
  int port = 0;
  int listener = -1;        // rank 0: a socket of the launcher that listens already
  int pmi_fd = -1;          // mpiexec's channel
  int joined = -1;          // where our launcher is told that this rank has found the others
  std::string source = {};  // "ppengine", "mpiexec", "torchrun", "slurm"
};

// Nothing when the process was not started as a rank. ConfigError when the variables contradict each other. Variables:
//   ours      PPENGINE_RANK PPENGINE_SIZE PPENGINE_LOCAL_RANK PPENGINE_LOCAL_SIZE PPENGINE_MASTER (host:port) PPENGINE_LISTENER
//             PPENGINE_JOINED
//   mpiexec   PMI_RANK PMI_SIZE PMI_FD (Hydra: Intel MPI, MPICH); OMPI_COMM_WORLD_* with MASTER_ADDR and MASTER_PORT (Open MPI)
//   torchrun  RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT; torchrun keeps MASTER_PORT for itself, so we
//             use the next one
//   Slurm     SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_JOB_NODELIST SLURM_JOB_ID, or MASTER_ADDR and MASTER_PORT
std::optional<RankEnvironment> detect_ranks();
// The same with another source of variables, for tests: nullptr when a variable is not set.
using Lookup = std::function<const char*(const char*)>;
std::optional<RankEnvironment> detect_ranks(const Lookup& variable);

// "node[07-09,12],login" -> "node07": where rank 0 runs.
std::string first_host(const std::string& node_list);

std::string host_name();

}  // namespace ppengine::comm
