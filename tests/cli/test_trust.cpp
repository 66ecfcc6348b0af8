// What a user must be able to rely on: nothing of theirs is replaced or lost, damage and nonsense are noticed, two runs do not share a
// folder.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"

using nlohmann::json;
using ppengine::test::Outcome;
using ppengine::test::run;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "ppengine-trust-XXXXXX").string()) { BOOST_REQUIRE(mkdtemp(path_.data())); }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::string> words(const std::vector<std::string>& more) {
  std::vector<std::string> all{"train", "--model", "demo", "--data", "task:addition", "--seq-len", "10", "--batch-size", "8", "--json"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Outcome train(const std::vector<std::string>& more) { return run(words(more)); }

// Changes one byte in the middle of a file.
void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(fs::file_size(path) / 2));
  const char byte = static_cast<char>(file.peek() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
  file.put(byte);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trust)

BOOST_AUTO_TEST_CASE(saving_keeps_everything_that_is_not_a_checkpoints) {
  const Folder folder;
  const std::string out = folder / "out";
  fs::create_directories(out + "/notes/deep");
  write(out + "/README.md", "mine");
  write(out + "/notes/deep/a.txt", "mine too");
  fs::create_symlink("out", folder / "link");
  for (const char* steps : {"1", "2"}) {  // a new folder to save to, then one that holds a checkpoint
    const Outcome outcome = train({"--steps", steps, "--save", folder / "link"});
    BOOST_TEST(outcome.code == 0, outcome.err);
    BOOST_TEST(read(out + "/README.md") == "mine");
    BOOST_TEST(read(out + "/notes/deep/a.txt") == "mine too");
    BOOST_TEST(json::parse(read(out + "/trainer_state.json"))["step"] == std::stoi(steps));
    BOOST_TEST(fs::is_symlink(folder / "link"));
  }
  for (const auto& entry : fs::directory_iterator(out))  // nothing of the way there is left
    BOOST_TEST(entry.path().filename().string().front() != '.', entry.path());
  BOOST_TEST(run({"eval", "--model", out, "--data", "synthetic", "--seq-len", "8", "--json"}).code == 0);
  // A file that has a checkpoint's name and is none.
  const std::string other = folder / "other";
  fs::create_directory(other);
  write(other + "/config.json", "{\"colour\": \"blue\"}");
  const Outcome refused = train({"--steps", "1", "--save", other});
  BOOST_TEST(refused.code == 2);
  BOOST_TEST(read(other + "/config.json") == "{\"colour\": \"blue\"}");
}

BOOST_AUTO_TEST_CASE(a_folder_is_saved_to_by_one_run_at_a_time) {
  const Folder folder;
  const std::string out = folder / "out";
  Outcome second;
  const Outcome first = run(words({"--steps", "100000", "--save", out}), {}, "\"step\":2,", [&](int process) {
    second = train({"--steps", "1", "--save", out});
    BOOST_TEST(contains(second.err, "process " + std::to_string(process)), second.err);
    kill(process, SIGINT);
  });
  BOOST_TEST(first.code == 130, first.err);
  BOOST_TEST(second.code == 2, second.err);
  BOOST_TEST(train({"--steps", "1", "--save", out}).code == 0);
}

// A closed terminal is a SIGHUP; nohup ignores it.
BOOST_AUTO_TEST_CASE(a_run_whose_terminal_is_closed_is_saved_and_goes_on_under_nohup) {
  const Folder folder;
  for (const std::vector<std::string>& ranks : {std::vector<std::string>{}, {"--pp", "2", "--launch", "processes"}}) {
    std::vector<std::string> more = ranks;
    const std::string out = folder / ("out" + std::to_string(ranks.size()));
    more.insert(more.end(), {"--steps", "100000", "--save", out});
    const auto hang_up = [](int process) { kill(process, SIGHUP); };
    const Outcome closed = run(words(more), {}, "\"step\":2,", hang_up);
    BOOST_TEST(closed.code == 130, closed.err);
    BOOST_TEST(fs::exists(out + "/trainer_state.json"), closed.err);

    std::vector<std::string> shell{"-c", "trap '' HUP; exec \"$0\" \"$@\"", PPENGINE_BINARY};
    more = ranks;
    more.insert(more.end(), {"--steps", "30"});
    for (const std::string& word : words(more)) shell.push_back(word);
    const Outcome kept = ppengine::test::run_program("/bin/sh", shell, {}, "\"step\":2,", hang_up);
    BOOST_TEST(kept.code == 0, kept.err);
    BOOST_TEST(contains(kept.out, "\"step\":30,"));
  }
}

// It was asked for: that a rank could not handle the signal yet is no error.
BOOST_AUTO_TEST_CASE(a_run_that_is_interrupted_while_it_starts_says_nothing_of_killed_ranks) {
  for (const int milliseconds : {30, 60, 100, 150, 250}) {
    const Outcome outcome = ppengine::test::run_program(
        "/bin/sh", {"-c",
                    "\"$0\" train --model demo --data synthetic --steps 100000 --json --pp 2 --launch processes & sleep 0." +
                        std::string(milliseconds < 100 ? "0" : "") + std::to_string(milliseconds) + "; kill -TERM $!; wait $!",
                    PPENGINE_BINARY});
    BOOST_TEST((outcome.code == 130 || outcome.code == 143), outcome.code);  // 143: before it knows what it is to do
    BOOST_TEST(!contains(outcome.err, "killed"), milliseconds << ": " << outcome.err);
  }
}

BOOST_AUTO_TEST_CASE(a_link_in_a_loop_is_refused_at_the_start) {
  const Folder folder;
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  for (const char* flag : {"--save", "--trace", "--timeline"}) {
    const Outcome outcome = train({"--steps", "3", flag, folder / "a"});
    BOOST_TEST(outcome.code == 2, flag << ": " << outcome.err);
    BOOST_TEST(outcome.out == "", flag);
    BOOST_TEST(contains(outcome.err, "loop"), outcome.err);
  }
}

BOOST_AUTO_TEST_CASE(leftovers_of_a_save_that_was_cut_off_are_cleared_or_finished) {
  const Folder folder;
  const std::string out = folder / "out", older = folder / "older";
  BOOST_REQUIRE(train({"--steps", "1", "--save", older}).code == 0);
  BOOST_REQUIRE(train({"--steps", "2", "--save", out}).code == 0);
  fs::create_directories(out + ".saving");  // of an earlier version
  write(out + ".saving/model.safetensors.part", "half");
  fs::create_directories(out + "/.saving");
  write(out + "/.saving/model.safetensors.part", "half");
  // Cut off in the middle of a commit: some files have their names already.
  fs::create_directories(out + "/.saved");
  for (const char* name : {"trainer_state.json", "optimizer.safetensors", "checksums.json"})
    fs::copy_file(older + "/" + name, out + "/.saved/" + name);
  fs::copy_file(older + "/model.safetensors", out + "/model.safetensors", fs::copy_options::overwrite_existing);
  const Outcome verified = train({"--resume", out, "--steps", "2", "--save", out});
  BOOST_TEST(verified.code == 0, verified.err);
  BOOST_TEST(contains(verified.out, "\"step\":2,"), verified.out);  // it was at step 1
  BOOST_TEST(!fs::exists(out + ".saving"));
  BOOST_TEST(!fs::exists(out + "/.saving"));
  BOOST_TEST(!fs::exists(out + "/.saved"));
}

BOOST_AUTO_TEST_CASE(outputs_go_to_devices_and_through_links) {
  const Folder folder;
  fs::create_symlink("/dev/null", folder / "null");
  write(folder / "real.json", "");
  fs::create_symlink("real.json", folder / "link.json");
  BOOST_TEST(train({"--steps", "1", "--trace", folder / "null", "--timeline", "/dev/null"}).code == 0);
  BOOST_TEST(fs::is_symlink(folder / "null"));
  BOOST_TEST(fs::is_character_file("/dev/null"));
  BOOST_TEST(train({"--steps", "1", "--trace", folder / "link.json"}).code == 0);
  BOOST_TEST(fs::is_symlink(folder / "link.json"));
  BOOST_TEST(json::parse(read(folder / "real.json")).contains("traceEvents"));
  BOOST_TEST(train({"--steps", "1", "--trace", "/dev/full"}).code == 1);
}

BOOST_AUTO_TEST_CASE(a_run_that_diverges_ends_with_1_and_keeps_its_last_checkpoint) {
  const Folder folder;
  const std::string out = folder / "out";
  BOOST_REQUIRE(train({"--steps", "2", "--save", out}).code == 0);
  const std::string weights = read(out + "/model.safetensors");
  const Outcome outcome = train({"--resume", out, "--steps", "400", "--lr", "1000", "--weight-decay", "1000", "--save", out});
  BOOST_TEST(outcome.code == 1, outcome.err);
  BOOST_TEST((contains(outcome.err, "on rank 0") || contains(outcome.err, "not saved")), outcome.err);
  BOOST_TEST(!contains(outcome.out, "nan"));
  BOOST_TEST((read(out + "/model.safetensors") == weights));
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_ends_eval_with_1) {
  const Folder folder;
  const std::string out = folder / "out";
  BOOST_REQUIRE(train({"--steps", "1", "--save", out}).code == 0);
  fs::remove(out + "/checksums.json");
  std::string weights = read(out + "/model.safetensors");
  std::fill(weights.end() - 4096, weights.end(), '\xff');  // NaN
  write(out + "/model.safetensors", weights);
  const Outcome outcome = run({"eval", "--model", out, "--data", "synthetic", "--seq-len", "8", "--batch-size", "1", "--json"});
  BOOST_TEST(outcome.code == 1, outcome.err);
  BOOST_TEST(contains(outcome.err, "not finite"), outcome.err);
}

BOOST_AUTO_TEST_CASE(damage_is_found_by_verify_and_on_load) {
  const Folder folder;
  const std::string out = folder / "out";
  BOOST_REQUIRE(train({"--steps", "1", "--save", out}).code == 0);
  const Outcome whole = run({"inspect", "--verify", out, "--json"});
  BOOST_TEST(whole.code == 0, whole.err);
  BOOST_TEST(json::parse(whole.out)["verified"] == true);
  BOOST_TEST(json::parse(whole.out)["tensors"].get<int>() > 10);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    damage(out + "/" + file);
    const Outcome verified = run({"inspect", "--verify", out});
    BOOST_TEST(verified.code == 1);
    BOOST_TEST(contains(verified.err, "tensor '"), verified.err);
    const Outcome resumed = train({"--resume", out, "--steps", "2"});
    BOOST_TEST(resumed.code == 2, resumed.err);
    BOOST_TEST(contains(resumed.err, "is damaged"), resumed.err);
    damage(out + "/" + file);  // the same byte back
  }
  BOOST_TEST(train({"--resume", out, "--steps", "2"}).code == 0);
  BOOST_TEST(run({"inspect", "--verify", folder / "no"}).code == 2);
}

BOOST_AUTO_TEST_CASE(a_data_file_that_shrinks_ends_the_run_with_a_message) {
  const Folder folder;
  const std::string data = folder / "tokens.bin";
  write(data, std::string(1 << 20, '\1'));  // tokens 257, below mid's vocabulary of 8192
  const Outcome outcome = run({"train", "--model", "mid", "--data", data, "--seq-len", "4", "--steps", "100000", "--json"}, {},
                              "\"step\":2,", [&](int) { fs::resize_file(data, 4096); });
  BOOST_TEST(outcome.code == 2, outcome.err);
  BOOST_TEST(contains(outcome.err, "has become shorter"), outcome.err);
}

BOOST_AUTO_TEST_CASE(a_configuration_that_does_not_fit_the_weights_is_refused_before_anything_is_built) {
  const Folder folder;
  const std::string out = folder / "out";
  BOOST_REQUIRE(train({"--steps", "1", "--save", out}).code == 0);
  json config = json::parse(read(out + "/config.json"));
  config["n_embd"] = 8192;
  config["n_inner"] = 32768;
  config["n_layer"] = 40;
  write(out + "/config.json", config.dump());
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run({"train", "--model", out, "--data", "synthetic", "--seq-len", "8", "--steps", "1"});
  BOOST_TEST(outcome.code == 2, outcome.err);
  BOOST_TEST(contains(outcome.err, "has shape"), outcome.err);
  BOOST_TEST(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 40);  // building it takes a minute
}

BOOST_AUTO_TEST_SUITE_END()
