// Ranks as processes: the same results as with threads, and what happens when one is lost or the run is interrupted. From
// docs/command_line.md.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

#include <ppengine/comm/launch.hpp>

#include "processes.hpp"

using namespace ppengine::test;

BOOST_AUTO_TEST_SUITE(ranks_as_processes)

// Sums of two ranks are the same in either order, so the numbers are too, bit for bit.
BOOST_AUTO_TEST_CASE(training_gives_the_losses_of_threads) {
  if (!available()) return;
  for (const std::vector<std::string>& axis :
       {std::vector<std::string>{"--pp", "2"},
        {"--dp", "2"},
        {"--dp", "2", "--shard"},
        {"--dp", "2", "--shard", "--schedule", "loopedbfs", "--stages", "4", "--active-stages", "1"}}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), axis.begin(), axis.end());
      return losses(run(command("train", more)));
    };
    const auto with_threads = with({"--steps", "3"}), with_processes = with({"--steps", "3", "--launch", "processes"});
    BOOST_REQUIRE(with_threads.size() == 3);
    BOOST_REQUIRE(with_processes.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST(with_processes[i].first == with_threads[i].first, axis[0] << " 2, " << axis.size() << " words, step " << i + 1);
      BOOST_TEST(with_processes[i].second == with_threads[i].second, boost::test_tools::tolerance(1e-5));
    }
  }
}

// Every schedule, in one start of the ranks: the sums of more than two ranks may be rounded otherwise than those of threads; the same
// program run again gives the same bits.
BOOST_AUTO_TEST_CASE(every_schedule_gives_the_losses_of_threads_and_a_second_run_the_same_bits) {
  if (!available()) return;
  const auto folder = std::filesystem::temp_directory_path() / ("ppengine-schedules-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto trained = [&](int ranks, const std::string& name, bool processes) {
    const std::string file = (folder / name).string();
    ppengine::comm::LaunchOptions options;
    options.command = {PPENGINE_SCHEDULE_RANK, file, std::to_string(ranks)};
    options.ranks = ranks;
    if (processes)
      BOOST_REQUIRE(ppengine::comm::launch(options).exit_code == 0);
    else
      BOOST_REQUIRE(std::system((options.command[0] + " " + file + " " + options.command[2]).c_str()) == 0);
    std::vector<std::string> result;
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) result.push_back(line);
    return result;
  };
  for (const int ranks : {2, 3, 4}) {
    const auto threads = trained(ranks, "threads", false), processes = trained(ranks, "processes", true);
    BOOST_REQUIRE(threads.size() == processes.size());
    BOOST_TEST(threads.size() >= 4u);
    for (std::size_t i = 0; i < threads.size(); ++i) {
      std::istringstream one(threads[i]), other(processes[i]);
      const auto next = [](std::istringstream& line) {
        std::string word;
        line >> word;
        return word;
      };
      const std::string schedule = next(one), step = next(one);
      BOOST_TEST(next(other) == schedule);
      BOOST_TEST(next(other) == step);
      for (const char* what : {"loss", "norm"}) {
        const double a = std::stod(next(one)), b = std::stod(next(other));
        BOOST_TEST(std::abs(a - b) <= 1e-5 * std::abs(a), ranks << " ranks, " << schedule << ", " << what << ": " << a << " " << b);
      }
    }
    if (ranks == 2) BOOST_TEST(trained(ranks, "again", true) == processes, boost::test_tools::per_element());
  }
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(evaluation_gives_the_loss_of_threads) {
  if (!available()) return;
  const auto loss = [](const std::string& launch) {
    const Outcome outcome = run(command("eval", {"--pp", "2", "--sequences", "16", "--launch", launch}));
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return Json::parse(outcome.out)["loss"].get<double>();
  };
  BOOST_TEST(loss("processes") == loss("threads"), boost::test_tools::tolerance(1e-5));
}

// As torchrun --no-python would start them: rank 0 prints, the others are silent.
BOOST_AUTO_TEST_CASE(ranks_are_taken_from_the_environment) {
  if (!available()) return;
  const auto start = [port = std::to_string(free_port() - 1)](const std::string& rank) {
    return run(command("train", {"--dp", "2", "--steps", "1"}), {{"RANK", rank},
                                                                 {"WORLD_SIZE", "2"},
                                                                 {"LOCAL_RANK", rank},
                                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", port}});
  };
  auto other = std::async(std::launch::async, start, "1");
  const Outcome first = start("0"), second = other.get();
  BOOST_TEST(losses(first).size() == 1);
  BOOST_TEST(second.code == 0, second.err);
  BOOST_TEST(second.out == "");
}

// As mpiexec with two commands, or a mistake in a job script, would start them.
BOOST_AUTO_TEST_CASE(settings_that_differ_between_ranks_are_named) {
  if (!available()) return;
  const auto start = [port = std::to_string(free_port() - 1)](const std::string& rank, const std::vector<std::string>& more) {
    std::vector<std::string> words{"--pp", "2", "--steps", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(command("train", words), {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  };
  const std::pair<std::string, std::string> differences[] = {{"--seed", "7"}, {"--schedule", "gpipe"}};
  for (const auto& [flag, value] : differences) {
    auto other = std::async(std::launch::async, start, "1", std::vector<std::string>{flag, value});
    const Outcome first = start("0", {}), second = other.get();
    BOOST_TEST(first.code == 2);
    BOOST_TEST(second.code == 2);
    BOOST_TEST(first.err.find(flag + " is not given on rank 0 and " + value + " on rank 1") != std::string::npos, first.err);
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_ends_all_with_4_and_one_message) {
  if (!available()) return;
  const std::pair<std::size_t, std::vector<std::string>> cases[] = {
      {0, {"--pp", "2"}}, {1, {"--pp", "2"}}, {1, {"--dp", "2"}}, {0, {"--dp", "2", "--shard"}}, {1, {"--tp", "2"}}};
  for (const auto& [victim, axis] : cases) {
    std::vector<int> ranks;
    std::vector<std::string> words{"--steps", "1000000", "--launch", "processes"};
    words.insert(words.begin(), axis.begin(), axis.end());
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = run(command("train", words), {}, "\"step\":3,", [&ranks, victim = victim](int launcher) {
      ranks = children(launcher);
      if (ranks.size() == 2) kill(ranks[victim], SIGKILL);
    });
    BOOST_REQUIRE(ranks.size() == 2);
    BOOST_TEST(outcome.code == 4, outcome.err);
    BOOST_TEST(count(outcome.err, "rank " + std::to_string(victim) + " failed: its process has ended") == 1, outcome.err);
    BOOST_TEST(count(outcome.err, "ppengine: ") == 1, outcome.err);
    BOOST_TEST(count(outcome.err, "plan position") + count(outcome.err, "between two steps") == 1, outcome.err);
    BOOST_TEST(outcome.err.ends_with("no checkpoint was asked for (--save)\n"), outcome.err);
    BOOST_TEST(!any_left(ranks));
    BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 200);  // not by the deadline
  }
}

BOOST_AUTO_TEST_CASE(an_interrupted_run_saves_and_ends_with_130) {
  if (!available()) return;
  const auto folder = std::filesystem::temp_directory_path() / ("ppengine-test-" + std::to_string(getpid()));
  std::vector<int> ranks;
  const Outcome outcome = run(command("train", {"--dp", "2", "--steps", "1000000", "--launch", "processes", "--save", folder.string()}), {},
                              "\"step\":3,", [&](int launcher) {
                                ranks = children(launcher);
                                kill(launcher, SIGINT);
                              });
  BOOST_TEST(outcome.code == 130, outcome.err);
  BOOST_TEST(std::filesystem::exists(folder / "model.safetensors"));
  BOOST_TEST(!any_left(ranks));
  std::filesystem::remove_all(folder);
}

// Whatever all ranks find wrong is said once, with its own exit code.
BOOST_AUTO_TEST_CASE(a_mistake_is_told_once) {
  if (!available()) return;
  const Outcome outcome = run(command("eval", {"--pp", "2", "--launch", "processes", "--ask", "no sum"}));
  BOOST_TEST(outcome.code == 2, outcome.err);
  BOOST_TEST(outcome.out == "");
  BOOST_TEST(count(outcome.err, "--ask") == 1, outcome.err);
}

// What cannot be divided is refused before anybody waits for anybody.
BOOST_AUTO_TEST_CASE(layouts_that_do_not_fit_are_refused_at_the_start) {
  if (!available()) return;
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--tp", "3"}, "--tp 3 does not divide"},
      {{"--dp", "3"}, "--batch-size 8 cannot be divided over --dp 3 ranks"},
      {{"--dp", "3", "--shard"}, "--batch-size 8 cannot be divided over --dp 3 ranks"},
      {{"--dp", "2", "--shard", "--grad-hook", "powersgd"}, "does not go with --shard"},
  };
  for (const auto& [flags, reason] : cases) {
    std::vector<std::string> words{"--steps", "2", "--launch", "processes"};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = run(command("train", words));
    BOOST_TEST(outcome.code == 2, outcome.err);
    BOOST_TEST(outcome.out == "");
    BOOST_TEST(count(outcome.err, reason) == 1, outcome.err);
    BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 200);  // not by the deadline
  }
}

BOOST_AUTO_TEST_CASE(another_number_of_ranks_than_were_started_is_refused) {
  const Outcome outcome = run(command("train", {"--pp", "2"}), {{"RANK", "0"}, {"WORLD_SIZE", "3"}});
  BOOST_TEST(outcome.code == 2);
  BOOST_TEST(outcome.err.find("torchrun has started 3 ranks, and 2 are asked for") != std::string::npos, outcome.err);
}

BOOST_AUTO_TEST_CASE(devices_tell_the_communicators_and_the_mesh) {
  const Json all = Json::parse(run({"devices", "--json", "--mesh", "2,2,1"}).out);
  BOOST_TEST(all["communicators"].size() >= 4);
  for (const Json& one : all["communicators"]) BOOST_TEST(!one["why"].get<std::string>().empty(), one["kind"]);
  BOOST_TEST(all["mesh"]["ranks"].size() == 4);
  const Outcome text = run({"devices", "--mesh", "2,2,1"});
  BOOST_TEST(text.out.find("4 ranks: pipeline 2 x data 2 x tensor 1") != std::string::npos, text.out);
  BOOST_TEST(run({"devices", "--mesh", "2,x"}).code == 2);
}

BOOST_AUTO_TEST_SUITE_END()
