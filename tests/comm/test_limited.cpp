// A slower link in front of a communicator: results are the same, and take as long as the link would need.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <mutex>

#include <ppengine/comm/limited.hpp>
#include <ppengine/comm/threads.hpp>

using namespace ppengine;
using namespace ppengine::comm;

namespace {

constexpr std::size_t count = 1 << 16;  // f32: 256 KiB
constexpr double megabyte = 1e6;

// Seconds that `body` takes on rank 0 of two, behind a link of 4 MB/s and 5 ms a message.
double measure(const std::function<void(Communicator& limited, std::vector<float>& data, std::vector<float>& more)>& body) {
  double seconds = 0;
  run_threads(2, {}, [&](Communicator& world) {
    const auto limited = limit_link(world, {4 * megabyte, std::chrono::milliseconds(5)});
    std::vector<float> data(count, static_cast<float>(world.rank() + 1)), more(2 * count);
    world.barrier();
    const auto begin = Clock::now();
    body(*limited, data, more);
    if (world.rank() == 0) seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    world.barrier();
  });
  return seconds;
}

bool all_are(const std::vector<float>& data, float value, std::size_t begin = 0, std::size_t end = count) {
  return std::all_of(data.begin() + static_cast<long>(begin), data.begin() + static_cast<long>(end), [&](float x) { return x == value; });
}

// Ranks are threads, and Boost.Test counts for one at a time.
void check(bool right) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  BOOST_CHECK(right);
}

// At least what the link needs. How much more is the machine's business.
void check_time(double seconds, double bytes, int messages) { BOOST_TEST(seconds >= 0.999 * (bytes / (4 * megabyte) + 5e-3 * messages)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(limited_link)

BOOST_AUTO_TEST_CASE(collectives_take_what_a_ring_moves_over_the_link) {
  constexpr double bytes = 4.0 * count;
  check_time(measure([](Communicator& limited, auto& data, auto&) {
               limited.allreduce(data.data(), count, Type::f32).wait();
               check(all_are(data, 3));
             }),
             bytes, 2);
  check_time(measure([](Communicator& limited, auto& data, auto& more) {
               limited.all_gather(data.data(), more.data(), count, Type::f32).wait();
               check(all_are(more, 1) && all_are(more, 2, count, 2 * count));
             }),
             bytes, 2);
  check_time(measure([](Communicator& limited, auto& data, auto& more) {
               limited.reduce_scatter(data.data(), more.data(), count / 2, Type::f32).wait();
               check(all_are(more, 3, 0, count / 2));
             }),
             bytes / 2, 2);
  check_time(measure([](Communicator& limited, auto& data, auto&) {
               limited.broadcast(data.data(), 4 * count, 1).wait();
               check(all_are(data, 2));
             }),
             bytes, 1);
}

BOOST_AUTO_TEST_CASE(what_is_under_way_goes_one_after_the_other_and_groups_share_the_link) {
  constexpr double bytes = 4.0 * count;
  check_time(measure([](Communicator& limited, auto& data, auto& more) {
               const auto group = limited.split(0, limited.rank());
               std::vector<Pending> pending;
               pending.push_back(limited.allreduce(data.data(), count, Type::f32));
               pending.push_back(group->allreduce(more.data(), count, Type::f32));
               for (const Pending& one : pending) one.wait();
             }),
             2 * bytes, 4);
}

BOOST_AUTO_TEST_CASE(a_message_costs_its_receiver) {
  check_time(measure([](Communicator& limited, auto& data, auto& more) {
               const int peer = 1 - limited.rank();
               const Pending sent = limited.send(data.data(), 4 * count, peer, 1);
               limited.recv(more.data(), 4 * count, peer, 1).wait();
               sent.wait();
               check(all_are(more, static_cast<float>(peer + 1)));
             }),
             4.0 * count, 1);
}

BOOST_AUTO_TEST_SUITE_END()
