// Devices on the command line: selectors that are wrong, the CPU in the place of GPUs, the type that GPUs compute in.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <sstream>

#include "run.hpp"

using namespace ppengine::test;
using nlohmann::json;

namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string one; in >> one;) all.push_back(one);
  return all;
}

const std::map<std::string, std::string> two_gpus{{"PPENGINE_STANDIN_GPUS", "2"}};

std::vector<double> losses(const std::string& flags, const std::map<std::string, std::string>& environment = two_gpus) {
  const Outcome outcome =
      run(words("train --model demo --data synthetic --seq-len 10 --batch-size 4 --steps 3 --json " + flags), environment);
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, flags << ": " << outcome.err);
  std::vector<double> all;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line).at("loss").get<double>());
  BOOST_REQUIRE(all.size() == 3);
  return all;
}

double apart(const std::vector<double>& one, const std::vector<double>& other) {
  double most = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    if (const double share = std::abs(one[i] - other[i]) / other[i]; !(share <= most)) most = share;
  return most;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(devices)

BOOST_AUTO_TEST_CASE(a_wrong_selector_in_the_environment_is_named_and_ends_with_3) {
  for (const char* command : {"devices --json", "train --model demo --data synthetic --steps 1"}) {
    const Outcome outcome = run(words(command), {{"ONEAPI_DEVICE_SELECTOR", "nonsense"}});
    BOOST_TEST(outcome.code == 3, outcome.err);
    BOOST_TEST(outcome.out.empty());
    BOOST_TEST(outcome.err.find("ONEAPI_DEVICE_SELECTOR=nonsense") != std::string::npos, outcome.err);
  }
}

BOOST_AUTO_TEST_CASE(devices_that_are_not_there_end_with_3) {
  for (const char* device : {"gpu", "cuda:0", "cpu:7", "standin", "cpu:x", "cpu,gpu", "cpu:0,,cpu:0"}) {
    const Outcome outcome = run({"train", "--model", "demo", "--data", "synthetic", "--steps", "1", "--device", device});
    BOOST_TEST(outcome.code == 3, device << ": " << outcome.err);
    BOOST_TEST(outcome.out.empty());
  }
}

BOOST_AUTO_TEST_CASE(stand_ins_are_listed_as_gpus) {
  const json listed = json::parse(run({"devices", "--json"}, two_gpus).out).at("devices");
  BOOST_REQUIRE(listed.size() == 3);
  BOOST_TEST(listed.at(1).at("selector") == "standin:0");
  BOOST_TEST(listed.at(2).at("type") == "gpu");
  BOOST_TEST(listed.at(2).at("onednn") == false);
}

// The same numbers wherever they are computed: reference is the CPU device.
BOOST_AUTO_TEST_CASE(gpus_train_as_the_cpu_does_as_threads_and_processes) {
  const auto expected = losses("");
  for (const char* flags : {"--device standin", "--device gpu --pp 2", "--device standin --dp 2 --shard",
                            "--device standin:1,standin:0 --pp 2 --schedule zbvzerobubble", "--device standin --pp 2 --launch processes"})
    BOOST_TEST(apart(losses(std::string(flags) + " --dtype f32"), expected) < 1e-5, flags);
}

BOOST_AUTO_TEST_CASE(gpus_compute_in_bf16_where_nobody_says_otherwise) {
  const auto chosen = losses("--device standin"), bf16 = losses("--device standin --dtype bf16"),
             f32 = losses("--device standin --dtype f32");
  BOOST_TEST(chosen == bf16, boost::test_tools::per_element());
  BOOST_TEST(apart(bf16, f32) > 0.0);
  BOOST_TEST(apart(bf16, f32) < 1e-2);
  BOOST_TEST(losses("--device cpu") == losses("--device cpu --dtype f32"), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
