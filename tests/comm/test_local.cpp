// The local communicator against the interface suite, on the CPU device and on plain host memory; the simulated link.
#include <boost/test/unit_test.hpp>
#include <fmt/core.h>

#include <mutex>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/local.hpp>

#include "suite.hpp"

using namespace ppengine;
using namespace ppengine::comm;

namespace {

std::shared_ptr<ops::Device> cpu() {
  static const auto device = ops::Device::open("cpu");
  return device;
}

// Runs a body on `ranks` threads; the errors of all ranks come back as text.
std::string on_threads(int ranks, bool device, LocalOptions options, const std::function<void(suite::Place&)>& body) {
  if (device) options.devices.assign(static_cast<std::size_t>(ranks), cpu());
  auto comms = make_local(ranks, options);
  std::mutex mutex;
  std::string errors;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto comm = std::move(comms[static_cast<std::size_t>(r)]);
      try {
        std::optional<ops::Stream> stream;
        if (device) stream.emplace(cpu());
        suite::Place place{*comm, device ? cpu() : nullptr, stream ? &*stream : nullptr};
        body(place);
      } catch (const std::exception& error) {
        comm->abort(error.what());
        const std::lock_guard lock(mutex);
        errors += fmt::format("rank {}: {}\n", r, error.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

void run_all(std::span<const suite::Case> cases, bool device) {
#ifdef __SANITIZE_THREAD__
  if (device) return;  // the sanitizer does not see how the OpenCL runtime and the code it compiles agree on memory
#endif
  for (const int ranks : {1, 2, 3, 4})
    for (const suite::Case& one : cases) {
      if (ranks < one.ranks) continue;
      if (ranks > 2 && one.name.find("64_mib") != std::string::npos) continue;
      const std::string errors = on_threads(ranks, device, {.devices = {}, .link = {}, .timeout = std::chrono::seconds(60)}, one.body);
      BOOST_TEST(errors.empty(), one.name << " on " << ranks << " ranks:\n" << errors);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(local_communicator)

BOOST_AUTO_TEST_CASE(messages_on_the_cpu_device) { run_all(suite::messages(), true); }
BOOST_AUTO_TEST_CASE(messages_on_host_memory) { run_all(suite::messages(), false); }
BOOST_AUTO_TEST_CASE(collectives_on_the_cpu_device) { run_all(suite::collectives(), true); }
BOOST_AUTO_TEST_CASE(collectives_on_host_memory) { run_all(suite::collectives(), false); }
BOOST_AUTO_TEST_CASE(failures_on_the_cpu_device) { run_all(suite::failures(), true); }
BOOST_AUTO_TEST_CASE(failures_on_host_memory) { run_all(suite::failures(), false); }

// NCCL could not do this; the local communicator matches by tag whatever the order.
BOOST_AUTO_TEST_CASE(messages_match_by_tag_in_any_order) {
  const auto errors = on_threads(2, false, {}, [](suite::Place& place) {
    int values[3] = {10, 20, 30};
    std::vector<Pending> pending;
    for (int i = 0; i < 3; ++i)
      pending.push_back(place.rank() == 0 ? place.comm.send(&values[i], 4, 1, i) : place.comm.recv(&values[2 - i], 4, 0, 2 - i));
    Pending::all(pending).wait();
    SUITE_CHECK(values[0] == 10 && values[1] == 20 && values[2] == 30, "contents");
  });
  BOOST_TEST(errors.empty(), errors);
}

BOOST_AUTO_TEST_CASE(a_simulated_link_takes_its_time_and_does_not_block_the_sender) {
  LocalOptions options;
  options.link = {1e8, std::chrono::milliseconds(2)};
  const auto errors = on_threads(2, true, options, [](suite::Place& place) {
    const std::size_t bytes = 4'000'000;  // 40 ms, and 2 ms latency
    suite::Memory memory(place, bytes);
    if (place.rank() == 0) memory.fill(suite::pattern(bytes, 1));
    place.comm.barrier();
    const auto begin = Clock::now();
    Pending pending;
    if (place.rank() == 0) pending = place.comm.send(memory.data(), bytes, 1, 0, place.after());
    place.comm.barrier();  // nobody receives before this: a send that blocked would not come here
    if (place.rank() == 1) pending = place.comm.recv(memory.data(), bytes, 0, 0, place.after());
    pending.wait();
    const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
    SUITE_CHECK(taken > 0.04, fmt::format("{} s", taken));
    SUITE_CHECK(memory.read() == suite::pattern(bytes, 1), "contents");
    const auto second = Clock::now();
    place.comm.allreduce(memory.data(), bytes / 4, Type::i32, place.after()).wait();  // 2 * 4 MB * 1/2, two steps of latency
    const double reduced = std::chrono::duration<double>(Clock::now() - second).count();
    SUITE_CHECK(reduced > 0.04, fmt::format("{} s", reduced));
  });
  BOOST_TEST(errors.empty(), errors);
}

// A receive that is posted before the sender's work is even submitted must not hold up either side's other work.
BOOST_AUTO_TEST_CASE(wait_on_returns_when_the_sender_has_posted_not_when_it_has_finished) {
  const auto errors = on_threads(2, true, {}, [](suite::Place& place) {
    const std::size_t bytes = 64 << 20;
    suite::Memory a(place, bytes), b(place, bytes);
    bool early = false;
    for (int round = 0; round < 5; ++round) {                                     // once is enough: a busy machine may come back here late
      for (int i = 0; i < 6; ++i) place.stream->copy(a.data(), b.data(), bytes);  // some 10 ms of work each
      const Pending pending =
          place.rank() == 0 ? place.comm.send(a.data(), bytes, 1, 0, place.after()) : place.comm.recv(a.data(), bytes, 0, 0, place.after());
      pending.wait_on(*place.stream);
      early |= !pending.done();
      pending.wait();
    }
    SUITE_CHECK(early, "wait_on came back only after the copy was done");
  });
  BOOST_TEST(errors.empty(), errors);
}

BOOST_AUTO_TEST_CASE(blocks_of_one_size_change_places_and_others_are_copied) {
  struct Kind {
    std::size_t room;  // of the receiver's block; the sender's is 1000
    bool take;         // the receiver gives its block away
    bool traded;
  };
  for (const Kind& kind : {Kind{1000, true, true}, Kind{2000, true, false}, Kind{1000, false, false}}) {
    void* before[2] = {};
    void* after[2] = {};
    const auto errors = on_threads(2, true, {}, [&](suite::Place& place) {
      suite::Memory memory(place, place.rank() == 0 ? 1000 : kind.room);
      memory.fill(suite::pattern(place.rank() == 0 ? 1000 : kind.room, static_cast<unsigned>(place.rank())));
      before[place.rank()] = memory.data();
      const Pending pending = place.rank() == 0 ? place.comm.hand_over(memory.block(), 700, 1, 0, place.after())
                              : kind.take       ? place.comm.take_over(memory.block(), 700, 0, 0, place.after())
                                                : place.comm.recv(memory.data(), 700, 0, 0, place.after());
      pending.wait();
      after[place.rank()] = memory.data();
      auto got = memory.read(), sent = suite::pattern(1000, 0);
      got.resize(700);
      sent.resize(700);
      if (place.rank() == 1) SUITE_CHECK(got == sent, "contents");
      place.comm.barrier();  // until both have looked
    });
    BOOST_TEST(errors.empty(), errors);
    BOOST_TEST((after[0] == before[1] && after[1] == before[0]) == kind.traded);
    BOOST_TEST((after[0] == before[0] && after[1] == before[1]) != kind.traded);
  }
}

BOOST_AUTO_TEST_CASE(bad_settings_are_refused) {
  BOOST_CHECK_THROW(make_local(0), ConfigError);
  BOOST_CHECK_THROW(make_local(3, {.devices = {cpu()}, .link = {}, .timeout = std::chrono::seconds(1)}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
