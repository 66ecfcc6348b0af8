// Failures: sizes that differ, deadlines, aborts. Every error names peer, operation and tag; nothing hangs.
#include <fmt/core.h>
#include <sys/mman.h>

#include <thread>

#include <ppengine/base/error.hpp>

#include "suite.hpp"

namespace ppengine::comm::suite {
namespace {

bool names(const std::exception& error, const std::string& text) { return std::string(error.what()).find(text) != std::string::npos; }

// Where small messages are buffered a sender has nothing to wait for, and of three ranks one may have called what its neighbours did: it
// learns at the next meeting at the latest.
void wait_then_meet(Place& place, const Pending& pending) {
  pending.wait();
  place.comm.barrier();
}

void sizes_that_differ(Place& place) {
  Memory memory(place, 2000);
  Pending pending;
  if (place.rank() == 0)
    pending = place.comm.send(memory.data(), 1000, 1, 11, place.after());
  else if (place.rank() == 1)
    pending = place.comm.recv(memory.data(), 2000, 0, 11, place.after());
  if (place.rank() > 1) return;
  const CommError error = expect_comm_error([&] { wait_then_meet(place, pending); }, __LINE__);
  SUITE_CHECK(names(error, "1000") && names(error, "2000"), error.what());
  if (place.rank() == 1) SUITE_CHECK(error.tag() == 11 && error.peer() == place.comm.world_rank(0), error.what());
}

void a_message_larger_than_the_capacity(Place& place) {
  Memory memory(place, 2000);
  Pending pending;
  if (place.rank() == 0)
    pending = place.comm.send(memory.data(), 2000, 1, 12, place.after());
  else if (place.rank() == 1)
    pending = place.comm.recv_up_to(memory.data(), 1999, 0, 12, place.after());
  if (place.rank() > 1) return;
  const CommError error = expect_comm_error([&] { wait_then_meet(place, pending); }, __LINE__);
  SUITE_CHECK(names(error, "1999") && names(error, "2000"), error.what());
}

void counts_of_a_collective_that_differ(Place& place) {
  Memory memory(place, 4000);
  const std::size_t count = place.rank() == 0 ? 1000 : 999;
  const CommError error = expect_comm_error([&] { place.comm.allreduce(memory.data(), count, Type::f32, place.after()).wait(); }, __LINE__);
  SUITE_CHECK(names(error, "1000") && names(error, "999"), error.what());
}

// Only the last rank differs, in something that the memory would bear: a small sum, and one that libraries carry out in another way.
void collectives_that_differ(Place& place) {
  Memory memory(place, 4000);
  const Reduce reduce = place.rank() == place.size() - 1 ? Reduce::max : Reduce::sum;
  const CommError error = expect_comm_error(
      [&] { wait_then_meet(place, place.comm.allreduce(memory.data(), 1000, Type::f32, place.after(), reduce)); }, __LINE__);
  SUITE_CHECK(names(error, "(sum)") && names(error, "(max)"), error.what());
}

void large_collectives_that_differ(Place& place) {
  constexpr std::size_t bytes = 3 << 20;
  Memory memory(place, 2 * bytes);
  const bool last = place.rank() == place.size() - 1;
  const auto call = [&] {
    wait_then_meet(place, last ? place.comm.broadcast(memory.data(), bytes, 0, place.after())
                               : place.comm.allreduce(memory.data(), bytes / sizeof(float), Type::f32, place.after()));
  };
  const CommError error = expect_comm_error(call, __LINE__);
  SUITE_CHECK(names(error, "broadcast of 3145728 bytes from rank 0") && names(error, "allreduce of 786432 f32 (sum)"), error.what());
}

void a_deadline(Place& place) {
  Memory memory(place, 4000);
  if (place.rank() == 0) {
    const auto begin = Clock::now();
    const Pending pending = place.comm.recv(memory.data(), 4000, 1, 77, place.after());
    const CommError error = expect_comm_error([&] { pending.wait(std::chrono::milliseconds(200)); }, __LINE__);
    const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
    SUITE_CHECK(waited > 0.15 && waited < 10, fmt::format("{} s", waited));
    SUITE_CHECK(error.peer() == place.comm.world_rank(1) && error.tag() == 77 && error.operation() == "recv", error.what());
    SUITE_CHECK(error.exit_code() == ExitCode::peer_lost, "exit code");
  }
  place.comm.barrier();
}

void a_deadline_of_a_collective_names_who_is_missing(Place& place) {
  place.comm.set_timeout(std::chrono::milliseconds(300));
  Memory memory(place, 4000);
  if (place.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(3));  // its destructor meets the others too, where they are that late
    return;
  }
  const CommError error = expect_comm_error([&] { place.comm.allreduce(memory.data(), 1000, Type::f32, place.after()).wait(); }, __LINE__);
  SUITE_CHECK(names(error, "rank 1"), error.what());
  const CommError barrier = expect_comm_error([&] { place.comm.barrier(); }, __LINE__);
  SUITE_CHECK(names(barrier, "rank 1"), barrier.what());
}

// The last rank fails while the others wait for messages, a collective and a barrier of each other. They all have begun by then, but on
// a busy machine one may still be in the first barrier: that wait ends as well.
void an_abort_ends_every_wait(Place& place) {
  Memory memory(place, 4000);
  const int last = place.size() - 1;
  const auto group = [&] {
    place.comm.barrier();
    if (place.rank() == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      place.comm.abort("the disk is full");
    }
    if (place.rank() == 0)
      place.comm.recv(memory.data(), 4000, last, 1, place.after()).wait();
    else if (place.rank() == 1)
      place.comm.allreduce(memory.data(), 1000, Type::f32, place.after()).wait();
    else
      place.comm.barrier();
  };
  const auto begin = Clock::now();
  const CommError error = expect_comm_error(group, __LINE__);
  SUITE_CHECK(names(error, "the disk is full") && names(error, fmt::format("rank {}", last)), error.what());
  SUITE_CHECK(Clock::now() - begin < place.comm.timeout(), "ended by the deadline, not by the abort");
  SUITE_CHECK(place.comm.failure() && place.comm.failure()->rank == last, "failure() tells who");
}

void an_abort_reaches_sub_groups(Place& place) {
  Memory memory(place, 4000);
  const auto group = [&] {
    const auto pair = place.comm.split(place.rank() / 2, place.rank());
    pair->barrier();
    if (place.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      pair->abort("no more memory");
    }
    pair->recv(memory.data(), 4000, (pair->rank() + 1) % pair->size(), 1, place.after()).wait();
  };
  const CommError error = expect_comm_error(group, __LINE__);
  SUITE_CHECK(names(error, "no more memory"), error.what());
}

// Large messages are on their way when rank 0 fails, and both give their memory back: whoever still moved them would crash.
void after_an_abort_nobody_touches_the_memory(Place& place) {
  if (place.comm.kind() == "oneccl-gpu") return;  // has no abort
  constexpr std::size_t bytes = std::size_t{96} << 20;
  void* const memory = map_memory(bytes);
  place.comm.barrier();
  if (place.rank() > 1) return;
  Pending moving;
  if (place.rank() == 0) {
    moving = place.comm.recv(memory, bytes, 1, 5, place.after());
    std::this_thread::sleep_for(std::chrono::milliseconds(8));
  } else {
    const auto send = [&] {  // on a busy machine not before rank 0 has failed: then it is refused
      moving = place.comm.send(memory, bytes, 0, 5, place.after());
      place.comm.recv(memory, 1, 0, 6, place.after()).wait();
    };
    expect_comm_error(send, __LINE__);
  }
  place.comm.abort("the disk is full");
  mprotect(memory, bytes, PROT_NONE);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  munmap(memory, bytes);
}

// The sender fails in the middle of a large message, tells it and gives its memory back: its receiver, which may be reading that memory,
// must end by an error that names it and not by whatever the library does then.
void a_receiver_learns_that_its_sender_failed(Place& place) {
  if (place.comm.kind() == "oneccl-gpu") return;  // has no abort
  constexpr std::size_t bytes = std::size_t{96} << 20;
  void* const memory = map_memory(bytes);
  place.comm.barrier();
  if (place.rank() > 1) return;
  if (place.rank() == 1) {
    const Pending moving = place.comm.send(memory, bytes, 0, 5, place.after());
    for (const auto end = Clock::now() + std::chrono::milliseconds(8); Clock::now() < end;) moving.done();
    place.comm.abort("the disk is full");
    munmap(memory, bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  } else {
    const auto recv = [&] {
      place.comm.recv(memory, bytes, 1, 5, place.after()).wait();
      place.comm.recv(memory, bytes, 1, 6, place.after()).wait();
    };
    const CommError error = expect_comm_error(recv, __LINE__);
    SUITE_CHECK(names(error, "the disk is full") && names(error, "rank 1"), error.what());
    place.comm.abort("its sender failed");  // until nobody writes to its own memory
    munmap(memory, bytes);
  }
}

}  // namespace

std::span<const Case> failures() {
  static const std::vector<Case> cases{
      {"a_deadline", 2, true, a_deadline},
      {"sizes_that_differ", 2, true, sizes_that_differ},
      {"a_message_larger_than_the_capacity", 2, true, a_message_larger_than_the_capacity},
      {"counts_of_a_collective_that_differ", 2, true, counts_of_a_collective_that_differ},
      {"collectives_that_differ", 2, true, collectives_that_differ},
      {"large_collectives_that_differ", 2, true, large_collectives_that_differ},
      {"a_deadline_of_a_collective_names_who_is_missing", 2, true, a_deadline_of_a_collective_names_who_is_missing},
      {"an_abort_ends_every_wait", 2, true, an_abort_ends_every_wait},
      {"an_abort_reaches_sub_groups", 2, true, an_abort_reaches_sub_groups},
      {"after_an_abort_nobody_touches_the_memory", 2, true, after_an_abort_nobody_touches_the_memory},
      {"a_receiver_learns_that_its_sender_failed", 2, true, a_receiver_learns_that_its_sender_failed},
  };
  return cases;
}

}  // namespace ppengine::comm::suite
