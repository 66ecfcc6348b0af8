// Collectives: all types, odd counts, in place and not, sub-groups, host values. Expected values are small integers, which every
// type and order of summation represents exactly; the order itself is checked apart.
#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <thread>

#include "suite.hpp"

namespace ppengine::comm::suite {
namespace {

void put(std::uint8_t* at, Type type, int value) {
  const auto store = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (static_cast<Type::Value>(type)) {
    case Type::f32:
      return store(static_cast<float>(value));
    case Type::bf16:
      return store(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case Type::f16: {  // exact for 0 and for 1 ... 2047
      if (value == 0) return store(std::uint16_t{0});
      const int exponent = std::bit_width(static_cast<unsigned>(value)) - 1;
      return store(static_cast<std::uint16_t>((exponent + 15) << 10 | ((value << (10 - exponent)) & 0x3ff)));
    }
    case Type::f64:
      return store(static_cast<double>(value));
    case Type::i32:
      return store(std::int32_t{value});
    case Type::i64:
      return store(std::int64_t{value});
    case Type::u8:
      return store(static_cast<std::uint8_t>(value));
  }
}

// Element i of rank r: between 0 and 6, so that sums over 8 ranks are exact in bf16.
int element(int rank, std::size_t i) { return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3) % 7); }

template <class Value>
std::vector<std::uint8_t> make(std::size_t count, Type type, Value value) {
  std::vector<std::uint8_t> contents(count * type.size());
  for (std::size_t i = 0; i < count; ++i) put(contents.data() + i * type.size(), type, value(i));
  return contents;
}

int reduced(const Place& place, std::size_t i, Reduce reduce) {
  int result = element(0, i);
  for (int r = 1; r < place.size(); ++r) {
    const int value = element(r, i);
    result = reduce == Reduce::sum ? result + value : reduce == Reduce::max ? std::max(result, value) : std::min(result, value);
  }
  return result;
}

void allreduce_of(Place& place, std::size_t count, Type type, Reduce reduce, bool in_place) {
  Memory in(place, count * type.size()), out(place, count * type.size());
  in.fill(make(count, type, [&](std::size_t i) { return element(place.rank(), i); }));
  void* target = in_place ? in.data() : out.data();
  const Pending pending = place.comm.allreduce(in.data(), target, count, type, place.after(), reduce);
  if (place.stream)
    pending.wait_on(*place.stream);
  else
    pending.wait();
  SUITE_CHECK((in_place ? in : out).read() == make(count, type, [&](std::size_t i) { return reduced(place, i, reduce); }),
              fmt::format("{} {} {}{}", count, type.name(), name_of(reduce), in_place ? " in place" : ""));
}

void allreduce_types(Place& place) {
  for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::f64, Type::i32, Type::i64, Type::u8})
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{1001}, std::size_t{100003}})
      allreduce_of(place, count, type, Reduce::sum, count % 2 == 1);
  for (const Reduce reduce : {Reduce::max, Reduce::min})
    for (const Type type : {Type::f32, Type::bf16, Type::i64}) allreduce_of(place, 999, type, reduce, false);
  allreduce_of(place, 0, Type::f32, Reduce::sum, true);
}

void allreduce_large(Place& place) { allreduce_of(place, std::size_t{16} << 20, Type::f32, Reduce::sum, true); }

// Large ones may be carried out in pieces; small ones that are called meanwhile must not get between them on some ranks only.
void large_and_small_sums_under_way(Place& place) {
  const std::size_t large = std::size_t{9} << 20, small = 1001;
  const auto values = [&](std::size_t count) { return make(count, Type::f32, [&](std::size_t i) { return element(place.rank(), i); }); };
  Memory first(place, large * 4), second(place, small * 4), third(place, large * 4);
  first.fill(values(large)), second.fill(values(small)), third.fill(values(large));
  std::vector<Pending> pending;
  pending.push_back(place.comm.allreduce(first.data(), large, Type::f32, place.after()));
  if (place.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  pending.push_back(place.comm.allreduce(second.data(), small, Type::f32, place.after()));
  pending.push_back(place.comm.allreduce(third.data(), large, Type::f32, place.after()));
  for (const Pending& one : pending) one.wait();
  const auto expected = [&](std::size_t count) {
    return make(count, Type::f32, [&](std::size_t i) { return reduced(place, i, Reduce::sum); });
  };
  SUITE_CHECK(first.read() == expected(large), "the first");
  SUITE_CHECK(second.read() == expected(small), "the small one");
  SUITE_CHECK(third.read() == expected(large), "the last");
}

void reduce_scatter(Place& place) {
  const auto ranks = static_cast<std::size_t>(place.size()), rank = static_cast<std::size_t>(place.rank());
  for (const Type type : {Type::f32, Type::bf16})
    for (const std::size_t count : {std::size_t{1}, std::size_t{33}, std::size_t{50001}})
      for (const bool in_place : {false, true}) {
        Memory in(place, ranks * count * type.size()), out(place, count * type.size());
        in.fill(make(ranks * count, type, [&](std::size_t i) { return element(place.rank(), i); }));
        void* target = in_place ? static_cast<std::uint8_t*>(in.data()) + rank * count * type.size() : out.data();
        place.comm.reduce_scatter(in.data(), target, count, type, place.after()).wait();
        auto contents = (in_place ? in : out).read();
        if (in_place)
          contents = {contents.begin() + static_cast<std::ptrdiff_t>(rank * count * type.size()),
                      contents.begin() + static_cast<std::ptrdiff_t>((rank + 1) * count * type.size())};
        SUITE_CHECK(contents == make(count, type, [&](std::size_t i) { return reduced(place, rank * count + i, Reduce::sum); }),
                    fmt::format("{} {}", count, type.name()));
      }
}

void all_gather(Place& place) {
  const auto ranks = static_cast<std::size_t>(place.size()), rank = static_cast<std::size_t>(place.rank());
  for (const Type type : {Type::f32, Type::bf16, Type::u8})
    for (const std::size_t count : {std::size_t{1}, std::size_t{33}, std::size_t{50001}})
      for (const bool in_place : {false, true}) {
        const std::size_t bytes = count * type.size();
        Memory in(place, bytes), out(place, ranks * bytes);
        const auto mine = pattern(bytes, static_cast<unsigned>(rank));
        in.fill(mine);
        std::vector<std::uint8_t> before(ranks * bytes), expected;
        if (in_place) std::copy(mine.begin(), mine.end(), before.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
        out.fill(before);
        place.comm
            .all_gather(in_place ? static_cast<std::uint8_t*>(out.data()) + rank * bytes : in.data(), out.data(), count, type,
                        place.after())
            .wait();
        for (unsigned r = 0; r < ranks; ++r) {
          const auto part = pattern(bytes, r);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        SUITE_CHECK(out.read() == expected, fmt::format("{} {}", count, type.name()));
      }
}

void broadcast(Place& place) {
  for (int root = 0; root < place.size(); ++root)
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5003}, std::size_t{3000001}}) {
      Memory memory(place, bytes);
      memory.fill(pattern(bytes, static_cast<unsigned>(place.rank() + 10)));
      place.comm.broadcast(memory.data(), bytes, root, place.after()).wait();
      SUITE_CHECK(memory.read() == pattern(bytes, static_cast<unsigned>(root + 10)), fmt::format("{} bytes from {}", bytes, root));
    }
}

// Values whose sum depends on the order: every rank and every repetition gives the same bits.
void sums_are_repeatable(Place& place) {
  const std::size_t count = 30011;
  std::vector<std::uint8_t> first;
  for (int round = 0; round < 5; ++round) {
    Memory memory(place, count * 4);
    std::vector<std::uint8_t> contents(count * 4);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = 1.0f / static_cast<float>(1 + (i * 31 + static_cast<std::size_t>(place.rank()) * 17) % 1000);
      std::memcpy(contents.data() + 4 * i, &value, 4);
    }
    memory.fill(contents);
    place.comm.allreduce(memory.data(), count, Type::f32, place.after()).wait();
    if (round == 0) first = memory.read();
    SUITE_CHECK(memory.read() == first, fmt::format("round {}", round));
  }
  const auto all = place.comm.all_gather_bytes({reinterpret_cast<const char*>(first.data()), first.size()});
  for (const std::string& theirs : all) SUITE_CHECK(theirs == all[0], "the same bits on every rank");
}

void several_under_way_with_messages(Place& place) {
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<Pending> pending;
  const std::size_t count = 70001;
  for (int i = 0; i < 6; ++i) {
    auto& sum = *memory.emplace_back(std::make_unique<Memory>(place, count * 4));
    sum.fill(make(count, Type::f32, [&](std::size_t k) { return element(place.rank(), k + static_cast<std::size_t>(i)); }));
    pending.push_back(place.comm.allreduce(sum.data(), count, Type::f32, place.after()));
    auto& in = *memory.emplace_back(std::make_unique<Memory>(place, count));
    pending.push_back(place.comm.recv(in.data(), count, place.previous(), i, place.after()));
    auto& out = *memory.emplace_back(std::make_unique<Memory>(place, count));
    out.fill(pattern(count, static_cast<unsigned>(place.rank() * 100 + i)));
    pending.push_back(place.comm.send(out.data(), count, place.next(), i, place.after()));
  }
  Pending::all(pending).wait();
  for (std::size_t i = 0; i < 6; ++i) {
    SUITE_CHECK(memory[3 * i]->read() == make(count, Type::f32, [&](std::size_t k) { return reduced(place, k + i, Reduce::sum); }), "sum");
    SUITE_CHECK(memory[3 * i + 1]->read() == pattern(count, static_cast<unsigned>(place.previous() * 100) + static_cast<unsigned>(i)),
                "message");
  }
}

void host_values(Place& place) {
  const int n = place.size(), r = place.rank();
  SUITE_CHECK(place.comm.broadcast_bytes(r == n - 1 ? "seed 42" : "", n - 1) == "seed 42", "broadcast");
  const auto all = place.comm.all_gather_bytes(std::string(static_cast<std::size_t>(r) * 1000, 'x') + std::to_string(r));
  for (int k = 0; k < n; ++k)
    SUITE_CHECK(all[static_cast<std::size_t>(k)] == std::string(static_cast<std::size_t>(k) * 1000, 'x') + std::to_string(k), "gather");
  SUITE_CHECK(place.comm.allreduce_value(0.5 * (r + 1)) == 0.25 * n * (n + 1), "sum of doubles");
  SUITE_CHECK(place.comm.allreduce_value(std::int64_t{r}, Reduce::max) == n - 1, "largest");
  SUITE_CHECK(place.comm.allreduce_value(std::int64_t{r} + (std::int64_t{1} << 60), Reduce::min) == std::int64_t{1} << 60, "smallest");
  for (int i = 0; i < 50; ++i) place.comm.barrier();
}

void sub_groups(Place& place) {
  const int r = place.rank(), n = place.size();
  const auto parity = place.comm.split(r % 2, -r);  // in reverse order
  const int members = n / 2 + (r % 2 == 0 ? n % 2 : 0);
  SUITE_CHECK(parity->size() == members, "size");
  SUITE_CHECK(parity->world_rank(parity->rank()) == place.comm.world_rank(r), "world rank");
  SUITE_CHECK(parity->rank() == members - 1 - r / 2, "order by key");
  SUITE_CHECK(parity->allreduce_value(std::int64_t{1}) == members, "sum");
  Place inside{*parity, place.device, place.stream};
  allreduce_of(inside, 5000, Type::f32, Reduce::sum, true);
  {
    Memory out(inside, 100000), in(inside, 100000);
    out.fill(pattern(100000, static_cast<unsigned>(inside.rank())));
    const Message both[] = {Message::send(out.data(), 100000, inside.next(), 1), Message::recv(in.data(), 100000, inside.previous(), 1)};
    parity->exchange(both, inside.after()).wait();
    SUITE_CHECK(in.read() == pattern(100000, static_cast<unsigned>(inside.previous())), "ring inside the group");
  }
  const auto only_first = place.comm.split(r == 0 ? 0 : -1, 0);
  SUITE_CHECK((only_first != nullptr) == (r == 0), "no color, no group");
}

// Two groups of the same ranks are used in another order by each rank, as by two threads: neither may wait for the other's turn.
void groups_do_not_wait_for_each_other(Place& place) {
  if (place.comm.kind() == "oneccl-gpu") return;  // oneCCL's SYCL build crashes when two threads start communicators at once
  const auto other = place.comm.split(0, place.rank());
  constexpr std::size_t count = 15000, calls = 100;
  const auto parts = static_cast<std::size_t>(place.size());
  Memory in(place, parts * count * 4), out(place, 2 * calls * count * 4);
  for (int round = 0; round < 3; ++round) {
    place.comm.barrier();
    if (place.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<Pending> all;
    for (std::size_t half = 0; half < 2; ++half) {
      Communicator& group = (half == 0) == (place.rank() == 0) ? place.comm : *other;
      for (std::size_t i = 0; i < calls; ++i)
        all.push_back(group.reduce_scatter(in.data(), static_cast<std::byte*>(out.data()) + (half * calls + i) * count * 4, count,
                                           Type::f32, place.after()));
    }
    for (const Pending& one : all) one.wait();
  }
}

}  // namespace

std::span<const Case> collectives() {
  static const std::vector<Case> cases{
      {"allreduce_types", 1, false, allreduce_types},
      {"allreduce_64_mib", 2, false, allreduce_large},
      {"large_and_small_sums_under_way", 2, false, large_and_small_sums_under_way},
      {"reduce_scatter", 1, false, reduce_scatter},
      {"all_gather", 1, false, all_gather},
      {"broadcast", 1, false, broadcast},
      {"sums_are_repeatable", 2, false, sums_are_repeatable},
      {"several_under_way_with_messages", 2, false, several_under_way_with_messages},
      {"host_values", 1, false, host_values},
      {"sub_groups", 2, false, sub_groups},
      {"groups_do_not_wait_for_each_other", 2, false, groups_do_not_wait_for_each_other},
  };
  return cases;
}

}  // namespace ppengine::comm::suite
