// ppengine plan as docs/command_line.md describes it: what it prints, and what it says about wrong requests and broken files.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"

using ppengine::test::Outcome;
using ppengine::test::run;

namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}
Outcome plan(const std::string& arguments) { return run(words("plan " + arguments)); }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Exit code 2, nothing on stdout, one message that says what is wanted here.
void check_refused(const Outcome& outcome, const std::string& part) {
  BOOST_TEST(outcome.code == 2);
  BOOST_TEST(outcome.out == "");
  BOOST_TEST(outcome.err.starts_with("ppengine: "));
  BOOST_TEST(contains(outcome.err, part), outcome.err << " should contain " << part);
}

class PlanFile {
 public:
  explicit PlanFile(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  ~PlanFile() { std::filesystem::remove(path_); }
  PlanFile(const PlanFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / ("ppengine-plan-" + std::to_string(getpid()) + ".csv")).string();
};

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_command)

BOOST_AUTO_TEST_CASE(csv_is_what_pytorch_writes) {
  const Outcome outcome = plan("--schedule LoopedBFS --ranks 2 --stages 4 --microbatches 2 --format csv");
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(outcome.out == "0F0,0F1,2F0,2F1,,,2B1,2B0,0B1,0B0\r\n,1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\r\n");
  BOOST_TEST(outcome.err == "");
}

BOOST_AUTO_TEST_CASE(json_has_makespan_idle_share_and_actions) {
  const auto json = nlohmann::json::parse(plan("--schedule 1f1b --ranks 8 --stages 8 --microbatches 32 --format json").out);
  BOOST_TEST(json["makespan"].get<double>() == 117);
  BOOST_TEST(json["idle_share"].get<double>() == 7.0 / 39, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(json["ranks"][0]["peak_live_microbatches"].get<int>() == 8);
  BOOST_TEST(json["ranks"][0]["actions"].size() == 64);
  BOOST_TEST(json["ranks"][0]["actions"][8]["action"].get<std::string>() == "0B0");
  BOOST_TEST(json["ranks"][0]["actions"][8]["start"].get<double>() == 22);
  const auto lowered = nlohmann::json::parse(plan("--schedule 1f1b --ranks 2 --microbatches 2 --lower --json").out);
  BOOST_TEST(lowered["ranks"][0]["actions"][2]["action"].get<std::string>() == "0SEND_F0");
  BOOST_TEST(lowered["makespan"].get<double>() == 9);
}

BOOST_AUTO_TEST_CASE(costs_change_the_times) {
  auto makespan = [](const std::string& flags) {
    return nlohmann::json::parse(plan("--schedule gpipe --ranks 2 --microbatches 1 --format json " + flags).out)["makespan"].get<double>();
  };
  BOOST_TEST(makespan("--costs F=1,I=2,W=3,comm=0.5") == 13);
  BOOST_TEST(makespan("--costs comm=4") == 14);
}

BOOST_AUTO_TEST_CASE(text_is_the_default_and_colour_only_for_terminals) {
  const Outcome outcome = plan("--schedule 1f1b --ranks 4 --microbatches 4");
  BOOST_TEST(contains(outcome.out, "rank 3"));
  BOOST_TEST(contains(outcome.out, "makespan 21"));
  BOOST_TEST(!contains(outcome.out, "\x1b["));
  BOOST_TEST(contains(plan("--schedule 1f1b --ranks 4 --microbatches 4 --color always").out, "\x1b["));
}

BOOST_AUTO_TEST_CASE(pictures_and_out) {
  BOOST_TEST(plan("--schedule gpipe --ranks 2 --microbatches 2 --format svg").out.starts_with("<svg"));
  const PlanFile file("");
  const Outcome outcome = plan("--schedule gpipe --ranks 2 --microbatches 2 --format html --out " + file.path());
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(outcome.out == "");
  std::ifstream written(file.path());
  std::string first;
  std::getline(written, first);
  BOOST_TEST(first == "<!doctype html>");
  check_refused(plan("--schedule gpipe --ranks 2 --microbatches 2 --out /nowhere/x"), "/nowhere/x: cannot be written");
}

BOOST_AUTO_TEST_CASE(a_made_plan_passes_the_check_in_both_formats) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved1f1b", "loopedbfs", "interleavedzerobubble", "zbvzerobubble", "dualpipev",
                               "vhalf", "vmin", "auto", "forward"})
    for (const char* lowering : {"", " --lower", " --defer-recv", " --defer-recv --rendezvous"}) {
      const PlanFile file(plan(std::string("--ranks 3 --microbatches 6 --format csv --schedule ") + schedule + lowering).out);
      const Outcome outcome = plan("--check " + file.path() + " --microbatches 6");
      BOOST_TEST(outcome.code == 0, schedule << lowering << outcome.err);
      BOOST_TEST(contains(outcome.out, *lowering ? "valid (compute_comms)" : "valid (compute_only)"));
    }
}

BOOST_AUTO_TEST_CASE(a_broken_file_is_named_with_rank_column_cell_and_reason) {
  const auto check = [](const std::string& text, const std::string& part) {
    const PlanFile file(text);
    const Outcome outcome = plan("--check " + file.path() + " --microbatches 1");
    check_refused(outcome, file.path() + ": ");
    check_refused(outcome, part);
  };
  check("0F0,0Bx\n", "rank 0, column 1, cell \"0Bx\"");
  check("0F0,0F0,0B0\n", "rank 0, column 1, cell \"0F0\": the same action");
  check("0F0,0B0\n1F0,1B1\n", "rank 1, column 1, cell \"1B1\": microbatch 1 is out of range");
  check("0F0,0B0,0I0,0W0\n", "both B and I");
  check("0F0,0B0\n1B0,1F0\n", "rank 1, column 0, cell \"1B0\"");
  check("0F0,0SEND_F0,0B0\n1F0,1B0\n", "rank 0, column 2, cell \"0B0\"");
  check("1F0,0F0,1B0,0B0\n", "deadlock");
  check("0F0,0B0\n2F0,2B0\n", "stage 1");
  check("", "no actions");
  check_refused(plan("--check /nowhere.csv --microbatches 1"), "/nowhere.csv: ");
  check_refused(plan("--check /tmp --microbatches 1"), "/tmp: ");
}

BOOST_AUTO_TEST_CASE(impossible_requests_are_refused_at_once) {
  const auto begin = std::chrono::steady_clock::now();
  check_refused(plan("--schedule zbvzerobubble --ranks 4 --stages 12 --microbatches 8"), "exactly 2 stages per rank");
  check_refused(plan("--schedule interleaved1f1b --ranks 4 --stages 6 --microbatches 8"), "multiple of 4");
  check_refused(plan("--schedule 1f1b --ranks 4 --stages 4 --microbatches 0"), "microbatches");
  check_refused(plan("--schedule 1f1b --ranks 4 --stages 4"), "microbatches");
  check_refused(plan("--schedule 1f1b --stages 4 --microbatches 4"), "ranks");
  check_refused(plan("--schedule 1f1b --ranks 4 --stages 4 --microbatches -1"), "microbatches");
  check_refused(plan("--schedule gpipe --ranks 1000000000 --stages 1000000000 --microbatches 1000000000"), "ranks");
  check_refused(plan("--schedule gpipe --ranks 1000 --stages 1000 --microbatches 16000000"), "actions");
  check_refused(plan("--schedule gpipe --ranks 4 --stages 4 --microbatches 99999999999999999999"), "microbatches");
  check_refused(plan("--schedule gpipe --ranks four --microbatches 4"), "ranks");
  check_refused(plan("--schedule unheard --ranks 4 --microbatches 4"), "unknown schedule \"unheard\"");
  check_refused(plan("--ranks 4 --microbatches 4"), "--schedule");
  check_refused(plan("--schedule gpipe --ranks 2 --microbatches 2 --costs F=x"), "F=x");
  check_refused(plan("--schedule gpipe --ranks 2 --microbatches 2 --costs B=2"), "I + W");
  check_refused(plan("--schedule gpipe --ranks 2 --microbatches 2 --overlap-factor 2"), "overlap factor");
  check_refused(plan("--schedule gpipe --ranks 2 --microbatches 2 --format pdf"), "pdf");
  BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 20);
}

BOOST_AUTO_TEST_CASE(flags_have_environment_twins) {
  const Outcome outcome =
      run({"plan"}, {{"PPENGINE_SCHEDULE", "gpipe"}, {"PPENGINE_RANKS", "1"}, {"PPENGINE_MICROBATCHES", "1"}, {"PPENGINE_FORMAT", "csv"}});
  BOOST_TEST(outcome.out == "0F0,0B0\r\n");
}

BOOST_AUTO_TEST_SUITE_END()
