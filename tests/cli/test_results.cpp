// Nothing but results reaches stdout, whatever libraries print there.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"

using ppengine::test::Outcome;
using ppengine::test::run;
using ppengine::test::run_program;

namespace {

// Empty where nothing can be preloaded.
const std::string library = PPENGINE_NOISY_LIBRARY;
const std::map<std::string, std::string> noisy{{"LD_PRELOAD", library}};

// Every line of a noisy run's stdout is JSON, and the noise is on stderr.
std::vector<nlohmann::json> lines_of(const Outcome& outcome) {
  BOOST_TEST(outcome.code == 0, outcome.err);
  for (const char* way : {"noise: written", "noise: printed\n", "noise: streamed", "noise: printed at the end"})
    BOOST_TEST((library.empty() || outcome.err.find(way) != std::string::npos), way);
  std::vector<nlohmann::json> lines;
  std::istringstream text(outcome.out);
  for (std::string line; std::getline(text, line);) {
    BOOST_TEST(nlohmann::json::accept(line), line);
    if (nlohmann::json::accept(line)) lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(results)

BOOST_AUTO_TEST_CASE(what_a_library_prints_goes_to_stderr) {
  const auto devices = lines_of(run({"devices", "--json"}, noisy));
  BOOST_REQUIRE(devices.size() == 1);
  BOOST_TEST(devices[0].contains("devices"));
  const auto losses = lines_of(run({"eval", "--model", "demo", "--data", "synthetic", "--sequences", "1", "--json"}, noisy));
  BOOST_REQUIRE(losses.size() == 1);
  BOOST_TEST(losses[0].contains("loss"));
  const Outcome help = run({"--help"}, noisy);
  BOOST_TEST(help.out.starts_with("ppengine trains"), help.out);
  BOOST_TEST(run({"--version"}, noisy).out.starts_with("ppengine "));
}

BOOST_AUTO_TEST_CASE(onednn_can_be_asked_what_it_runs) {
  const Outcome outcome = run({"eval", "--model", "demo", "--data", "synthetic", "--sequences", "1", "--json"}, {{"ONEDNN_VERBOSE", "1"}});
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(nlohmann::json::parse(outcome.out).contains("loss"));
  BOOST_TEST(outcome.err.find("onednn_verbose") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(ranks_of_their_own_process_print_to_the_launchers_stdout) {
  const auto steps = lines_of(run({"train", "--model", "demo", "--data", "synthetic", "--seq-len", "16", "--steps", "2", "--pp", "2",
                                   "--microbatches", "2", "--batch-size", "2", "--launch", "processes", "--json"},
                                  noisy));
  BOOST_REQUIRE(steps.size() == 2);
  BOOST_TEST(steps[1]["step"] == 2);
}

BOOST_AUTO_TEST_CASE(stdout_can_be_named_as_a_file) {
  const std::string table = run({"plan", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--format", "csv"}).out;
  BOOST_TEST(!table.empty());
  for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
    BOOST_TEST(
        run({"plan", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--format", "csv", "--out", name}, noisy).out == table,
        name);
}

BOOST_AUTO_TEST_CASE(a_result_that_nobody_takes_is_a_failure) {
  const auto shell = [](const std::string& redirection) {
    return run_program("/bin/sh", {"-c", "exec \"$0\" plan --schedule 1f1b --ranks 2 --microbatches 2 " + redirection, PPENGINE_BINARY});
  };
  for (const char* redirection : {">&-", ">/dev/full"}) {
    const Outcome outcome = shell(redirection);
    BOOST_TEST(outcome.code == 1, redirection);
    BOOST_TEST(outcome.err.find("could not be written") != std::string::npos, outcome.err);
  }
  BOOST_TEST(shell("2>&-").code == 0);  // without a stderr, results still come
  BOOST_TEST(!shell("2>&-").out.empty());
}

// A reader that leaves early ends the program, as it does any program, and not with an error message.
BOOST_AUTO_TEST_CASE(a_reader_that_leaves_ends_the_program) {
  const Outcome outcome =
      run_program("/bin/sh", {"-c", "\"$0\" train --model demo --data synthetic --steps 100000 --json | head -n 1", PPENGINE_BINARY});
  BOOST_TEST(outcome.code == 0);  // of head
  BOOST_TEST(nlohmann::json::parse(outcome.out)["step"] == 1);
  BOOST_TEST(outcome.err.find("terminate") == std::string::npos, outcome.err);
}

// What a run has learned outlives whoever was reading, and a disk that is full of its output.
BOOST_AUTO_TEST_CASE(a_run_that_nobody_reads_saves_before_it_ends) {
  const auto folder = std::filesystem::temp_directory_path() / ("ppengine-unread-" + std::to_string(getpid()));
  for (const char* ranks : {"", " --pp 2", " --pp 2 --launch processes"})
    for (const char* unread : {" --json | head -n 1", " --json >/dev/full", " 2>&1 | head -n 1"}) {
      std::filesystem::remove_all(folder);
      const Outcome outcome =
          run_program("/bin/sh", {"-c",
                                  std::string("\"$0\" train --model demo --data synthetic --batch-size 4 --steps 100000 --save ") +
                                      folder.string() + ranks + unread,
                                  PPENGINE_BINARY});
      BOOST_TEST(std::filesystem::exists(folder / "trainer_state.json"), ranks << unread << ": " << outcome.err);
      if (std::string(unread).find("full") == std::string::npos) continue;
      BOOST_TEST(outcome.code == 1, ranks << unread);
      BOOST_TEST(outcome.err.find("stdout takes no more results") != std::string::npos, outcome.err);
    }
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(a_run_does_not_depend_on_its_stderr) {
  for (const char* closed : {"2>/dev/full", "2>&-"}) {
    const Outcome outcome =
        run_program("/bin/sh", {"-c", std::string("exec \"$0\" train --model demo --data synthetic --steps 2 ") + closed, PPENGINE_BINARY});
    BOOST_TEST(outcome.code == 0, closed);
    BOOST_TEST(outcome.out.starts_with("done at step 2"), outcome.out);
  }
}

BOOST_AUTO_TEST_CASE(quiet_says_nothing_but_errors) {
  const Outcome outcome = run({"train", "--model", "demo", "--data", "synthetic", "--steps", "2", "--quiet"});
  BOOST_TEST(outcome.out.starts_with("done at step 2"), outcome.out);
  BOOST_TEST(outcome.err == "", outcome.err);
}

// Whoever adds a command and prints with fmt::print would print to stderr.
BOOST_AUTO_TEST_CASE(commands_print_through_print_result_alone) {
  for (const auto& entry : std::filesystem::directory_iterator(PPENGINE_CLI_SOURCES)) {
    if (entry.path().extension() != ".cpp" || entry.path().filename() == "results.cpp") continue;
    std::ifstream source(entry.path());
    for (std::string line; std::getline(source, line);) {
      const auto printed = line.find("fmt::print(");
      const bool named = printed != std::string::npos && line.compare(printed + 11, 6, "stderr") == 0;
      BOOST_TEST((printed == std::string::npos || named), entry.path().filename().string() << ": " << line);
      for (const char* other : {"std::cout", "puts(", " printf(", "stdout)"})
        BOOST_TEST((line.find(other) == std::string::npos || line.find("stderr") != std::string::npos), entry.path().filename().string()
                                                                                                            << ": " << line);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
