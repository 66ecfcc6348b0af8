// Ranks as processes: the same results as with threads, and what happens when one is lost or the run is interrupted. From cli.md.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

#include "run.hpp"

using ppengine::test::Outcome;
using ppengine::test::run;
using Json = nlohmann::json;

namespace {

// Only a build without oneCCL may skip: where its module was built, it has to work.
bool available() {
#ifdef PPENGINE_HAS_ONECCL_CPU
  const Outcome outcome = run({"devices", "--json"});
  const Json all = Json::parse(outcome.out);
  for (const Json& one : all["communicators"])
    if (one["kind"] == "oneccl-cpu") BOOST_REQUIRE_MESSAGE(one["usable"].get<bool>(), one["why"].get<std::string>());
  return true;
#else
  BOOST_TEST_MESSAGE("skipped: built without the oneCCL CPU communicator");
  return false;
#endif
}

std::vector<std::string> command(const std::string& which, const std::vector<std::string>& more) {
  // A long deadline: a rank that gets no time on a busy machine is not lost. A killed one is noticed at once.
  std::vector<std::string> words{which, "--model",      "demo", "--data", "task:addition", "--seq-len",
                                 "10",  "--batch-size", "8",    "--json", "--timeout",     "100"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<Json> lines(const std::string& text) {
  std::vector<Json> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(Json::parse(line));
  return result;
}

// What does not depend on time, step by step.
std::vector<std::pair<double, double>> losses(const Outcome& outcome) {
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::vector<std::pair<double, double>> result;
  for (const Json& step : lines(outcome.out)) result.emplace_back(step["loss"], step["grad_norm"]);
  return result;
}

// The processes that a process has started, in order.
std::vector<int> children(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/children");
  std::vector<int> result;
  for (int child = 0; file >> child;) result.push_back(child);
  return result;
}

bool any_left(const std::vector<int>& processes) {
  for (const int one : processes)
    if (kill(one, 0) == 0) return true;
  return false;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ranks_as_processes)

// Sums of two ranks are the same in either order, so the numbers are too, bit for bit.
BOOST_AUTO_TEST_CASE(training_gives_the_losses_of_threads) {
  if (!available()) return;
  for (const char* axis : {"--pp", "--dp"}) {
    const auto with_threads = losses(run(command("train", {axis, "2", "--steps", "3"})));
    const auto with_processes = losses(run(command("train", {axis, "2", "--steps", "3", "--launch", "processes"})));
    BOOST_REQUIRE(with_threads.size() == 3);
    BOOST_REQUIRE(with_processes.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      BOOST_TEST(with_processes[i].first == with_threads[i].first, axis << " 2, step " << i + 1);
      BOOST_TEST(with_processes[i].second == with_threads[i].second, boost::test_tools::tolerance(1e-5));
    }
  }
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
  const auto start = [port = std::to_string(20000 + getpid() % 20000)](const std::string& rank) {
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

BOOST_AUTO_TEST_CASE(a_killed_rank_ends_all_with_4_and_one_message) {
  if (!available()) return;
  for (const size_t victim : {size_t{0}, size_t{1}}) {
    std::vector<int> ranks;
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome =
        run(command("train", {"--pp", "2", "--steps", "1000000", "--launch", "processes"}), {}, "\"step\":3,", [&](int launcher) {
          ranks = children(launcher);
          if (ranks.size() == 2) kill(ranks[victim], SIGKILL);
        });
    BOOST_REQUIRE(ranks.size() == 2);
    BOOST_TEST(outcome.code == 4, outcome.err);
    BOOST_TEST(count(outcome.err, "rank " + std::to_string(victim) + " failed: its process has ended") == 1, outcome.err);
    BOOST_TEST(count(outcome.err, "ppengine: ") == 1, outcome.err);
    BOOST_TEST(!any_left(ranks));
    BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 60);
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
