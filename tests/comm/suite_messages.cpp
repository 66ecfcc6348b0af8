// Messages: sizes, order, both directions, batches, sizes known only to the sender.
#include <fmt/core.h>

#include <thread>

#include <ppengine/base/error.hpp>

#include "suite.hpp"

namespace ppengine::comm::suite {
namespace {

void ring_of(Place& place, std::size_t bytes) {
  Memory out(place, bytes), in(place, bytes);
  out.fill(pattern(bytes, static_cast<unsigned>(place.rank())));
  const Message both[] = {Message::send(out.data(), bytes, place.next(), 5), Message::recv(in.data(), bytes, place.previous(), 5)};
  const Pending pending = place.comm.exchange(both, place.after());
  if (place.stream)
    pending.wait_on(*place.stream);
  else
    pending.wait();
  SUITE_CHECK(in.read() == pattern(bytes, static_cast<unsigned>(place.previous())), fmt::format("{} bytes", bytes));
  pending.wait();
}

void sizes(Place& place) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4096}, std::size_t{65536}, std::size_t{65537},
                                  std::size_t{1000003}, std::size_t{8} << 20})
    ring_of(place, bytes);
}

void large(Place& place) { ring_of(place, std::size_t{64} << 20); }

void receive_before_and_after_send(Place& place) {
  Memory memory(place, 300000);
  const auto expected = pattern(300000, 9);
  for (const bool receive_first : {true, false}) {
    place.comm.barrier();
    if (place.rank() == 0) {
      if (receive_first) place.comm.barrier();
      memory.fill(expected);
      const Pending sent = place.comm.send(memory.data(), 300000, 1, 3, place.after());
      if (!receive_first) place.comm.barrier();
      sent.wait();
    } else if (place.rank() == 1) {
      if (!receive_first) place.comm.barrier();
      memory.fill(std::vector<std::uint8_t>(300000, 0));
      const Pending got = place.comm.recv(memory.data(), 300000, 0, 3, place.after());
      if (receive_first) place.comm.barrier();
      got.wait();
      SUITE_CHECK(memory.read() == expected, "contents");
      SUITE_CHECK(got.bytes() == 300000, "count");
      SUITE_CHECK(got.done(), "done after wait");
    } else {
      place.comm.barrier();
    }
  }
}

void many_in_flight_both_ways(Place& place) {
  constexpr int count = 100;
  const std::size_t bytes = 20000;
  std::vector<std::unique_ptr<Memory>> out, in;
  std::vector<Pending> pending;
  for (int i = 0; i < count; ++i) {
    in.push_back(std::make_unique<Memory>(place, bytes));
    pending.push_back(place.comm.recv(in.back()->data(), bytes, place.previous(), i, place.after()));
  }
  for (int i = 0; i < count; ++i) {
    out.push_back(std::make_unique<Memory>(place, bytes));
    out.back()->fill(pattern(bytes, static_cast<unsigned>(1000 * place.rank() + i)));
    pending.push_back(place.comm.send(out.back()->data(), bytes, place.next(), i, place.after()));
  }
  for (const Pending& one : pending) one.wait();
  for (int i = 0; i < count; ++i)
    SUITE_CHECK(in[static_cast<std::size_t>(i)]->read() == pattern(bytes, static_cast<unsigned>(1000 * place.previous() + i)),
                fmt::format("message {}", i));
}

// Within a tag the order of posting counts; tags tell messages of the same order apart.
void same_tag_keeps_its_order(Place& place) {
  Memory first(place, 64), second(place, 128);
  if (place.rank() == 0) {
    first.fill(pattern(64, 1));
    second.fill(pattern(128, 2));
    const Pending a = place.comm.send(first.data(), 64, 1, 7, place.after());
    const Pending b = place.comm.send(second.data(), 128, 1, 7, place.after());
    a.wait();
    b.wait();
  } else if (place.rank() == 1) {
    const Pending a = place.comm.recv(first.data(), 64, 0, 7);
    const Pending b = place.comm.recv(second.data(), 128, 0, 7);
    a.wait();
    b.wait();
    SUITE_CHECK(first.read() == pattern(64, 1) && second.read() == pattern(128, 2), "contents");
  }
}

void size_known_to_the_sender_only(Place& place) {
  Memory memory(place, 100000);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{12}, std::size_t{77777}, std::size_t{100000}}) {
    if (place.rank() == 0) {
      memory.fill(pattern(100000, static_cast<unsigned>(bytes)));
      place.comm.send(memory.data(), bytes, 1, 2, place.after()).wait();
    } else if (place.rank() == 1) {
      const Pending got = place.comm.recv_up_to(memory.data(), 100000, 0, 2, place.after());
      got.wait();
      SUITE_CHECK(got.bytes() == bytes, fmt::format("{} of {}", got.bytes(), bytes));
      auto contents = memory.read(), expected = pattern(100000, static_cast<unsigned>(bytes));
      contents.resize(bytes);
      expected.resize(bytes);
      SUITE_CHECK(contents == expected, "contents");
    }
  }
}

// The sender's memory is written again right after wait_on: the receiver still sees the first contents.
void memory_is_reused_after_wait_on(Place& place) {
  if (!place.stream) return;
  const std::size_t bytes = 500000;
  Memory memory(place, bytes);
  std::vector<std::vector<std::uint8_t>> contents;
  for (unsigned i = 0; i < 10; ++i) contents.push_back(pattern(bytes, i));
  for (unsigned i = 0; i < 10; ++i) {
    if (place.rank() == 0) {
      place.stream->copy(memory.data(), contents[i].data(), bytes);
      place.comm.send(memory.data(), bytes, 1, 1, *place.stream).wait_on(*place.stream);
    } else if (place.rank() == 1) {
      place.comm.recv(memory.data(), bytes, 0, 1, *place.stream).wait_on(*place.stream);
      SUITE_CHECK(memory.read() == contents[i], fmt::format("round {}", i));
    }
  }
  place.stream->wait();
}

// Blocks go around the ring again and again: what one rank has made, the next one changes and hands on.
void blocks_handed_over(Place& place) {
  if (!place.device) return;
  const std::size_t room = 100000, bytes = 99991;
  Memory out(place, room), in(place, room);
  for (unsigned round = 0; round < 20; ++round) {
    out.fill(pattern(room, round * 10 + static_cast<unsigned>(place.rank())));
    const auto send = [&] { return place.comm.hand_over(out.block(), bytes, place.next(), 6, place.after()); };
    const auto receive = [&] { return place.comm.take_over(in.block(), bytes, place.previous(), 6, place.after()); };
    const bool send_first = (round + static_cast<unsigned>(place.rank())) % 2 == 0;
    const Pending first = send_first ? send() : receive(), second = send_first ? receive() : send();
    first.wait_on(*place.stream);
    second.wait_on(*place.stream);
    auto got = in.read(), expected = pattern(room, round * 10 + static_cast<unsigned>(place.previous()));
    got.resize(bytes);
    expected.resize(bytes);
    SUITE_CHECK(got == expected, fmt::format("round {}", round));
  }
}

void a_message_to_oneself(Place& place) {
  Memory out(place, 1000), in(place, 1000);
  out.fill(pattern(1000, 4));
  const Message both[] = {Message::send(out.data(), 1000, place.rank(), 1), Message::recv(in.data(), 1000, place.rank(), 1)};
  place.comm.exchange(both, place.after()).wait();
  SUITE_CHECK(in.read() == pattern(1000, 4), "contents");
}

void a_rank_that_does_not_exist(Place& place) {
  char byte = 0;
  try {
    place.comm.send(&byte, 1, place.size(), 0);
  } catch (const Error& error) {
    SUITE_CHECK(std::string(error.what()).find(fmt::format("no rank {}", place.size())) != std::string::npos, error.what());
    return;
  }
  SUITE_CHECK(false, "sent to a rank that does not exist");
}

// Many messages come before anybody wants them: what is left in buffers of the library must move all the same, also when their sender is
// done.
void messages_that_come_long_before_their_receives(Place& place) {
  constexpr std::size_t bytes = 60000, count = 300;
  Memory memory(place, bytes * count);
  auto* const at = static_cast<std::byte*>(memory.data());
  for (int round = 0; round < 3; ++round) {
    place.comm.barrier();
    std::vector<Pending> all;
    if (place.rank() == 0)
      for (std::size_t i = 0; i < count; ++i) all.push_back(place.comm.send(at + bytes * i, bytes, 1, static_cast<int>(i), place.after()));
    if (place.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (std::size_t i = 0; i < count; ++i) place.comm.recv(at + bytes * i, bytes, 0, static_cast<int>(i), place.after()).wait();
    }
    for (const Pending& one : all) one.wait();
    if (place.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

std::span<const Case> messages() {
  static const std::vector<Case> cases{
      {"sizes", 2, false, sizes},
      {"64_mib", 2, false, large},
      {"receive_before_and_after_send", 2, false, receive_before_and_after_send},
      {"many_in_flight_both_ways", 2, false, many_in_flight_both_ways},
      {"same_tag_keeps_its_order", 2, false, same_tag_keeps_its_order},
      {"size_known_to_the_sender_only", 2, false, size_known_to_the_sender_only},
      {"memory_is_reused_after_wait_on", 2, false, memory_is_reused_after_wait_on},
      {"blocks_handed_over", 2, false, blocks_handed_over},
      {"a_message_to_oneself", 1, false, a_message_to_oneself},
      {"a_rank_that_does_not_exist", 1, false, a_rank_that_does_not_exist},
      {"messages_that_come_long_before_their_receives", 2, false, messages_that_come_long_before_their_receives},
  };
  return cases;
}

}  // namespace ppengine::comm::suite
