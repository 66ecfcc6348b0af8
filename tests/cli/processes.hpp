// Helpers of the tests of ranks as processes.
#pragma once

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"

namespace ppengine::test {

using Json = nlohmann::json;

// Only a build without oneCCL may skip: where its module was built, it has to work.
inline bool available() {
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

inline std::vector<std::string> command(const std::string& which, const std::vector<std::string>& more) {
  std::vector<std::string> words{which, "--model", "demo", "--data", "task:addition", "--seq-len", "10", "--batch-size", "8", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  // A long deadline: a rank that gets no time on a busy machine is not lost. A killed one is noticed at once.
  if (std::ranges::find(more, "--timeout") == more.end()) words.insert(words.end(), {"--timeout", "300"});
  return words;
}

inline std::vector<Json> lines(const std::string& text) {
  std::vector<Json> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(Json::parse(line));
  return result;
}

// What does not depend on time, step by step.
inline std::vector<std::pair<double, double>> losses(const Outcome& outcome) {
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::vector<std::pair<double, double>> result;
  for (const Json& step : lines(outcome.out)) result.emplace_back(step["loss"], step["grad_norm"]);
  return result;
}

// The processes that a process has started, in order.
inline std::vector<int> children(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/children");
  std::vector<int> result;
  for (int child = 0; file >> child;) result.push_back(child);
  return result;
}

// Those that any of its threads has started.
inline std::vector<int> children_of_all_threads(int process) {
  std::vector<int> result;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::ifstream file(thread.path() / "children");
    for (int child = 0; file >> child;) result.push_back(child);
  }
  return result;
}

inline bool any_left(const std::vector<int>& processes) {
  for (const int one : processes)
    if (kill(one, 0) == 0) return true;
  return false;
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace ppengine::test
