// Ranks that are lost at the start, while saving, by stopping; a full disk; starting again. The checkpoint that was there stays.
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "processes.hpp"

using namespace ppengine::test;
namespace fs = std::filesystem;

namespace {

// A folder of its own that is gone at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("ppengine-failures-" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

// Nothing of a run is left in shared memory: its launcher has given it a folder there.
bool shared_memory_is_clear(int launcher) {
  const std::string own = "ppengine-" + std::to_string(launcher) + "-";
  return std::ranges::none_of(fs::directory_iterator("/dev/shm"),
                              [&](const auto& entry) { return entry.path().filename().string().starts_with(own); });
}

// Runs with two processes; as soon as the moment has come, something is done to its ranks.
Outcome disturb(const std::vector<std::string>& more, const std::function<bool(const std::vector<int>& ranks)>& moment,
                const std::function<void(const std::vector<int>& ranks)>& what, const std::string& model = "demo") {
  std::vector<std::string> words{"train",        "--model", model,    "--data", "synthetic", "--seq-len", "8",
                                 "--batch-size", "4",       "--json", "--pp",   "2",         "--launch",  "processes"};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<int> ranks;
  int launcher = 0;
  std::jthread watcher([&](const std::stop_token& stop) {
    const int me = getpid();
    while (!stop.stop_requested()) {
      for (const int child : children_of_all_threads(me))
        if (auto found = children(child); found.size() == 2) ranks = found, launcher = child;
      if (ranks.size() == 2 && moment(ranks)) return what(ranks);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  const Outcome outcome = run(words);
  watcher.request_stop();
  watcher.join();
  BOOST_TEST(ranks.size() == 2u);
  BOOST_TEST(!any_left(ranks));
  BOOST_TEST(shared_memory_is_clear(launcher));
  return outcome;
}

const auto at_once = [](const std::vector<int>&) { return true; };

int saved_step(const fs::path& folder) {
  std::ifstream file(folder / "trainer_state.json");
  return file ? Json::parse(file)["step"].get<int>() : -1;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(failures)

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_at_the_start_ends_the_other_within_the_deadline) {
  if (!available()) return;
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
    const Outcome outcome = disturb({"--timeout", "5"}, at_once, [&](const auto& ranks) { kill(ranks[victim], SIGKILL); });
    BOOST_TEST(outcome.code == 4, outcome.err);
    BOOST_TEST(count(outcome.err, "ppengine: ") == 1u, outcome.err);
    BOOST_TEST(outcome.err.find("rank " + std::to_string(victim)) != std::string::npos, outcome.err);
  }
}

// A rank of a large model spends long enough in a save to be met there.
BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_while_saving_leaves_a_whole_checkpoint_to_resume) {
  if (!available()) return;
  const Folder folder;
  const std::string save = folder / "out";
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
    const Outcome outcome = disturb(
        {"--timeout", "100", "--steps", "100000", "--save", save, "--save-every", "1"},
        [&](const auto&) { return fs::exists(save + "/.saving/model.safetensors.part") && saved_step(save) > static_cast<int>(victim); },
        [&](const auto& ranks) { kill(ranks[victim], SIGKILL); }, "tiny");
    BOOST_TEST(outcome.code == 4, outcome.err);
    const int step = saved_step(save);
    BOOST_TEST(step >= 1);
    BOOST_TEST(
        outcome.err.find("the last checkpoint is of step " + std::to_string(step) + ": go on with --resume " + save) != std::string::npos,
        outcome.err);
  }
  const int step = saved_step(save);
  const Outcome resumed = run({"train", "--resume", save, "--data", "synthetic", "--seq-len", "8", "--batch-size", "4", "--json", "--steps",
                               std::to_string(step + 1)});
  BOOST_TEST(resumed.code == 0, resumed.err);
  BOOST_TEST(lines(resumed.out).size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_rank_that_stops_is_found_by_the_deadline_and_killed) {
  if (!available()) return;
  const Outcome outcome = run(command("train", {"--pp", "2", "--steps", "1000000", "--launch", "processes", "--timeout", "10"}), {},
                              "\"step\":3,", [&](int launcher) { kill(children(launcher).at(1), SIGSTOP); });
  BOOST_TEST(outcome.code == 4, outcome.err);
  BOOST_TEST(outcome.err.find("rank 1") != std::string::npos, outcome.err);
  BOOST_TEST(count(outcome.err, "plan position") + count(outcome.err, "between two steps") == 1u, outcome.err);
}

// The run goes on where it was saved, and ends as one that nothing happened to.
BOOST_AUTO_TEST_CASE(a_signal_to_any_rank_ends_the_run_in_order) {
  if (!available()) return;
  const Folder folder;
  const std::string save = folder / "saved";
  const auto under_way = [&](const auto&) { return saved_step(save) > 0; };
  const Outcome outcome =
      disturb({"--steps", "100000", "--save", save, "--save-every", "2"}, under_way, [](const auto& ranks) { kill(ranks[1], SIGTERM); });
  BOOST_TEST(outcome.code == 130, outcome.err);
  const auto steps = lines(outcome.out);
  BOOST_TEST(saved_step(save) == steps.back()["step"].get<int>());
}

BOOST_AUTO_TEST_CASE(a_run_is_started_again_from_its_last_checkpoint) {
  if (!available()) return;
  const Folder folder;
  const std::string save = folder / "out";
  std::vector<std::string> words{"--pp",         "2", "--steps",  "60",        "--save",     save,
                                 "--save-every", "5", "--launch", "processes", "--restarts", "1"};
  std::vector<int> ranks;
  const Outcome outcome = run(command("train", words), {}, "\"step\":12,", [&](int launcher) {
    ranks = children(launcher);
    kill(ranks.at(1), SIGKILL);
  });
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  BOOST_TEST(count(outcome.err, "going on from the checkpoint of step ") == 1u, outcome.err);
  BOOST_TEST(!any_left(ranks));
  const auto steps = lines(outcome.out);
  BOOST_TEST(steps.back()["step"] == 60);
  BOOST_TEST(steps.size() > 60u);  // some of them twice
  BOOST_TEST(steps.size() < 80u);  // but not all
  const auto calm = lines(run(command("train", {"--pp", "2", "--steps", "60"})).out);
  BOOST_TEST(steps.back()["loss"].get<double>() == calm.back()["loss"].get<double>(), boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(a_full_disk_fails_the_run_and_keeps_the_checkpoint_before) {
  if (!available()) return;
  const Folder folder;
  if (mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=60m") != 0) {
    BOOST_TEST_MESSAGE("skipped: only root can make a small disk");
    return;
  }
  // Weights and moments of the model take 39 MB: there is room for one checkpoint, not for two.
  const std::string save = folder / "out";
  const Outcome outcome =
      run({"train", "--model",  "tiny",      "--data",    "synthetic", "--seq-len", "8", "--batch-size", "4",  "--json",       "--pp",
           "2",     "--launch", "processes", "--timeout", "100",       "--steps",   "5", "--save",       save, "--save-every", "2"});
  const int step = saved_step(save);
  umount2(folder.path.c_str(), MNT_DETACH);
  BOOST_TEST(outcome.code == 1, outcome.err);
  BOOST_TEST(step == 2);
  BOOST_TEST(outcome.err.find("No space left") != std::string::npos, outcome.err);
}

// A limit on the size of files (ulimit -f), as a full disk: SIGXFSZ would end the run by a signal.
BOOST_AUTO_TEST_CASE(a_file_that_may_not_grow_fails_the_save_with_a_message) {
  const Folder folder;
  const Outcome outcome = run_program(
      "/bin/sh",
      {"-c", "ulimit -f 100; exec \"$0\" train --model demo --data synthetic --steps 1 --save \"$1\"", PPENGINE_BINARY, folder / "out"});
  BOOST_TEST(outcome.code == 1, outcome.err);
  BOOST_TEST(outcome.err.find("File too large") != std::string::npos, outcome.err);
}

// oneCCL polls 300 descriptors: a lower limit is raised where it may be, and is named where it may not, long before the deadline.
BOOST_AUTO_TEST_CASE(few_file_descriptors_are_raised_or_named) {
  if (!available()) return;
  const auto limited = [](const std::string& limit) {
    return run_program(
        "/bin/sh",
        {"-c", limit + "; exec \"$0\" train --model demo --data synthetic --steps 1 --json --pp 2 --launch processes --timeout 300",
         PPENGINE_BINARY});
  };
  const Outcome refused = limited("ulimit -n 256");
  BOOST_TEST(refused.code == 2, refused.err);
  BOOST_TEST(refused.err.find("ulimit -n 1024") != std::string::npos, refused.err);
  const Outcome raised = limited("ulimit -S -n 256");
  BOOST_TEST(raised.code == 0, raised.err);
}

BOOST_AUTO_TEST_CASE(restarts_and_hosts_need_a_launcher_of_ours) {
  BOOST_TEST(run(command("train", {"--restarts", "1"})).code == 2);
  BOOST_TEST(run(command("train", {"--hosts", "a,b", "--launch", "threads", "--pp", "2"})).code == 2);
  const Outcome elsewhere = run(command("train", {"--hosts", "192.0.2.1,192.0.2.2", "--pp", "2"}));
  BOOST_TEST(elsewhere.code == 2);
  BOOST_TEST(elsewhere.err.find("the first host must be this one") != std::string::npos, elsewhere.err);
}

// The checkpoint of step n is begun when that of step n - 1 has its name, and the program dies while it is on its way.
BOOST_AUTO_TEST_CASE(a_program_killed_while_it_saves_asynchronously_leaves_a_whole_checkpoint) {
  const Folder folder;
  const std::string save = folder / "saved";
  const std::vector<std::string> words{"train",        "--model", "tiny",         "--data",  "synthetic", "--seq-len", "8",
                                       "--batch-size", "4",       "--json",       "--pp",    "2",         "--save",    save,
                                       "--save-every", "1",       "--save-async", "--steps", "100000"};
  int before = -1;
  for (const int delay : {0, 7, 23, 60}) {  // milliseconds: another moment of the save
    std::vector<std::string> go_on = words;
    if (before >= 0) go_on.insert(go_on.end(), {"--resume", save});
    const std::string until = "\"step\":" + std::to_string(std::max(before, 0) + 4) + ",";
    const Outcome outcome = run(go_on, {}, until, [&](int program) {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      kill(program, SIGKILL);
    });
    BOOST_TEST(outcome.code == 128 + SIGKILL);
    const int saved = saved_step(save);
    BOOST_TEST(saved >= std::max(before, 0) + 2);
    before = saved;
    const Outcome evaluated = run({"eval", "--model", save, "--data", "synthetic", "--seq-len", "8", "--json"});
    BOOST_TEST(evaluated.code == 0, evaluated.err);
  }
}

BOOST_AUTO_TEST_SUITE_END()
