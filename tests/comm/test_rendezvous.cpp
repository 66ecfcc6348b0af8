// The rendezvous of processes, here with threads and real TCP; which rank a process is, by launcher.
#include <boost/test/unit_test.hpp>
#include <fmt/core.h>

#include <future>
#include <map>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/environment.hpp>
#include <ppengine/comm/net/rendezvous.hpp>
#include <ppengine/comm/process/pmi.hpp>

using namespace ppengine;
using namespace ppengine::comm;
using namespace std::chrono_literals;

namespace {

std::vector<std::future<std::unique_ptr<Rendezvous>>> start(int size, int present, std::chrono::milliseconds timeout,
                                                            const std::string& odd_version = "1") {
  net::Socket listener = net::listen_on(0, net::this_machine);
  const int port = net::port_of(listener), fd = listener.release();
  std::vector<std::future<std::unique_ptr<Rendezvous>>> all;
  for (int r = 0; r < present; ++r)
    all.push_back(std::async(std::launch::async, [=] {
      RendezvousOptions options{r, size, "127.0.0.1", port, r == 0 ? fd : -1, timeout, r == 1 ? odd_version : "1"};
      return std::make_unique<Rendezvous>(options);
    }));
  return all;
}

std::string text_of(auto&& action) {
  try {
    action();
  } catch (const CommError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(rendezvous)

BOOST_AUTO_TEST_CASE(values_are_gathered_in_groups) {
  auto starting = start(4, 4, 60s);
  std::vector<std::future<std::string>> results;
  for (int r = 0; r < 4; ++r)
    results.push_back(std::async(std::launch::async, [&, r] {
      const auto me = starting[static_cast<std::size_t>(r)].get();
      const int all[] = {0, 1, 2, 3}, pair[] = {r % 2, r % 2 + 2};
      std::string text;
      for (int i = 0; i < 20; ++i)
        for (const auto& one : me->gather(fmt::format("all {}", i), all, r, std::to_string(r * i), 60s)) text += one + " ";
      for (const auto& one : me->gather(fmt::format("pair {}", r % 2), pair, r / 2, std::string(300000, static_cast<char>('a' + r)), 60s))
        text += one[0];
      return text;
    }));
  const std::string first = results[0].get();
  BOOST_TEST(first.ends_with("0 19 38 57 ac"));
  BOOST_TEST(results[1].get().ends_with("0 19 38 57 bd"));
  results[2].get();
  results[3].get();
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_comes_is_named) {
  auto starting = start(3, 2, 3s);
  for (auto& one : starting) BOOST_TEST(has(text_of([&] { one.get(); }), "missing: 2"));
}

BOOST_AUTO_TEST_CASE(another_version_is_refused) {
  auto starting = start(2, 2, 20s, "2");
  for (auto& one : starting) BOOST_TEST(has(text_of([&] { one.get(); }), "it is ppengine 2, rank 0 is 1"));
}

// Their messages may come out of the memory of the one that fails.
BOOST_AUTO_TEST_CASE(an_abort_lasts_until_all_others_have_stopped_their_messages) {
  constexpr auto timeout = 60s;
  auto starting = start(3, 3, timeout);
  std::vector<std::unique_ptr<Rendezvous>> ranks;
  for (auto& one : starting) ranks.push_back(one.get());
  std::atomic<int> stopped{0};
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
    ranks[r]->on_failure([&] {
      std::this_thread::sleep_for(200ms);
      ++stopped;
    });
  const auto begin = std::chrono::steady_clock::now();
  ranks[1]->abort("the disk is full");
  BOOST_TEST(stopped == 2);
  BOOST_TEST((std::chrono::steady_clock::now() - begin < timeout));
  ranks[2]->abort("the other one failed");  // has nothing to wait for any more
  BOOST_TEST(ranks[2]->failure().value().reason == "the disk is full");
}

BOOST_AUTO_TEST_CASE(who_is_missing_at_a_deadline_is_named_and_an_abort_reaches_all) {
  auto starting = start(3, 3, 60s);
  std::vector<std::unique_ptr<Rendezvous>> ranks;
  for (auto& one : starting) ranks.push_back(one.get());
  const int all[] = {0, 1, 2};
  const std::string late = text_of([&] { ranks[0]->gather("x", all, 0, "", 200ms); });
  BOOST_TEST(has(late, "not there: rank 1, 2"), late);
  auto waiting = std::async(std::launch::async, [&] { return text_of([&] { ranks[2]->gather("y", all, 2, "", 60s); }); });
  ranks[1]->abort("the model differs");
  const std::string aborted = waiting.get();
  BOOST_TEST(has(aborted, "rank 1 failed: the model differs"), aborted);
  BOOST_TEST(ranks[0]->wait_for_failure(60s));
  BOOST_TEST(ranks[0]->failure().value().rank == 1);
  while (!ranks.empty()) ranks.pop_back();  // rank 0 last: it waits for the others' goodbyes
}

BOOST_AUTO_TEST_CASE(process_mapping_names_each_host_once) {
  BOOST_TEST(pmi_process_mapping({"a", "a", "b", "b"}) == "(vector,(0,1,2),(1,1,2))");
  BOOST_TEST(pmi_process_mapping({"a", "b", "a"}) == "(vector,(0,1,1),(1,1,1),(0,1,1))");
}

namespace {
std::optional<RankEnvironment> found_with(const std::map<std::string, std::string>& variables) {
  return detect_ranks([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
RankEnvironment with(const std::map<std::string, std::string>& variables) { return found_with(variables).value(); }
}  // namespace

BOOST_AUTO_TEST_CASE(each_launcher_is_recognised) {
  BOOST_TEST(!found_with({}).has_value());
  BOOST_TEST(!found_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).has_value());  // inside an allocation, not started by srun
  const auto torch = with({{"RANK", "3"},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "n0"},
                           {"MASTER_PORT", "29500"}});
  BOOST_TEST((torch.rank == 3 && torch.size == 4 && torch.local_rank == 1 && torch.local_size == 2 && torch.master == "n0" &&
              torch.port == 29501));
  const auto mpi = with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "9"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  BOOST_TEST((mpi.source == "mpiexec" && mpi.pmi_fd == 9 && mpi.local_size == 2 && mpi.master.empty()));
  const auto slurm = with({{"SLURM_PROCID", "5"},
                           {"SLURM_NTASKS", "8"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_JOB_NODELIST", "node[07-09,12]"},
                           {"SLURM_JOB_ID", "123456"},
                           {"SLURM_TASKS_PER_NODE", "4(x2)"}});
  BOOST_TEST((slurm.rank == 5 && slurm.master == "node07" && slurm.port == 23456 && slurm.local_size == 4));
  const auto own = with({{"PPENGINE_RANK", "1"}, {"PPENGINE_SIZE", "2"}, {"PPENGINE_MASTER", "127.0.0.1:4000"}, {"RANK", "7"}});
  BOOST_TEST((own.rank == 1 && own.port == 4000 && own.source == "ppengine"));
}

BOOST_AUTO_TEST_CASE(contradictions_are_refused) {
  BOOST_CHECK_THROW(with({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), ConfigError);
  BOOST_CHECK_THROW(with({{"RANK", "x"}, {"WORLD_SIZE", "4"}}), ConfigError);
  BOOST_CHECK_THROW(with({{"PPENGINE_RANK", "0"}}), ConfigError);
}

BOOST_AUTO_TEST_CASE(node_lists) {
  BOOST_TEST(first_host("login") == "login");
  BOOST_TEST(first_host("a,b") == "a");
  BOOST_TEST(first_host("n[1,3]") == "n1");
  BOOST_TEST(first_host("n[01-20]-ib,m3") == "n01-ib");
}

BOOST_AUTO_TEST_SUITE_END()
