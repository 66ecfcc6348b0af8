// ppengine bench p2p and bench allreduce: how fast ranks talk to each other, by size.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/baseline.hpp>
#include <ppengine/engine/measure/measure.hpp>
#include <ppengine/ops/device/memory.hpp>

#include "commands.hpp"
#include "flags/rank_flags.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

struct Row {
  std::string what, by;  // by: ppengine, or what lies under it
  std::size_t bytes;
  engine::Spread seconds;
  double rate;  // bytes moved per second at the median
};

// The same work by our layer and by what lies under it.
struct Way {
  std::string by;
  std::function<void()> once;
};

struct CommBench {
  RankFlags place;
  int ranks = 2, samples = 9;
  std::vector<std::size_t> sizes{1024, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  bool json = false;
  std::string kind;  // of the communicator that was used
  std::vector<std::unique_ptr<comm::Baseline>> under;

  // What is measured at one size, on every rank; rows of rank 0 are printed.
  using Measure = std::vector<Row> (*)(const CommBench&, comm::Communicator&, void* memory, std::size_t bytes);
  void add(CLI::App& command);
  void run(Measure measure);
  std::vector<Row> time(comm::Communicator& world, const std::string& what, std::size_t bytes, const std::vector<Way>& ways, double one_in,
                        double moved) const;
  void print(const std::vector<Row>& rows) const;
};

// By turns, sample by sample, so that a busy machine is as busy for all. Every rank repeats equally often, so the number follows from the
// size alone. A repetition is `one_in` of what is reported, and moves so many bytes.
std::vector<Row> CommBench::time(comm::Communicator& world, const std::string& what, std::size_t bytes, const std::vector<Way>& ways,
                                 double one_in, double moved) const {
  const int times = bytes <= (64 << 10) ? 100 : bytes <= (1 << 20) ? 20 : 4;
  std::vector<std::vector<double>> seconds(ways.size());
  for (int sample = 0; sample < samples; ++sample)
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      const std::size_t w = (turn + static_cast<std::size_t>(sample)) % ways.size();  // nobody is always the first
      // A first time without the clock, to warm up: each way leaves the caches as it likes, which the next one pays for.
      for (int i = 0; i < times; ++i) ways[w].once();
      world.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) ways[w].once();
      const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times / one_in;
      seconds[w].push_back(taken);
    }
  std::vector<Row> rows;
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const auto spread = engine::spread_of(seconds[w]);
    rows.push_back({what, ways[w].by, bytes, spread, moved / spread.median});
  }
  return rows;
}

// Ranks 0 and 1: there and back, of which half is one way; then both directions at once.
std::vector<Row> measure_p2p(const CommBench& bench, comm::Communicator& world, void* memory, std::size_t bytes) {
  auto* const out = static_cast<std::byte*>(memory);
  auto* const in = out + bytes;
  const int me = world.rank(), peer = 1 - me;
  std::vector<Way> there{{"ppengine", [&] {
                            if (me > 1) return;
                            if (me == 0) world.send(out, bytes, peer, 1).wait();
                            world.recv(in, bytes, peer, 1).wait();
                            if (me == 1) world.send(out, bytes, peer, 1).wait();
                          }}};
  std::vector<Way> both{{"ppengine", [&] {
                           if (me > 1) return;
                           const comm::Message messages[] = {comm::Message::send(out, bytes, peer, 2),
                                                             comm::Message::recv(in, bytes, peer, 2)};
                           world.exchange(messages).wait();
                         }}};
  for (const auto& one : bench.under) {
    comm::Baseline* const raw = one.get();
    there.push_back({raw->name(), [=] {
                       if (me > 1) return;
                       if (me == 0) raw->send(out, bytes, peer);
                       raw->recv(in, bytes, peer);
                       if (me == 1) raw->send(out, bytes, peer);
                     }});
    both.push_back({raw->name(), [=] {
                      if (me < 2) raw->exchange(out, in, bytes, peer);
                    }});
  }
  auto rows = bench.time(world, "one way", bytes, there, 2, double(bytes));
  for (Row& row : bench.time(world, "both ways", bytes, both, 1, 2 * double(bytes))) rows.push_back(std::move(row));
  return rows;
}

// The rate is what each rank must send at least, 2 (n - 1) / n of the size, as NCCL's tests count it.
std::vector<Row> measure_allreduce(const CommBench& bench, comm::Communicator& world, void* memory, std::size_t bytes) {
  std::vector<Way> ways{{"ppengine", [&] { world.allreduce(memory, bytes / sizeof(float), comm::Type::f32).wait(); }}};
  for (const auto& one : bench.under)
    ways.push_back({one->name(), [raw = one.get(), memory, bytes] { raw->allreduce(static_cast<float*>(memory), bytes / sizeof(float)); }});
  const double ranks = world.size();
  return bench.time(world, "allreduce", bytes, ways, 1, 2 * (ranks - 1) / ranks * double(bytes));
}

void CommBench::add(CLI::App& command) {
  command.add_option("--ranks", ranks, "Ranks (default 2)")->check(CLI::Range(2, 4096));
  command.add_option("--sizes", sizes, "Bytes of a message (default 1 KiB to 16 MiB)")->delimiter(',')->check(CLI::Range(4UL, 1UL << 32));
  command.add_option("--samples", samples, "Samples of each size (default 9)")->check(CLI::Range(1, 10000));
  place.add(command, "Ranks");
  command.add_flag("--json", json, "Print one JSON object");
}

void CommBench::run(Measure measure) {
  const auto devices = place.open_devices(ranks);
  std::vector<Row> rows;
  const bool prints = place.run(ranks, devices, [&](comm::Communicator& world) {
    const auto& device = devices[static_cast<std::size_t>(world.rank()) % devices.size()];
    ops::Buffer memory(device, 2 * std::ranges::max(sizes));
    {
      ops::Stream stream(device);
      stream.zero(memory.data(), memory.bytes());  // real pages, and numbers that stay zero when they are summed
      stream.wait();
    }
    if (auto* told = dynamic_cast<comm::HasBaselines*>(&world)) under = told->baselines();
    for (const std::size_t bytes : sizes) {
      auto measured = measure(*this, world, memory.data(), bytes);
      if (world.rank() == 0) rows.insert(rows.end(), measured.begin(), measured.end());
    }
    if (world.rank() == 0) kind = world.kind();
    if (!under.empty()) under.clear();
  });
  if (prints) print(rows);
}

void CommBench::print(const std::vector<Row>& rows) const {
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Row& row : rows)
      list.push_back({{"what", row.what},
                      {"by", row.by},
                      {"bytes", row.bytes},
                      {"microseconds", 1e6 * row.seconds.median},
                      {"microseconds_range", {1e6 * row.seconds.low, 1e6 * row.seconds.high}},
                      {"gigabytes_per_second", row.rate / 1e9}});
    print_result("{}\n", nlohmann::json{{"communicator", kind}, {"ranks", ranks}, {"results", list}}.dump());
    return;
  }
  print_result("{} ranks over {}: median of {} samples\n", ranks, kind, samples);
  for (const Row& row : rows)
    print_result("  {:<10} {:>10} bytes {:<9} {:>11.1f} us ({:.1f} to {:.1f}) {:>8.2f} GB/s\n", row.what, row.bytes, row.by,
                 1e6 * row.seconds.median, 1e6 * row.seconds.low, 1e6 * row.seconds.high, row.rate / 1e9);
}

void add(CLI::App& bench, const std::string& name, const std::string& text, CommBench::Measure measure) {
  auto* command = bench.add_subcommand(name, text);
  auto flags = std::make_shared<CommBench>();
  flags->add(*command);
  command->footer(
      fmt::format("Examples:\n  ppengine bench {0}\n  ppengine bench {0} --launch processes --sizes 65536,4194304 --json", name));
  command->callback([flags, measure] { flags->run(measure); });
}

}  // namespace

void add_bench_comm(CLI::App& bench) {
  add(bench, "p2p", "Messages between two ranks: one way, and both ways at once", measure_p2p);
  add(bench, "allreduce", "Sums over all ranks", measure_allreduce);
}

}  // namespace ppengine::cli
