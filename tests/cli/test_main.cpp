// What holds for every command: exit codes, where text goes, the environment, the TOML file. From docs/command_line.md.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

#include "run.hpp"

using ppengine::test::Outcome;
using ppengine::test::run;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A TOML file that is gone at the end of the test.
class TomlFile {
 public:
  explicit TomlFile(const std::string& text) { std::ofstream(path_) << text; }
  ~TomlFile() { std::filesystem::remove(path_); }
  TomlFile(const TomlFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / ("ppengine-test-" + std::to_string(getpid()) + ".toml")).string();
};

void check_usage_error(const Outcome& outcome, const std::string& part) {
  BOOST_TEST(outcome.code == 2);
  BOOST_TEST(outcome.out == "");
  BOOST_TEST(contains(outcome.err, part), outcome.err << " should contain " << part);
}

bool is_json(const std::string& text) { return nlohmann::json::accept(text); }

}  // namespace

BOOST_AUTO_TEST_SUITE(command_line)

BOOST_AUTO_TEST_CASE(version_names_commit_compiler_and_libraries) {
  const Outcome outcome = run({"--version"});
  BOOST_TEST(outcome.code == 0);
  for (const char* part : {"ppengine 0.", "commit ", "compiler ", "SYCL ", "oneDNN ", "oneCCL "}) BOOST_TEST(contains(outcome.out, part));
  BOOST_TEST(outcome.err == "");
}

BOOST_AUTO_TEST_CASE(help_goes_to_stdout_and_ends_with_examples) {
  for (const auto& arguments : {std::vector<std::string>{"--help"}, {"devices", "--help"}}) {
    const Outcome outcome = run(arguments);
    BOOST_TEST(outcome.code == 0);
    BOOST_TEST(contains(outcome.out, "Usage: ppengine"));
    BOOST_TEST(contains(outcome.out, "Examples:"));
    BOOST_TEST(contains(outcome.out, "PPENGINE_SEQ_LEN"));
    BOOST_TEST(outcome.err == "");
  }
}

BOOST_AUTO_TEST_CASE(no_arguments_show_help_as_an_error) { check_usage_error(run({}), "Usage: ppengine"); }

BOOST_AUTO_TEST_CASE(an_unknown_command_or_flag_is_a_usage_error_with_a_suggestion) {
  check_usage_error(run({"devcies"}), "there is no command 'devcies'; did you mean 'devices'?");
  check_usage_error(run({"xyzzy"}), "there is no command 'xyzzy'\n");
  check_usage_error(run({"devices", "--jsno"}), "there is no flag '--jsno'; did you mean '--json'?");
  check_usage_error(run({"devices", "surplus"}), "unexpected argument 'surplus'");
  check_usage_error(run({"devices", "--jsno"}), "'ppengine devices --help'");
}

BOOST_AUTO_TEST_CASE(devices_prints_json_on_stdout_only) {
  const Outcome outcome = run({"devices", "--json"});
  BOOST_REQUIRE(outcome.code == 0);
  const auto result = nlohmann::json::parse(outcome.out);
  BOOST_REQUIRE(!result["devices"].empty());
  for (const char* key : {"selector", "backend", "name", "memory_bytes", "onednn"}) BOOST_TEST(result["devices"][0].contains(key));
}

BOOST_AUTO_TEST_CASE(every_flag_has_an_environment_twin) {
  BOOST_TEST(is_json(run({"devices"}, {{"PPENGINE_JSON", "true"}}).out));
  BOOST_TEST(!is_json(run({"devices"}, {{"PPENGINE_JSON", "false"}}).out));
  BOOST_TEST(!is_json(run({"devices"}, {{"PPENGINE_JSON", ""}}).out));
}

BOOST_AUTO_TEST_CASE(a_bad_value_in_the_environment_names_the_variable) {
  check_usage_error(run({"devices"}, {{"PPENGINE_JSON", "maybe"}}), "PPENGINE_JSON: ");
  check_usage_error(run({"devices"}, {{"PPENGINE_LOG_LEVEL", "loud"}}), "PPENGINE_LOG_LEVEL: ");
}

BOOST_AUTO_TEST_CASE(flags_can_stand_in_a_toml_file) {
  for (const char* text : {"json = true\n", "[devices]\njson = true\n", "# comment\nlog_level = 'error'\ndevices = {json = true}\n"}) {
    const TomlFile file(text);
    BOOST_TEST(is_json(run({"--config", file.path(), "devices"}).out), text);
    BOOST_TEST(is_json(run({"devices", "--config=" + file.path()}).out), text);
    BOOST_TEST(is_json(run({"devices"}, {{"PPENGINE_CONFIG", file.path()}}).out), text);
  }
}

BOOST_AUTO_TEST_CASE(typed_flags_win_over_the_environment_and_that_over_the_file) {
  const TomlFile file("json = true\n");
  BOOST_TEST(!is_json(run({"devices", "--config", file.path()}, {{"PPENGINE_JSON", "false"}}).out));
  BOOST_TEST(is_json(run({"devices", "--json", "--config", file.path()}, {{"PPENGINE_JSON", "false"}}).out));
  // Flags that exclude each other do not meet: the typed one is taken.
  BOOST_TEST(run({"devices", "-v"}, {{"PPENGINE_LOG_LEVEL", "error"}}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_wrong_toml_file_is_named_with_its_line) {
  check_usage_error(run({"devices", "--config", "/nowhere.toml"}), "/nowhere.toml: ");
  const auto check = [](const char* text, const std::string& line, const std::string& part) {
    const TomlFile file(text);
    const Outcome outcome = run({"devices", "--config", file.path()});
    check_usage_error(outcome, file.path() + ":" + line + ": ");
    check_usage_error(outcome, part);
  };
  check("json = true\nx = [1,\n", "2", "not TOML");
  check("\nsurprise = 1\n", "2", "'surprise' is not a flag of 'devices'");
  check("[devices]\nsurprise = 1\n", "2", "'surprise' is not a flag of 'devices'");
  check("[devcies]\njson = true\n", "1", "there is no command 'devcies'");
  check("json = 1979-05-27\n", "1", "a flag's value is");
  check("json = 'maybe'\n", "1", "maybe");
}

BOOST_AUTO_TEST_CASE(a_result_that_cannot_be_written_is_a_failure) {
  for (const char* arguments : {"--version", "train --model demo --data synthetic --steps 1 --json"}) {
    const std::string command = std::string(PPENGINE_BINARY) + " " + arguments + " >/dev/full 2>/dev/null";
    BOOST_TEST(WEXITSTATUS(std::system(command.c_str())) == 1);
  }
}

BOOST_AUTO_TEST_CASE(an_interrupted_command_ends_with_130) {
  const Outcome outcome = run({"bench", "ops", "--preset", "mid"}, {}, "large matmul");
  BOOST_TEST(outcome.code == 130);
}

BOOST_AUTO_TEST_SUITE_END()
