// The NCCL communicator over the stand-in: the interface suite, errors that NCCL reports, libraries that do not fit. What this cannot
// show is whether the calls are right on NVIDIA's hardware.
#include <boost/test/unit_test.hpp>
#include <fmt/core.h>

#include <cstdlib>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/api.hpp>
#include <ppengine/comm/process/module.hpp>

#include "suite.hpp"

using namespace ppengine;
using namespace ppengine::comm;

namespace {

// Ranks are threads, each with a rendezvous of its own over TCP, as processes would have. fatal: nothing can be done together afterwards.
std::string on_threads(int ranks, std::chrono::milliseconds timeout, bool fatal, const std::function<void(suite::Place&)>& body,
                       const std::string& kind = "nccl") {
  setenv("PPENGINE_NCCL", PPENGINE_STANDIN_NCCL, 1);
  setenv("PPENGINE_RCCL", PPENGINE_STANDIN_RCCL, 1);
  const MakeCommunicator make = load_module(kind);
  net::Socket listener = net::listen_on(0, net::this_machine);
  const int port = net::port_of(listener), fd = listener.release();
  std::mutex mutex;
  std::string errors;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      std::unique_ptr<Communicator> comm;
      try {
        auto rendezvous = std::make_shared<Rendezvous>(RendezvousOptions{r, ranks, "127.0.0.1", port, r == 0 ? fd : -1, timeout, "1"});
        RankEnvironment environment;
        environment.rank = r;
        environment.size = ranks;
        const ProcessOptions options;
        comm.reset(make({rendezvous, std::vector<std::string>(static_cast<std::size_t>(ranks), "here"), environment, options}));
        comm->set_timeout(timeout);
        suite::Place place{*comm, nullptr, nullptr};
        body(place);
        if (!fatal) comm->barrier();
      } catch (const std::exception& error) {
        if (comm) comm->abort(error.what());
        const std::lock_guard lock(mutex);
        errors += fmt::format("rank {}: {}\n", r, error.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

void run_all(std::span<const suite::Case> cases, std::initializer_list<int> sizes, const std::string& kind = "nccl") {
  for (const int ranks : sizes)
    for (const suite::Case& one : cases) {
      if (ranks < one.ranks) continue;
      if (ranks > 2 && one.name.find("64_mib") != std::string::npos) continue;
      const std::string errors = on_threads(ranks, std::chrono::seconds(60), one.fatal, one.body, kind);
      BOOST_TEST(errors.empty(), one.name << " on " << ranks << " ranks:\n" << errors);
    }
}

bool refused(const std::string& library, const std::string& because, const nccl::Api::Vendor& vendor = nccl::Api::nvidia) {
  try {
    nccl::Api::load_from(library, vendor);
  } catch (const ConfigError& error) {
    BOOST_TEST_MESSAGE(error.what());
    return std::string(error.what()).find(because) != std::string::npos;
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nccl_over_a_stand_in)

BOOST_AUTO_TEST_CASE(messages) { run_all(suite::messages(), {1, 2, 3}); }
BOOST_AUTO_TEST_CASE(collectives) { run_all(suite::collectives(), {1, 2, 3}); }
BOOST_AUTO_TEST_CASE(failures) { run_all(suite::failures(), {2}); }

// AMD's library has NCCL's functions, and the stand-in is loaded under its name.
BOOST_AUTO_TEST_CASE(the_same_communicator_works_over_librccl) {
  run_all(suite::messages(), {2}, "rccl");
  run_all(suite::collectives(), {2}, "rccl");
}

BOOST_AUTO_TEST_CASE(rccl_that_is_missing_is_asked_for_by_its_name) {
  BOOST_TEST(refused("librccl.so.1000", "AMD devices need RCCL", nccl::Api::amd));
  BOOST_TEST(refused(PPENGINE_STANDIN_NCCL_OLD, "is RCCL 2.17", nccl::Api::amd));
}

BOOST_AUTO_TEST_CASE(an_error_that_nccl_reports_later_ends_the_run_on_all_ranks) {
  static char bytes[2];  // the stand-in may still move them when the ranks have given up
  setenv("STANDIN_FAILS", "1", 1);
  const std::string errors = on_threads(2, std::chrono::seconds(60), true, [](suite::Place& place) {
    if (place.rank() == 0)
      place.comm.send(&bytes[0], 1, 1, 0).wait();
    else
      place.comm.recv(&bytes[1], 1, 0, 0).wait();
  });
  unsetenv("STANDIN_FAILS");
  for (const char* rank : {"rank 0: ", "rank 1: "}) BOOST_TEST(errors.find(rank) != std::string::npos, errors);
  BOOST_TEST(errors.find("remote process exited") != errors.rfind("remote process exited"), errors);
}

BOOST_AUTO_TEST_CASE(tags_in_another_order_are_an_error_that_says_why) {
  const std::string errors = on_threads(2, std::chrono::seconds(5), true, [](suite::Place& place) {
    char byte = 0;
    place.rank() == 0 ? place.comm.send(&byte, 1, 1, 3).wait() : place.comm.recv(&byte, 1, 0, 4).wait();
  });
  BOOST_TEST(errors.find("NCCL has no tags") != std::string::npos, errors);
}

BOOST_AUTO_TEST_CASE(libraries_that_do_not_fit_are_refused_with_a_sentence) {
  BOOST_TEST(refused("/no/such/libnccl.so.2", "does not load"));
  BOOST_TEST(refused(PPENGINE_STANDIN_NCCL_LACKS_ABORT, "ncclCommAbort"));
  BOOST_TEST(refused(PPENGINE_STANDIN_NCCL_OLD, "2.18 or newer"));
}

BOOST_AUTO_TEST_SUITE_END()
