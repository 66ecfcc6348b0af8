// The port of the ranks as a stranger finds it: whoever does not know the secret of the run is turned away and changes nothing.
#include <boost/test/unit_test.hpp>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/net/hmac.hpp>
#include <ppengine/comm/net/rendezvous.hpp>
#include <ppengine/comm/net/secret.hpp>

using namespace ppengine;
using namespace ppengine::comm;
using namespace std::chrono_literals;

namespace {

// Two ranks of a run with a secret, and its port for others.
struct Run {
  net::Socket listener = net::listen_on(0, net::this_machine);
  int port = net::port_of(listener), fd = listener.release();
  std::vector<std::unique_ptr<Rendezvous>> ranks;

  RendezvousOptions options(int rank, const std::string& secret = "the run's secret") const {
    return {rank, 2, "127.0.0.1", port, rank == 0 ? fd : -1, 60s, "1", secret};
  }
  std::future<std::unique_ptr<Rendezvous>> start(int rank, const std::string& secret = "the run's secret") const {
    return std::async(std::launch::async, [=, this] { return std::make_unique<Rendezvous>(options(rank, secret)); });
  }
  void start_all() {
    auto first = start(0), second = start(1);
    ranks.push_back(first.get());
    ranks.push_back(second.get());
  }
  ~Run() {
    while (!ranks.empty()) ranks.pop_back();  // rank 0 last: it waits for the others' goodbyes
  }
  // Both ranks still reach each other.
  void check_works(const std::string& key) {
    const int all[] = {0, 1};
    auto other = std::async(std::launch::async, [&] { return ranks[1]->gather(key, all, 1, "b", 60s); });
    BOOST_TEST((ranks[0]->gather(key, all, 0, "a", 60s) == std::vector<std::string>{"a", "b"}));
    BOOST_TEST((other.get() == std::vector<std::string>{"a", "b"}));
    BOOST_TEST(!ranks[0]->failed());
    BOOST_TEST(!ranks[1]->failed());
  }
};

net::Socket connect(int port) {
  std::string why;
  return net::connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + 60s, why);
}

std::string text_of(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

long resident_kib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(strangers)

BOOST_AUTO_TEST_CASE(frames_from_strangers_end_nothing) {
  Run run;
  run.start_all();
  const std::string abort = net::pack(Failure{1, "\x1b[31mgone", true});
  const std::string sixty_million = net::GatherPart{"x", 60'000'000, 0, "mine"}.pack();
  net::Hello forged{std::string(net::nonce_bytes, 'n'), 1, 2, "1", std::string(32, 'p')};
  const std::pair<std::uint8_t, std::string> attacks[] = {
      {net::abort, abort},      {net::abort, "ab"},      {net::hello, forged.pack()},
      {net::hello, "x"},        {net::bye, ""},          {net::gather, sixty_million},
      {net::gathered, abort},   {net::welcome, ""},      {net::ask, std::string(200, 'k')},
      {255, std::string(3, 0)}, {net::closing, "closed"}};
  const long before = resident_kib();
  int i = 0;
  for (const auto& [kind, contents] : attacks) {
    const net::Socket stranger = connect(run.port);
    BOOST_REQUIRE(net::write_frame(stranger.fd(), kind, contents));
    run.check_works(fmt::format("after attack {}", i++));
  }
  BOOST_TEST(resident_kib() - before < 50'000);
}

BOOST_AUTO_TEST_CASE(bytes_that_are_no_frames_end_nothing) {
  Run run;
  run.start_all();
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'), std::string(3, '\0')}) {
    const net::Socket stranger = connect(run.port);
    send(stranger.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    run.check_works(fmt::format("after {} bytes", bytes.size()));
  }
}

BOOST_AUTO_TEST_CASE(many_silent_connections_do_not_keep_ranks_out) {
  Run run;
  auto first = run.start(0);
  std::vector<net::Socket> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect(run.port));
  auto second = run.start(1);
  run.ranks.push_back(first.get());
  run.ranks.push_back(second.get());
  run.check_works("among silent strangers");
  // All but the allowed ones were closed.
  const auto closed = std::ranges::count_if(silent, [](const net::Socket& one) {
    char bytes[256];
    ssize_t got = 0;
    while ((got = recv(one.fd(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || errno == ECONNRESET;
  });
  BOOST_TEST(closed >= 200);
}

BOOST_AUTO_TEST_CASE(a_stranger_who_comes_first_is_not_taken_for_a_rank) {
  Run run;
  auto first = run.start(0);
  const std::string wrong = text_of([&] { run.start(1, "guessed").get(); });
  BOOST_TEST(has(wrong, "has another secret than this rank"), wrong);
  BOOST_TEST(has(wrong, "PPENGINE_SECRET"), wrong);
  auto second = run.start(1);
  run.ranks.push_back(first.get());
  run.ranks.push_back(second.get());
  run.check_works("after a wrong guess");
}

BOOST_AUTO_TEST_CASE(a_rank_too_many_is_told_and_the_run_goes_on) {
  Run run;
  run.start_all();
  const std::string late = text_of([&] { run.start(1).get(); });
  BOOST_TEST(has(late, "the run has all of its ranks already"), late);
  run.check_works("after one too many");
}

BOOST_AUTO_TEST_CASE(a_rank_does_not_believe_a_stranger_that_listens_in_place_of_rank_0) {
  const net::Socket listener = net::listen_on(0, net::this_machine);
  auto rank = std::async(std::launch::async, [&] {
    return text_of([&] { Rendezvous({1, 2, "127.0.0.1", net::port_of(listener), -1, 60s, "1", "the run's secret"}); });
  });
  net::Socket connection;
  while (!connection) connection = net::accept_from(listener);
  net::write_frame(connection.fd(), net::challenge, std::string(net::nonce_bytes, 'c'));
  net::write_frame(connection.fd(), net::proof, std::string(32, 'p'));
  const std::string said = rank.get();
  BOOST_TEST(has(said, "is not rank 0 of this run"), said);
}

// RFC 4231, test cases 1, 2 and 6; FIPS 180-4's "abc" and the empty message.
BOOST_AUTO_TEST_CASE(hmac_and_sha256_give_the_published_values) {
  const auto digest = [](const std::string& text) {
    const net::Digest bytes = net::sha256(text);
    return net::hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  BOOST_TEST(digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  BOOST_TEST(digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  BOOST_TEST(digest(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  BOOST_TEST(net::hex(net::hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
             "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  BOOST_TEST(net::hex(net::hmac_sha256("Jefe", "what do ya want for nothing?")) ==
             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  BOOST_TEST(net::hex(net::hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
             "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

BOOST_AUTO_TEST_CASE(text_from_the_wire_cannot_steer_a_terminal) {
  const Failure failure = net::unpack_failure(net::pack(Failure{1, "\x1b]0;title\x07 gone\x7f", true}));
  BOOST_TEST(failure.reason == "?]0;title? gone?");
  BOOST_CHECK_THROW(net::unpack_failure("ab"), Error);
}

BOOST_AUTO_TEST_SUITE_END()
