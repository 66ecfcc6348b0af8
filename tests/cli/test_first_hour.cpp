// What a new user meets: flags that belong to another command, slips of typing, resuming, help, charts in a window, the cache.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"

using nlohmann::json;
using ppengine::test::Outcome;
using ppengine::test::run;
using ppengine::test::run_program;

namespace {

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "ppengine-hour-XXXXXX").string()) { BOOST_REQUIRE(mkdtemp(path_.data())); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}
Outcome program(const std::string& arguments, const std::map<std::string, std::string>& environment = {}) {
  return run(words(arguments), environment);
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
void check_refused(const std::string& arguments, const std::string& part) {
  const Outcome outcome = program(arguments);
  BOOST_TEST(outcome.code == 2, arguments);
  BOOST_TEST(outcome.out == "", arguments);
  BOOST_TEST(contains(outcome.err, part), arguments << ": " << outcome.err << " should contain " << part);
}
std::vector<json> lines(const std::string& text) {
  std::vector<json> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(json::parse(line));
  return result;
}

// A shell pipeline in which the program has a terminal of so many columns.
Outcome in_terminal(int columns, const std::string& term, const std::string& arguments) {
  const std::string command = "stty cols " + std::to_string(columns) + "; TERM=" + term + " " + PPENGINE_BINARY + " " + arguments;
  return run_program("/usr/bin/script", {"-qec", command, "/dev/null"});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(first_hour)

BOOST_AUTO_TEST_CASE(each_command_refuses_flags_of_others_and_says_whose_they_are) {
  check_refused("generate --model tiny --ids 1 --shard",
                "'--shard' is not a flag of generate: it is one of train, eval, inspect, plan, bench train");
  check_refused("generate --model tiny --ids 1 --schedule gpipe", "'--schedule' is not a flag of generate");
  check_refused("generate --model tiny --ids 1 --microbatches 4", "'--microbatches' is not a flag of generate");
  check_refused("generate --model tiny --ids 1 --dp 2", "'--dp' is not a flag of generate");
  check_refused("bench generate --plan x.csv", "'--plan' is not a flag of bench generate");
  check_refused("eval --model tiny --data synthetic --balance measured", "'--balance' is not a flag of eval");
  check_refused("eval --model tiny --data synthetic --lr 1", "'--lr' is not a flag of eval: it is one of train");
}

BOOST_AUTO_TEST_CASE(a_wrong_value_is_named_with_what_is_wrong_with_it) {
  const std::string train = "train --model demo --data synthetic ";
  check_refused(train + "--steps abc", "--steps: 'abc' is not a number");
  check_refused(train + "--steps 1.5", "--steps: '1.5' is not a whole number");
  check_refused(train + "--steps 0", "--steps: 0 is not between 1 and ");
  check_refused(train + "--steps", "--steps needs a value");
  check_refused(train + "--steps 1 --steps 2", "--steps was given more than once");
  check_refused(train + "--seed abc", "--seed: 'abc' is not a number");
  check_refused("inspect demo --dp \x1b[31m", "--dp: '?[31m' is not a number");  // nothing that would colour the terminal
  check_refused(train + "--schedule gpipe --plan x", "--schedule cannot go with --plan");
  check_refused(train + "--save-every 3", "--save-every needs --save");
  check_refused(train + "--tp 3",
                "--tp 3 does not divide the 128 outputs of a section of transformer.h.0.attn.c_attn, which has 384 in 3 sections");
  check_refused("plan --schedule 1f1b --microbatches 4", "--ranks is required");
  check_refused("plan --schedule 1f1b --ranks 4", "--microbatches is required");
  check_refused("plan --schedule 1f1b --ranks 2 --microbatches 4 --out /tmp/x.pdf", "written as .csv, .json, .svg, .html or .txt");
  check_refused("bench", "a command is missing: one of");
}

BOOST_AUTO_TEST_CASE(a_misspelt_variable_is_warned_of) {
  const Outcome outcome = program("plan --schedule 1f1b --ranks 2 --microbatches 2", {{"PPENGINE_STPES", "3"}});
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(contains(outcome.err, "PPENGINE_STPES is no flag of any command and is not used; did you mean PPENGINE_STEPS?"), outcome.err);
  // Flags of other commands are fine: variables are set once for all.
  BOOST_TEST(program("plan --schedule 1f1b --ranks 2 --microbatches 2", {{"PPENGINE_SHARD", "1"}, {"PPENGINE_CACHE", "/tmp"}}).err == "");
}

BOOST_AUTO_TEST_CASE(interleaved_schedules_have_two_stages_a_rank_by_default) {
  for (const char* schedule : {"interleaved1f1b", "loopedbfs", "zbvzerobubble"}) {
    const std::string request = std::string("plan --schedule ") + schedule + " --ranks 2 --microbatches 4 --format csv";
    const Outcome made = program(request);
    BOOST_TEST(made.code == 0);
    BOOST_TEST(made.out == program(request + " --stages 4").out);
    BOOST_TEST(contains(made.out, "3F0"));
  }
}

BOOST_AUTO_TEST_CASE(a_plan_file_sets_the_ranks_of_the_pipeline) {
  const Folder folder;
  BOOST_REQUIRE(program("plan --schedule 1f1b --ranks 2 --microbatches 4 --out " + (folder / "plan.csv")).code == 0);
  const std::string train = "train --model demo --data synthetic --seq-len 10 --steps 1 --json --plan " + (folder / "plan.csv");
  const Outcome outcome = program(train);
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  BOOST_TEST(lines(outcome.out).at(0).at("stages").size() == 2u);
  check_refused(train + " --pp 3", "plan.csv has 2 rows, and --pp is 3");
}

// What the whole run does in 6 steps, one that was stopped after 3 does too with nothing but --resume.
BOOST_AUTO_TEST_CASE(resuming_restores_what_the_checkpoint_was_made_with) {
  const Folder folder;
  const std::string settings =
      "train --model demo --data task:addition --seq-len 10 --batch-size 8 --order shuffled --seed 5 --lr 0.01 --lr-schedule cosine "
      "--warmup 2 "
      "--betas 0.8,0.95 --no-decay-1d --grad-clip 1 --steps 6 --json";
  const Outcome whole = program(settings);
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const Outcome first = run(words(settings + " --save " + (folder / "run")), {}, "\"step\":3,");
  BOOST_REQUIRE_MESSAGE((first.code == 130 || first.code == 0), first.err);
  const auto reached = lines(first.out).size();
  const Outcome rest = program("train --json --pp 2 --resume " + (folder / "run"));
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
  BOOST_TEST(rest.err == "");
  const auto expected = lines(whole.out), found = lines(rest.out);
  BOOST_REQUIRE(found.size() == 6 - reached);
  for (std::size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST(found[i].at("tokens") == 80);
    BOOST_TEST(found[i].at("lr").get<double>() == expected[reached + i].at("lr").get<double>(), boost::test_tools::tolerance(1e-9));
    BOOST_TEST(found[i].at("loss").get<double>() == expected[reached + i].at("loss").get<double>(), boost::test_tools::tolerance(1e-3));
  }
  // Flags that are given win, and those that differ are said.
  const Outcome other = program("train --json --steps 7 --lr 0.02 --batch-size 8 --resume " + (folder / "run"));
  BOOST_REQUIRE_MESSAGE(other.code == 0, other.err);
  BOOST_TEST(contains(other.err, "--lr is 0.02, and " + (folder / "run") + " was made with 0.01"), other.err);
  BOOST_TEST(contains(other.err, "--steps is 7"), other.err);  // a cosine ends there
  BOOST_TEST(!contains(other.err, "--batch-size"), other.err);
  // A restored value that cannot be used is named with where it comes from.
  const Outcome wrong = program("train --json --dp 3 --steps 8 --resume " + (folder / "run"));
  BOOST_TEST(wrong.code == 2);
  BOOST_TEST(contains(wrong.err, "--batch-size 8 cannot be divided over --dp 3"), wrong.err);
}

BOOST_AUTO_TEST_CASE(training_prints_its_result_on_stdout) {
  const Outcome outcome = program("train --model demo --data synthetic --seq-len 10 --steps 1");
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  BOOST_TEST(outcome.out.starts_with("done at step 1 after "), outcome.out);
  BOOST_TEST(contains(outcome.out, "loss "));
  BOOST_TEST(contains(outcome.err, "1 stage on 1 rank, 1 microbatch, 1 sequence of 10 tokens a step"), outcome.err);
}

BOOST_AUTO_TEST_CASE(emulated_bf16_is_warned_of) {
  const json devices = json::parse(program("devices --json").out);
  const Outcome outcome = program("train --model demo --data synthetic --seq-len 10 --steps 1 --dtype bf16 --json");
  BOOST_TEST(outcome.code == 0);
  if (devices.at("devices").at(0).at("native_bf16") == false) BOOST_TEST(contains(outcome.err, "--dtype bf16:"), outcome.err);
  const Outcome capped = program("train --model demo --data synthetic --seq-len 10 --steps 1 --dtype bf16 --json --isa avx2");
  BOOST_TEST(contains(capped.err, "--dtype bf16:"), capped.err);  // no AVX2 has it
}

// Parameters of demo: 864000, of which attention and mlp (12 x 128^2 + 9 x 128 of a block's 13 x 128 biases and norms) are divided.
BOOST_AUTO_TEST_CASE(inspect_divides_memory_over_tensor_and_data_parallel_ranks) {
  const auto rank = [](const std::string& flags) {
    const Outcome outcome = program("inspect demo --json " + flags);
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return json::parse(outcome.out).at("ranks").at(0);
  };
  const json whole = rank(""), tensor = rank("--tp 2"), sharded = rank("--dp 4 --shard"), copies = rank("--dp 4");
  BOOST_TEST(copies == whole);
  const double share = tensor.at("parameters").get<double>() / whole.at("parameters").get<double>();
  BOOST_TEST((share > 0.5 && share < 0.52), share);
  BOOST_TEST(sharded.at("training").at("optimizer").get<std::int64_t>() * 4 == whole.at("training").at("optimizer").get<std::int64_t>());
  BOOST_TEST(sharded.at("training_bytes").get<std::int64_t>() < whole.at("training_bytes").get<std::int64_t>());
  const std::string summary = program("inspect demo --summary --stages 2").out, all = program("inspect demo --stages 2").out;
  BOOST_TEST(all.starts_with(summary));
  BOOST_TEST(contains(summary, "gpt2: 864000 parameters"));
  BOOST_TEST(!contains(summary, "transformer.h.0.attn.c_attn.weight"));
  BOOST_TEST(contains(all, "transformer.h.0.attn.c_attn.weight"));
}

BOOST_AUTO_TEST_CASE(help_is_a_command_too) {
  BOOST_TEST(program("help").out == program("--help").out);
  const Outcome bench = program("help bench train");
  BOOST_TEST(bench.code == 0);
  BOOST_TEST(bench.out == program("bench train --help").out);
  BOOST_TEST(contains(bench.out, "--repeat N"));
  BOOST_TEST(!contains(bench.out, "INT"));
  BOOST_TEST(contains(program("bench --help").out, "ppengine bench train --model gpt2"));
  BOOST_TEST(!contains(program("bench --help").out, "ppengine devices"));
  BOOST_TEST(contains(program("train --help").out, "162 M parameters"));
  std::istringstream lines(program("train --help").out);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("  ppengine ")) BOOST_TEST(line.size() <= 120u, line);  // examples are one line each
  check_refused("help xyzzy", "there is no command 'xyzzy'");
}

BOOST_AUTO_TEST_CASE(the_man_page_and_completions_name_every_command_and_flag) {
  const std::string man = program("help --man").out, bash = program("completion bash").out, zsh = program("completion zsh").out;
  BOOST_TEST(man.starts_with(".TH PPENGINE 1"));
  BOOST_TEST(contains(man, ".SS bench train"));
  BOOST_TEST(contains(man, "\\fB\\-\\-microbatches\\fR \\fIN\\fR"));
  BOOST_TEST(zsh.starts_with("#compdef ppengine"));
  BOOST_TEST(contains(zsh, "'--lr-schedule["));
  const Folder folder;
  std::ofstream(folder / "completion.bash") << bash;
  // As bash calls it: words, and which of them is being typed.
  const auto completed = [&](const std::string& typed, int at) {
    const std::string script = "source " + (folder / "completion.bash") + "; COMP_WORDS=(" + typed +
                               " ''); COMP_CWORD=" + std::to_string(at) + "; _ppengine; echo \"${COMPREPLY[@]}\"";
    return run_program("/bin/bash", {"-c", script}).out;
  };
  BOOST_TEST(contains(completed("ppengine", 1), "train eval generate"));
  BOOST_TEST(contains(completed("ppengine tra", 1), "train"));
  BOOST_TEST(contains(completed("ppengine train --sche", 2), "--schedule"));
  BOOST_TEST(completed("ppengine train --dtype", 3) == "f32 bf16\n");
  BOOST_TEST(contains(completed("ppengine bench", 2), "p2p"));
  BOOST_TEST(contains(completed("ppengine bench ops --pre", 3), "--preset"));
  BOOST_TEST(!contains(completed("ppengine generate --sh", 2), "--shard"));
}

BOOST_AUTO_TEST_CASE(the_cache_is_shown_and_cleared_and_nothing_beside_it) {
  const Folder folder;
  std::filesystem::create_directories(folder / "kernels/a");
  std::filesystem::create_directories(folder / "toolchain");
  std::ofstream(folder / "kernels/a/one.bin") << "12345";
  std::filesystem::create_directories(folder / "products");
  std::ofstream(folder / "products/AVX2-2-0") << "1x1x1 cpu 1 2\n";
  std::ofstream(folder / "toolchain/keep") << "x";
  const std::map<std::string, std::string> environment{{"PPENGINE_CACHE", folder / ""}};
  const json shown = json::parse(program("cache --json", environment).out);
  BOOST_TEST(shown.at("files") == 2);
  BOOST_TEST(shown.at("bytes") == 19);
  BOOST_TEST(contains(program("cache", environment).out, "2 files, "));
  const Outcome cleared = program("cache clear", environment);
  BOOST_TEST(cleared.code == 0);
  BOOST_TEST(contains(cleared.out, "removed 2 files"));
  BOOST_TEST(!std::filesystem::exists(folder / "kernels"));
  BOOST_TEST(!std::filesystem::exists(folder / "products"));
  BOOST_TEST(std::filesystem::exists(folder / "toolchain/keep"));
}

BOOST_AUTO_TEST_CASE(charts_fit_the_window_and_a_dumb_terminal_gets_plain_text) {
  if (!std::filesystem::exists("/usr/bin/script")) {
    BOOST_TEST_MESSAGE("skipped: no /usr/bin/script to make a terminal with");
    return;
  }
  for (const int columns : {60, 90}) {
    const Outcome dumb = in_terminal(columns, "dumb", "plan --schedule interleaved1f1b --ranks 4 --microbatches 16");
    BOOST_TEST(dumb.code == 0);
    BOOST_TEST(!contains(dumb.out, "\x1b["));
    std::istringstream lines(dumb.out);
    for (std::string line; std::getline(lines, line);) {
      while (line.ends_with('\r')) line.pop_back();
      BOOST_TEST(line.size() <= static_cast<std::size_t>(columns), line);
    }
  }
  BOOST_TEST(contains(in_terminal(90, "xterm", "plan --schedule 1f1b --ranks 2 --microbatches 2").out, "\x1b[48;2;"));
}

BOOST_AUTO_TEST_CASE(cells_of_charts_can_name_their_stage) {
  const std::string request = "plan --schedule 1f1b --ranks 2 --microbatches 2 --labels ";
  BOOST_TEST(contains(program(request + "stage").out, "1F0 1B0"));
  BOOST_TEST(contains(program(request + "microbatch").out, "F0 B0"));
  BOOST_TEST(contains(program(request + "stage --format svg").out, ">1F</text>"));
  BOOST_TEST(contains(program(request + "auto --format svg").out, ">F</text>"));
  BOOST_TEST(contains(program(request + "auto --format html").out, "fit();"));
}

BOOST_AUTO_TEST_SUITE_END()
