// The oneCCL CPU communicator: one rank's view of a group of processes; the entry of its module.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/oneccl/baseline.hpp>
#include <ppengine/comm/oneccl/descriptors.hpp>
#include <ppengine/comm/oneccl/group.hpp>
#include <ppengine/comm/oneccl/quiet.hpp>
#include <ppengine/comm/process/module.hpp>
#include <ppengine/comm/process/pmi.hpp>

namespace ppengine::comm::oneccl {
namespace {

// Calls of the libraries that wait for other ranks cannot be ended from outside: when a rank is lost meanwhile, or the time is over,
// the process ends.
class Guard {
 public:
  // stderr: where the message goes, for when 2 is silenced. A short deadline is for ranks that are gone, which the rendezvous knows;
  // libraries of ranks that live may take their time to start on a busy machine.
  Guard(Rendezvous& rendezvous, const char* what, std::chrono::milliseconds timeout, int stderr_fd = 2)
      : thread_([this, &rendezvous, what, stderr_fd, deadline = Clock::now() + std::max(timeout, Communicator::default_timeout)] {
          while (!over_) {
            const bool lost = rendezvous.wait_for_failure(std::chrono::milliseconds(20));
            if (lost) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the call may have ended all the same
            if (over_ || (!lost && Clock::now() < deadline)) continue;
            const auto failure = rendezvous.failure();
            if (stderr_fd >= 0) dup2(stderr_fd, 2);
            log::error(
                CommError(failure ? failure->rank : -1, what, -1, failure ? failure->text() : std::string("not all ranks came in time"))
                    .what());
            leave(static_cast<int>(ExitCode::peer_lost));
          }
        }) {}
  ~Guard() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// What the whole process shares. Lives until the last communicator is gone.
struct Process {
  std::shared_ptr<Rendezvous> rendezvous;
  std::unique_ptr<PmiServer> pmi;
  std::unique_ptr<Engine> engine;
  int largest_tag = 32767 - first_message_tag;  // what MPI promises at least

  ~Process() {
    const bool started = engine != nullptr;
    engine.reset();
    // Ranks that are not told yet that this one does not start would not come to the end.
    if (!started || rendezvous->failed()) {
      [[maybe_unused]] auto* left = pmi.release();  // the MPI library may still hold on to it
      return;
    }
    const Guard guard(*rendezvous, "end", std::chrono::seconds(30));
    MPI_Finalize();
  }
};

class CpuCommunicator : public ProcessCommunicator, public HasBaselines {
 public:
  CpuCommunicator(std::shared_ptr<Process> process, const std::string& group_name, const std::vector<int>& ranks, int index,
                  ccl::communicator data, MPI_Comm mpi)
      : ProcessCommunicator(process->rendezvous, group_name, ranks, index),
        process_(std::move(process)),
        group_(std::make_unique<Group>(*process_->engine, std::move(data), mpi, group_name, ranks, index)) {}

  ~CpuCommunicator() override {
    for (const auto begin = Clock::now(); !group_->idle() && !process_->rendezvous->failed() &&
                                          Clock::now() - begin < std::min<Clock::duration>(timeout(), std::chrono::seconds(2));)
      process_->engine->progress();
    try {
      if (!process_->rendezvous->failed()) barrier();
    } catch (const std::exception&) {  // the others learn of it by themselves
    }
  }

  std::string kind() const override { return "oneccl-cpu"; }
  void progress() override { process_->engine->progress_now_and_then(); }
  void abort(const std::string& reason) override {
    process_->engine->stop();  // first: on one machine it reads the memory of ranks that free it when they are told
    ProcessCommunicator::abort(reason);
  }

  Pending send(const void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return transfer("send", const_cast<void*>(data), bytes, peer, tag, false, after);
  }
  Pending recv(void* data, std::size_t bytes, int peer, int tag, const After& after) override {
    return transfer("recv", data, bytes, peer, tag, false, after);
  }
  Pending recv_up_to(void* data, std::size_t capacity, int peer, int tag, const After& after) override {
    return transfer("recv", data, capacity, peer, tag, true, after);
  }

  Pending collective(const CollectiveCall& call, const void* in, void* out, const After& after) override {
    check_alive(call.name(), -1, -1);
    auto one = std::make_shared<Collective>(*process_->engine, call, in, out, world_rank(rank()), after.event(), timeout());
    process_->engine->with_lock([&] { group_->add(one); });
    return Pending(one);
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const Subgroup group = agree_on_split(color, key);
    std::unique_ptr<Communicator> result;
    // Splits of both libraries are collective over the parent; ranks without a color make a group of their own and drop it.
    const int some_color = color < 0 ? 1'000'000 + rank() : color, place = std::max(group.index, 0);
    std::optional<ccl::communicator> data;
    MPI_Comm mpi = MPI_COMM_NULL;
    process_->engine->with_lock([&] {
      const Guard guard(*process_->rendezvous, "split", timeout());
      data.emplace(ccl::split_communicator(group_->data(), some_color, place));
      MPI_Comm_split(group_->mpi(), some_color, place, &mpi);
    });
    if (group.index >= 0) {
      result = std::make_unique<CpuCommunicator>(process_, group.name, group.members, group.index, std::move(data.value()), mpi);
      result->set_timeout(timeout());
    } else {
      MPI_Comm_free(&mpi);
    }
    return result;
  }

  std::vector<std::unique_ptr<Baseline>> baselines() override {
    std::vector<std::unique_ptr<Baseline>> list;
    process_->engine->with_lock([&] {
      const Guard guard(*process_->rendezvous, "split", timeout());
      list.push_back(raw_oneccl(ccl::split_communicator(group_->data(), 0, rank())));
      MPI_Comm mpi = MPI_COMM_NULL;
      MPI_Comm_dup(group_->mpi(), &mpi);
      list.push_back(raw_mpi(mpi));
    });
    return list;
  }

 protected:
  void meanwhile() override { process_->engine->progress(); }
  bool has_meanwhile() const override { return !process_->engine->has_thread(); }

 private:
  Pending transfer(const char* operation, void* data, std::size_t bytes, int peer, int tag, bool up_to, const After& after) {
    check_peer(peer, operation);
    check_alive(operation, peer, tag);
    if (tag < 0 || tag > process_->largest_tag)
      throw Error(fmt::format("{}: tag {} is not between 0 and {}", operation, tag, process_->largest_tag));
    auto one = std::make_shared<Transfer>(*process_->engine, operation, world_rank(rank()), world_rank(peer), tag, data, bytes, up_to,
                                          after.event(), timeout());
    process_->engine->with_lock([&] { *operation == 's' ? group_->send(peer, one) : group_->receive(peer, one); });
    return Pending(one);
  }

  std::shared_ptr<Process> process_;
  std::unique_ptr<Group> group_;
};

void set_defaults(const ModuleInput& input) {
  const bool one_host = std::ranges::all_of(input.hosts, [&](const std::string& host) { return host == input.hosts[0]; });
  setenv("CCL_WORKER_OFFLOAD", "0", 0);  // our own engine makes the progress: a worker of oneCCL's polls a whole core away
  setenv("CCL_ATL_TRANSPORT", "mpi", 0);
  if (one_host) setenv("I_MPI_FABRICS", "shm", 0);
  setenv("I_MPI_SHM_CELL_FWD_SIZE", "65536", 0);  // a message of a pipeline goes out whole, without waiting for the receiver to poll
  setenv("I_MPI_SHM_CELL_FWD_NUM", "64", 0);
  // Above these libfabric leaves a message that nobody waits for in its socket, and a receive that is posted later may never get it.
  setenv("FI_TCP_MAX_SAVED", "1000000", 0);
  setenv("FI_TCP_MAX_SAVED_SIZE", "1073741824", 0);
  setenv("I_MPI_PIN", "0", 0);  // cores are the launcher's business
  setenv("MPI_LOCALRANKID", std::to_string(input.environment.local_rank).c_str(), 1);
  setenv("MPI_LOCALNRANKS", std::to_string(input.environment.local_size).c_str(), 1);
}

Communicator* make(const ModuleInput& input) {
  auto process = std::make_shared<Process>();
  process->rendezvous = input.rendezvous;
  process->pmi = std::make_unique<PmiServer>(input.rendezvous, pmi_process_mapping(input.hosts));
  allow_descriptors();
  process->pmi->set_environment();
  set_defaults(input);
  const int rank = input.environment.rank, size = input.environment.size;
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::optional<Quiet> quiet;
  if (!std::getenv("CCL_LOG_LEVEL")) {
    setenv("CCL_LOG_LEVEL", "error", 1);
    quiet.emplace();
  }
  const Guard guard(*input.rendezvous, "start", input.options.timeout, quiet ? quiet->err() : 2);
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
    throw Error("the MPI library under oneCCL does not start");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  ccl::init();
  ccl::shared_ptr_class<ccl::kvs> store;
  if (rank == 0) store = ccl::create_main_kvs();
  std::string address;
  if (rank == 0) {
    const auto mine = store->get_address();
    address.assign(mine.data(), mine.size());
  }
  address = input.rendezvous->gather("oneccl address", all, rank, address, start_timeout(input.options), "start")[0];
  if (rank != 0) {
    ccl::kvs::address_type theirs;
    std::memcpy(theirs.data(), address.data(), std::min(theirs.size(), address.size()));
    store = ccl::create_kvs(theirs);
  }
  ccl::communicator data = ccl::create_communicator(size, rank, store);
  MPI_Comm mpi = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
  int known = 0;
  void* largest = nullptr;  // of an int
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest), &known);
  if (known != 0) process->largest_tag = *static_cast<int*>(largest) - first_message_tag;
  quiet.reset();
  // More ranks than cores: a rank that waits must let the one run that it waits for.
  const bool crowded = input.environment.local_size > static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  process->engine = std::make_unique<Engine>(input.rendezvous, input.options.progress != "polling", crowded);
  return new CpuCommunicator(process, "world", all, rank, std::move(data), mpi);
}

}  // namespace
}  // namespace ppengine::comm::oneccl

extern "C" ppengine::comm::Communicator* ppengine_make_communicator(const ppengine::comm::ModuleInput& input) {
  return ppengine::comm::oneccl::make(input);
}
