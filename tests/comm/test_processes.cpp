// Ranks as processes over oneCCL: the interface suite, then ranks that die, stop or throw; launching.
#include <boost/test/unit_test.hpp>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/launch.hpp>
#include <ppengine/comm/local.hpp>
#include <ppengine/comm/process/module.hpp>
#include <ppengine/comm/processes.hpp>

#include "suite.hpp"

using namespace ppengine;
using namespace ppengine::comm;

namespace {

LaunchResult run(int ranks, std::vector<std::string> arguments, std::map<std::string, std::string> environment = {},
                 std::chrono::seconds patience = std::chrono::seconds(100)) {
  LaunchOptions options;
  options.command = {PPENGINE_COMM_RANK};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.ranks = ranks;
  options.environment = std::move(environment);
  options.environment.try_emplace("SUITE_TIMEOUT", "120000");
  options.patience = patience;
  return launch(options);
}

// Only a build without oneCCL may skip: where its module was built, it has to be there.
bool have_oneccl() {
#ifdef PPENGINE_HAS_ONECCL_CPU
  BOOST_REQUIRE_MESSAGE(std::filesystem::exists(module_path("oneccl-cpu")), module_path("oneccl-cpu"));
  return true;
#else
  BOOST_TEST_MESSAGE("skipped: built without the oneCCL CPU communicator");
  return false;
#endif
}

// Nothing of our runs is left in shared memory: MPI and oneCCL put what they share into a folder of the run.
bool shared_memory_is_clear() {
  const std::string own = fmt::format("ppengine-{}-", getpid());
  return std::ranges::none_of(std::filesystem::directory_iterator("/dev/shm"),
                              [&](const auto& entry) { return entry.path().filename().string().starts_with(own); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(processes)

BOOST_AUTO_TEST_CASE(two_processes_on_the_cpu_device_pass_the_suite) {
  if (have_oneccl()) BOOST_TEST(run(2, {"suite"}).exit_code == 0);
}

BOOST_AUTO_TEST_CASE(three_processes_on_host_memory_pass_the_suite_without_a_progress_thread) {
  if (have_oneccl()) BOOST_TEST(run(3, {"suite"}, {{"SUITE_HOST", "1"}, {"PPENGINE_PROGRESS", "polling"}}).exit_code == 0);
}

BOOST_AUTO_TEST_CASE(two_processes_pass_the_suite_over_tcp) {
  if (have_oneccl()) BOOST_TEST(run(2, {"suite"}, {{"SUITE_HOST", "1"}, {"I_MPI_FABRICS", "ofi"}, {"FI_PROVIDER", "tcp"}}).exit_code == 0);
}

// oneCCL's SYCL build serves Intel GPUs. On the CPU device's queue its collectives work; messages are refused with a sentence.
BOOST_AUTO_TEST_CASE(the_sycl_build_of_oneccl_carries_out_collectives_on_a_queue) {
#ifdef PPENGINE_HAS_ONECCL_GPU
  BOOST_TEST(run(2, {"collectives"}, {{"SUITE_KIND", "oneccl-gpu"}}).exit_code == 0);
  BOOST_TEST(run(2, {"throw", "7"}, {{"SUITE_KIND", "oneccl-gpu"}}).exit_code == 1);
#else
  BOOST_TEST_MESSAGE("skipped: built without oneCCL's SYCL build");
#endif
}

BOOST_AUTO_TEST_CASE(failures_are_errors_that_name_both_sides) {
  if (!have_oneccl()) return;
  for (const suite::Case& one : suite::failures()) BOOST_TEST(run(2, {"case", one.name}, {{"SUITE_HOST", "1"}}).exit_code == 0, one.name);
  for (const char* one : {"collectives_that_differ", "large_collectives_that_differ"})
    BOOST_TEST(run(3, {"case", one}, {{"SUITE_HOST", "1"}}).exit_code == 0, one);
}

BOOST_AUTO_TEST_CASE(a_killed_rank_ends_all_with_code_4_at_once) {
  if (!have_oneccl()) return;
  for (const char* who : {"0", "1"}) {
    const auto begin = Clock::now();
    const auto result = run(3, {"die", who}, {{"SUITE_HOST", "1"}});
    BOOST_TEST(result.exit_code == 4);
    for (std::size_t r = 0; r < 3; ++r)
      BOOST_TEST((r == std::stoul(who) ? result.ranks[r].signal == 9 : result.ranks[r].code == 4),
                 "rank " << r << " code " << result.ranks[r].code);
    BOOST_TEST(std::chrono::duration<double>(Clock::now() - begin).count() < 100);  // not by the deadline; most of it is the start
  }
}

// MPI then ends the process of the receiver, before the rendezvous knows.
BOOST_AUTO_TEST_CASE(a_rank_that_vanishes_in_the_middle_of_a_large_message_ends_its_receiver_with_code_4) {
  if (!have_oneccl()) return;
  for (const char* who : {"0", "1"}) {
    const auto result = run(2, {"vanish", who}, {{"SUITE_HOST", "1"}});
    BOOST_TEST(result.exit_code == 4);
    BOOST_TEST(result.ranks[*who == '0' ? 1 : 0].code == 4);
    const auto speaking = run(2, {"vanish", who}, {{"SUITE_HOST", "1"}, {"SUITE_LAST_WORDS", "44"}, {"PPENGINE_PROGRESS", "polling"}});
    BOOST_TEST(speaking.ranks[*who == '0' ? 1 : 0].code == 44);
  }
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_ends_all_with_code_4_within_the_deadline) {
  if (!have_oneccl()) return;
  const auto result = run(2, {"stop", "1"}, {{"SUITE_HOST", "1"}, {"SUITE_TIMEOUT", "4000"}}, std::chrono::seconds(1));
  BOOST_TEST(result.exit_code == 4);
  BOOST_TEST(result.ranks[0].code == 4);
}

BOOST_AUTO_TEST_CASE(a_rank_that_throws_gives_its_own_code) {
  if (!have_oneccl()) return;
  const auto result = run(2, {"throw", "1"}, {{"SUITE_HOST", "1"}});
  BOOST_TEST(result.exit_code == 1);
  BOOST_TEST(result.ranks[0].code == 4);
}

BOOST_AUTO_TEST_CASE(a_rank_whose_library_does_not_start_tells_the_others_at_once) {
  if (!have_oneccl()) return;
  const auto begin = Clock::now();
  const auto result = run(2, {"badly", "1"}, {{"SUITE_HOST", "1"}, {"SUITE_TIMEOUT", "120000"}});
  BOOST_TEST(result.exit_code == 1);
  BOOST_TEST(result.ranks[0].code == 4);
  BOOST_TEST(std::chrono::duration<double>(Clock::now() - begin).count() < 100);
}

BOOST_AUTO_TEST_CASE(nothing_is_left_in_shared_memory) {
  if (!have_oneccl()) return;
  run(2, {"die", "1"}, {{"SUITE_HOST", "1"}});
  BOOST_TEST(shared_memory_is_clear());
}

BOOST_AUTO_TEST_CASE(a_lost_rank_is_started_again_as_often_as_asked) {
  LaunchOptions options;
  options.command = {"/bin/sh", "-c", "test $PPENGINE_RESTART = 2 || kill -9 $$"};
  options.ranks = 2;
  options.restarts = 3;
  const auto result = launch(options);
  BOOST_TEST(result.exit_code == 0);
  BOOST_TEST(result.restarts == 2);
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_end_are_killed_after_a_while) {
  LaunchOptions options;
  options.command = {"/bin/sh", "-c", "test $PPENGINE_RANK = 0 && exit 2; sleep 100"};
  options.ranks = 2;
  options.patience = std::chrono::milliseconds(300);
  const auto begin = Clock::now();
  const auto result = launch(options);
  BOOST_TEST(result.exit_code == 2);
  BOOST_TEST(std::chrono::duration<double>(Clock::now() - begin).count() < 60);
}

// The other one waits for it and cannot know.
BOOST_AUTO_TEST_CASE(a_rank_that_dies_before_it_has_joined_ends_the_run_at_once) {
  LaunchOptions options;
  options.command = {"/bin/sh", "-c",
                     "test $PPENGINE_RANK = 0 || { : > $I_MPI_SHM_FILE_PREFIX_4K/Intel_MPI_left; kill -9 $$; }; sleep 100"};
  options.ranks = 2;
  const auto begin = Clock::now();
  const auto result = launch(options);
  BOOST_TEST(result.exit_code == 4);
  BOOST_TEST(std::chrono::duration<double>(Clock::now() - begin).count() < 60);
  BOOST_TEST(shared_memory_is_clear());
}

BOOST_AUTO_TEST_CASE(a_program_that_does_not_exist_is_a_sentence) {
  LaunchOptions options;
  options.command = {"/no/such/program"};
  BOOST_CHECK_EXCEPTION(launch(options), Error,
                        [](const Error& error) { return std::string(error.what()).find("/no/such/program") != std::string::npos; });
}

BOOST_AUTO_TEST_CASE(a_missing_module_is_a_sentence) {
  BOOST_CHECK_EXCEPTION(load_module("carrier-pigeon"), ConfigError, [](const Error& error) {
    return std::string(error.what()).find("built without the carrier-pigeon") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(exit_codes_name_the_cause_not_the_consequence) {
  BOOST_TEST(combined_exit_code({{0, 0}, {0, 0}}) == 0);
  BOOST_TEST(combined_exit_code({{4, 0}, {2, 0}}) == 2);
  BOOST_TEST(combined_exit_code({{4, 0}, {-1, 9}}) == 4);
  BOOST_TEST(combined_exit_code({{130, 0}, {130, 0}}) == 130);
  BOOST_TEST(combined_exit_code({{4, 0}, {130, 0}}) == 130);
  BOOST_TEST(combined_exit_code({{130, 0}, {1, 0}}) == 1);
}

BOOST_AUTO_TEST_CASE(cores_are_shared_out_evenly) {
  using Sets = std::vector<std::vector<int>>;
  BOOST_CHECK((core_sets({0, 1, 2, 3}, 2) == Sets{{0, 1}, {2, 3}}));
  BOOST_CHECK((core_sets({0, 1, 2}, 2) == Sets{{0}, {1, 2}}));
  BOOST_CHECK((core_sets({5, 7}, 3) == Sets{{5}, {7}, {5}}));
}

BOOST_AUTO_TEST_CASE(cores_of_one_package_stand_together) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("ppengine-cores-{}", getpid());
  // Two packages whose cores are numbered in turn, two threads each: 0 and 4 are one core.
  for (int core = 0; core < 8; ++core) {
    const auto place = folder / fmt::format("cpu{}", core) / "topology";
    std::filesystem::create_directories(place);
    std::ofstream(place / "physical_package_id") << core % 2;
    std::ofstream(place / "core_id") << core % 4 / 2;
  }
  BOOST_CHECK((by_topology({0, 1, 2, 3, 4, 5, 6, 7}, folder.string()) == std::vector<int>{0, 4, 2, 6, 1, 5, 3, 7}));
  BOOST_CHECK((by_topology({3, 1, 2}, (folder / "none").string()) == std::vector<int>{1, 2, 3}));
  std::filesystem::remove_all(folder);
}

// A remote shell that is no shell: runs the command here and says which host it was meant for.
BOOST_AUTO_TEST_CASE(ranks_of_other_hosts_are_started_by_the_remote_shell) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("ppengine-hosts-{}", getpid());
  std::filesystem::create_directories(folder);
  const auto shell = folder / "shell";
  std::ofstream(shell) << "#!/bin/sh\ntest \"$1\" = -q || exit 9\necho \"$*\" > \"$0.line\"\nFAR=$2 exec sh -c \"$3\"\n";
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  LaunchOptions options;
  options.command = {"/bin/sh", "-c",
                     fmt::format("echo \"$PPENGINE_RANK $PPENGINE_LOCAL_RANK $FAR it's $PPENGINE_MASTER\" > '{0}'/$PPENGINE_RANK; "
                                 "echo $PPENGINE_SECRET > '{0}'/secret-$PPENGINE_RANK",
                                 folder.string())};
  options.ranks = 3;
  options.hosts = {{"127.0.0.1", 1}, {"far.example", 2}};
  options.remote_shell = shell.string() + " -q";
  BOOST_TEST(launch(options).exit_code == 0);
  const auto line_of = [&](const std::string& name) {
    std::string line;
    std::ifstream file(folder / name);
    std::getline(file, line);
    return line;
  };
  const auto said = [&](int rank) { return line_of(std::to_string(rank)); };
  // All ranks have the secret of the run, and no command line has it.
  BOOST_TEST(line_of("secret-0").size() == 64u);
  BOOST_TEST(line_of("secret-0") == line_of("secret-2"));
  BOOST_TEST(line_of("shell.line").find("far.example") != std::string::npos);
  BOOST_TEST(line_of("shell.line").find(line_of("secret-0")) == std::string::npos);
  BOOST_TEST(said(0).starts_with("0 0  it's 127.0.0.1:"), said(0));
  BOOST_TEST(said(1).starts_with("1 0 far.example it's 127.0.0.1:"), said(1));
  BOOST_TEST(said(2).starts_with("2 1 far.example"), said(2));
  std::filesystem::remove_all(folder);
  options.hosts = {{"far.example", 3}};
  BOOST_CHECK_THROW(launch(options), ConfigError);
}

BOOST_AUTO_TEST_CASE(host_lists) {
  const auto even = parse_hosts("a,b", 5);
  BOOST_TEST((even[0].name == "a" && even[0].ranks == 2 && even[1].ranks == 3));
  const auto given = parse_hosts("a:1,b:4", 5);
  BOOST_TEST((given[0].ranks == 1 && given[1].ranks == 4));
  for (const char* wrong : {"", "a:1,b:1", "a:x", "a,,b", "-oProxyCommand=x"}) BOOST_CHECK_THROW(parse_hosts(wrong, 5), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
