// This process's rank, from the variables of its launcher.
#include <ppengine/comm/environment.hpp>

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <ppengine/base/error.hpp>

namespace ppengine::comm {
namespace {

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  bool has(const char* name) const { return lookup_(name) != nullptr; }
  std::string text(const char* name, const std::string& otherwise = {}) const {
    const char* value = lookup_(name);
    return value ? value : otherwise;
  }
  int number(const char* name) const {
    const char* value = lookup_(name);
    if (!value) throw ConfigError(fmt::format("{} is not set, though other variables say that this process is one of many ranks", name));
    return parse(name, value);
  }
  int number(const char* name, int otherwise) const {
    const char* value = lookup_(name);
    return value ? parse(name, value) : otherwise;
  }

 private:
  static int parse(const char* name, const char* value) {
    int result = 0;
    const char* end = value + std::strlen(value);
    const auto [at, error] = std::from_chars(value, end, result);
    if (error != std::errc() || at != end || result < 0) throw ConfigError(fmt::format("{}={} is not a number", name, value));
    return result;
  }
  const Lookup& lookup_;
};

constexpr int usual_port = 29400;

// The number that a text begins with; 0 where there is none.
int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

RankEnvironment ours(const Variables& v) {
  RankEnvironment e{.rank = v.number("PPENGINE_RANK"),
                    .size = v.number("PPENGINE_SIZE"),
                    .local_rank = v.number("PPENGINE_LOCAL_RANK", 0),
                    .local_size = v.number("PPENGINE_LOCAL_SIZE", 1),
                    .listener = v.number("PPENGINE_LISTENER", -1),
                    .joined = v.number("PPENGINE_JOINED", -1),
                    .source = "ppengine"};
  const std::string master = v.text("PPENGINE_MASTER");
  const auto colon = master.rfind(':');
  if (colon != std::string::npos) e.port = leading_number(std::string_view(master).substr(colon + 1));
  if (e.port <= 0) throw ConfigError(fmt::format("PPENGINE_MASTER={}: give host:port of rank 0", master));
  e.master = master.substr(0, colon);
  return e;
}

RankEnvironment torchrun(const Variables& v) {
  return {.rank = v.number("RANK"),
          .size = v.number("WORLD_SIZE"),
          .local_rank = v.number("LOCAL_RANK", 0),
          .local_size = v.number("LOCAL_WORLD_SIZE", 1),
          .master = v.text("MASTER_ADDR", "127.0.0.1"),
          .port = v.number("MASTER_PORT", usual_port) + 1,
          .source = "torchrun"};
}

RankEnvironment slurm(const Variables& v) {
  const std::string tasks = v.text("SLURM_TASKS_PER_NODE", "1");
  RankEnvironment e{.rank = v.number("SLURM_PROCID"),
                    .size = v.number("SLURM_NTASKS"),
                    .local_rank = v.number("SLURM_LOCALID", 0),
                    .local_size = std::max(1, leading_number(tasks)),
                    .source = "slurm"};
  e.master = v.text("MASTER_ADDR", first_host(v.text("SLURM_STEP_NODELIST", v.text("SLURM_JOB_NODELIST", "127.0.0.1"))));
  // Jobs on the same machine must not meet.
  e.port = v.number("MASTER_PORT", 20000 + v.number("SLURM_JOB_ID", 0) % 20000);
  return e;
}

RankEnvironment hydra(const Variables& v) {
  return {.rank = v.number("PMI_RANK"),
          .size = v.number("PMI_SIZE"),
          .local_rank = v.number("MPI_LOCALRANKID", 0),
          .local_size = v.number("MPI_LOCALNRANKS", 1),
          .master = v.text("MASTER_ADDR"),
          .port = v.number("MASTER_PORT", usual_port),
          .pmi_fd = v.number("PMI_FD", -1),
          .source = "mpiexec"};
}

RankEnvironment open_mpi(const Variables& v) {
  return {.rank = v.number("OMPI_COMM_WORLD_RANK"),
          .size = v.number("OMPI_COMM_WORLD_SIZE"),
          .local_rank = v.number("OMPI_COMM_WORLD_LOCAL_RANK", 0),
          .local_size = v.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1),
          .master = v.text("MASTER_ADDR", "127.0.0.1"),
          .port = v.number("MASTER_PORT", usual_port),
          .source = "mpiexec"};
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::string first_host(const std::string& list) {
  const auto bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const auto end = list.find_first_of("-,]", bracket);
  const auto close = list.find(']', bracket);
  if (close == std::string::npos) return list;
  const auto rest = list.find(',', close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, rest == std::string::npos ? rest : rest - close - 1);
}

std::optional<RankEnvironment> detect_ranks(const Lookup& lookup) {
  const Variables v(lookup);
  std::optional<RankEnvironment> found;
  if (v.has("PPENGINE_RANK"))
    found = ours(v);
  else if (v.has("TORCHELASTIC_RUN_ID") || (v.has("RANK") && v.has("WORLD_SIZE")))
    found = torchrun(v);
  else if (v.has("PMI_RANK") && (v.has("PMI_FD") || v.has("MASTER_ADDR")))
    found = hydra(v);
  else if (v.has("OMPI_COMM_WORLD_RANK"))
    found = open_mpi(v);
  else if (v.has("SLURM_PROCID") && v.number("SLURM_NTASKS", 1) > 1 && v.has("SLURM_STEP_ID"))
    found = slurm(v);
  if (!found) return {};
  found->host = host_name();
  if (found->size < 1 || found->rank >= found->size)
    throw ConfigError(fmt::format("{} says rank {} of {} ranks: that cannot be", found->source, found->rank, found->size));
  return found;
}

std::optional<RankEnvironment> detect_ranks() {
  return detect_ranks([](const char* name) { return std::getenv(name); });
}

}  // namespace ppengine::comm
