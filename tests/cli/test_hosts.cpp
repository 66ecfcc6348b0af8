// Two hosts: network namespaces with a link between them, made for this test alone. The link is cut in the middle of a run.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "processes.hpp"

using namespace ppengine::test;
namespace fs = std::filesystem;

namespace {

bool sh(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Namespaces A and B, joined by a link. Everything is gone with it.
class TwoHosts {
 public:
  TwoHosts() {
    ready_ = geteuid() == 0 && sh("ip netns add " + a) && sh("ip netns add " + b) &&
             sh("ip -n " + a + " link add ppa type veth peer name ppb netns " + b) && sh("ip -n " + a + " addr add 10.77.0.1/24 dev ppa") &&
             sh("ip -n " + b + " addr add 10.77.0.2/24 dev ppb") && sh("ip -n " + a + " link set lo up") &&
             sh("ip -n " + b + " link set lo up") && link("up") && sh("ip -n " + b + " link set ppb up") && sh("unshare --uts true");
    fs::create_directories(folder);
    // What ssh would be: it runs the command on B, which has a name of its own.
    write("shell", "#!/bin/sh\nexec ip netns exec " + b + " unshare --uts sh -c 'hostname host-b; exec sh -c \"$1\"' sh \"$2\"\n");
    write("program", std::string("#!/bin/sh\nexec ip netns exec ") + a + " " + PPENGINE_BINARY + " \"$@\"\n");
  }
  ~TwoHosts() {
    sh("ip netns del " + a);
    sh("ip netns del " + b);
    fs::remove_all(folder);
  }
  bool ready() const { return ready_; }
  bool link(const std::string& state) const { return sh("ip -n " + a + " link set ppa " + state); }

  const std::string id = std::to_string(getpid()), a = "pp-a-" + id, b = "pp-b-" + id;
  const fs::path folder = fs::temp_directory_path() / ("ppengine-two-hosts-" + id);

 private:
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder / name) << text;
    fs::permissions(folder / name, fs::perms::owner_all);
  }
  bool ready_ = false;
};

// Seconds that a rank waits for another. A short time is enough where nothing else runs; with more to do than cores each step takes longer.
int patience() {
  double load = 0;
  getloadavg(&load, 1);
  const double share = load / std::max(1u, std::thread::hardware_concurrency());
  return 10 * static_cast<int>(std::clamp(std::ceil(share), 1.0, 6.0));
}

std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hosts)

BOOST_AUTO_TEST_CASE(two_hosts_train_lose_each_other_and_go_on) {
  if (!available()) return;
  const TwoHosts hosts;
  if (!hosts.ready()) {
    BOOST_TEST_MESSAGE("skipped: network namespaces need root, ip and unshare");
    return;
  }
  // The remote shell tells how the rank of the other host has ended. It also gives the link time to settle: oneCCL's own start fails over
  // one that has just come up.
  const fs::path ends = hosts.folder / "ends", shell = hosts.folder / "telling";
  std::ofstream(shell) << "#!/bin/sh\nsleep 3\n"
                       << (hosts.folder / "shell").string() << " \"$@\"\ncode=$?\necho $code >> " << ends.string() << "\nexit $code\n";
  fs::permissions(shell, fs::perms::owner_all);
  const std::string save = (hosts.folder / "out").string();
  const int timeout = patience();
  bool cut = false;
  std::vector<std::string> words =
      command("train", {"--pp", "2", "--steps", "40", "--save", save, "--save-every", "5", "--hosts", "10.77.0.1,10.77.0.2",
                        "--remote-shell", shell.string(), "--restarts", "1", "--timeout", std::to_string(timeout), "-v"});
  const Outcome outcome = run_program((hosts.folder / "program").string(), words, {}, "\"step\":12,", [&](int) {
    cut = hosts.link("down");
    // Both sides must find out by themselves; then the cable is back for the second try.
    for (int i = 0; i < 10 * (timeout + 50) && read_text(ends).empty(); ++i) usleep(100000);
    hosts.link("up");
  });
  BOOST_TEST(cut);
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  BOOST_TEST(read_text(ends) == "4\n0\n");
  BOOST_TEST(outcome.err.find("rank 1: host host-b") != std::string::npos, outcome.err);
  BOOST_TEST(outcome.err.find("going on from the checkpoint of step 1") != std::string::npos, outcome.err);
  BOOST_TEST(lines(outcome.out).back()["step"] == 40);
}

BOOST_AUTO_TEST_SUITE_END()
