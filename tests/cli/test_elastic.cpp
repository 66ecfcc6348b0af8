// Elastic runs: ranks that are killed cost nothing but time. Reference: a run that nothing happened to.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "processes.hpp"

using namespace ppengine::test;
namespace fs = std::filesystem;

namespace {

struct Place {
  fs::path path = fs::temp_directory_path() / ("ppengine-elastic-" + std::to_string(getpid()));
  Place() { fs::create_directories(path); }
  ~Place() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> elastic(const std::vector<std::string>& layout, const std::string& save, int steps) {
  std::vector<std::string> words{
      "train",     "--model",   "demo", "--data",  "task:addition",       "--seq-len", "10", "--batch-size", "12", "--json", "--launch",
      "processes", "--timeout", "100",  "--steps", std::to_string(steps), "--save",    save};
  words.insert(words.end(), layout.begin(), layout.end());
  return words;
}

// One line per step, in order; one that was being printed by a rank that was killed may stand there twice.
void check_steps(const Outcome& outcome, int steps) {
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  auto found = lines(outcome.out);
  const auto printed = found.size();
  found.erase(std::unique(found.begin(), found.end(), [](const Json& a, const Json& b) { return a["step"] == b["step"]; }), found.end());
  BOOST_TEST(printed <= found.size() + 1);
  BOOST_REQUIRE_EQUAL(found.size(), static_cast<std::size_t>(steps));
  for (int i = 0; i < steps; ++i) BOOST_TEST(found[static_cast<std::size_t>(i)]["step"].get<int>() == i + 1);
}

void check_equal(const fs::path& a, const fs::path& b) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string first = bytes_of(a / file);
    BOOST_TEST(first.size() > 1000u);
    BOOST_CHECK_MESSAGE(first == bytes_of(b / file), (a / file).string() << " and " << (b / file).string() << " differ");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(elastic_runs)

BOOST_AUTO_TEST_CASE(killed_ranks_are_replaced_and_the_weights_are_those_of_a_run_without_losses) {
  if (!available()) return;
  const Place place;
  constexpr int steps = 60;
  const std::vector<std::pair<std::vector<std::string>, std::size_t>> layouts_and_victims{
      {{"--dp", "3"}, 0}, {{"--dp", "2", "--pp", "2", "--microbatches", "2", "--grad-clip", "0.5"}, 2}};
  for (const auto& [layout, victim] : layouts_and_victims) {
    const std::string plain = place / "plain", lossy = place / "lossy";
    check_steps(run(elastic(layout, plain, steps)), steps);
    auto words = elastic(layout, lossy, steps);
    words.insert(words.end(), {"--elastic", "1"});
    const std::size_t rank = victim;
    const Outcome outcome = run(words, {}, "\"step\":20,", [&](int launcher) { kill(children(launcher).at(rank), SIGKILL); });
    check_steps(outcome, steps);
    BOOST_TEST(count(outcome.err, "going on from memory after step ") == 1u, outcome.err);
    check_equal(plain, lossy);
    for (const std::string& one : {plain, lossy}) fs::remove_all(one);
  }
}

// The same numbers of replicas, step by step, as one who stops and resumes.
BOOST_AUTO_TEST_CASE(the_others_go_on_alone_until_a_replica_returns) {
  if (!available()) return;
  const Place place;
  const std::string lossy = place / "lossy", staged = place / "staged";
  constexpr int steps = 1200;
  auto words = elastic({"--dp", "3", "--elastic", "2", "--elastic-return", "0.3"}, lossy, steps);
  const Outcome outcome = run(words, {}, "\"step\":20,", [&](int launcher) { kill(children(launcher).at(1), SIGKILL); });
  check_steps(outcome, steps);
  const std::string two = "going on from memory after step ", text = outcome.err;
  const auto step_before = [&](const std::string& replicas) {
    const auto end = text.find(" with " + replicas + " of 3 replicas");
    BOOST_REQUIRE_MESSAGE(end != std::string::npos, text);
    const auto begin = text.rfind(two, end) + two.size();
    return std::stoi(text.substr(begin, end - begin));
  };
  const int lost_at = step_before("2"), back_at = step_before("3");
  BOOST_TEST(lost_at >= 20);
  BOOST_TEST(back_at > lost_at);
  BOOST_REQUIRE(back_at < steps);
  BOOST_REQUIRE(run(elastic({"--dp", "3"}, staged, lost_at)).code == 0);
  for (const auto& [replicas, until] : {std::pair{"2", back_at}, std::pair{"3", steps}}) {
    auto more = elastic({"--dp", replicas, "--resume", staged}, staged, until);
    const Outcome resumed = run(more);
    BOOST_REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  }
  check_equal(staged, lossy);
}

BOOST_AUTO_TEST_CASE(a_run_ends_when_too_few_replicas_are_left) {
  if (!available()) return;
  const Place place;
  auto words = elastic({"--dp", "3", "--elastic", "2"}, place / "out", 100000);
  const Outcome outcome = run(words, {}, "\"step\":5,", [&](int launcher) {
    const auto ranks = children(launcher);
    kill(ranks.at(0), SIGKILL), kill(ranks.at(2), SIGKILL);
  });
  BOOST_TEST(outcome.code == 4, outcome.err);
  BOOST_TEST(outcome.err.find("--elastic wants 2") != std::string::npos, outcome.err);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_elastic_is_refused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--dp", "2", "--elastic", "1"}, "--launch processes"},
      {{"--dp", "2", "--elastic", "2", "--launch", "processes"}, "none may be lost"},
      {{"--dp", "2", "--elastic", "1", "--launch", "processes", "--shard"}, "--shard"},
      {{"--dp", "2", "--elastic", "1", "--launch", "processes", "--hosts", "localhost"}, "--hosts"}};
  for (const auto& [more, said] : cases) {
    std::vector<std::string> words{"train", "--model", "demo", "--data", "synthetic", "--steps", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    BOOST_TEST(outcome.code == 2, outcome.err);
    BOOST_TEST(outcome.err.find(said) != std::string::npos, outcome.err);
  }
}

BOOST_AUTO_TEST_SUITE_END()
