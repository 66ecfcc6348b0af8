// ppengine bench ops: each op at a preset's shapes, beside what the device can do at most in the same run.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/cpu/product_choice.hpp>
#include <ppengine/ops/matmul.hpp>
#include <ppengine/ops/weights.hpp>

#include "bench/measure.hpp"
#include "bench/ops_cases.hpp"
#include "commands.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

// Rows: the microbatch of the training benchmark (2 sequences of tiny, 1 of the others).
constexpr std::array presets{BenchShape{"tiny", 256, 256, 4, 128, 256}, BenchShape{"mid", 256, 512, 8, 256, 8192},
                             BenchShape{"gpt2", 256, 768, 12, 256, 50257}};

struct Options {
  bool json = false, explain = false;
  std::string device, op, preset = "gpt2";
};

// The limits: a large matmul, and a plain copy or a plain read, whichever is faster, that moves as many bytes as the op must, so that
// caches and the cost of a launch count on both sides. The best of the tries counts.
class Limits {
 public:
  explicit Limits(ops::Stream& stream)
      : stream_(stream), memory_(stream.device_ptr(), most), sums_(stream.device_ptr(), ops::read_sums * sizeof(float)) {
    stream.zero(memory_.data(), most);
  }

  double matmul_flops() {
    constexpr std::int64_t n = 2048;
    const ops::Tensor a(nullptr, ops::Type::f32, {n, n});
    const auto product = ops::Matmul::make(stream_.device(), {a, a, a});
    constexpr std::size_t bytes = n * n * 4;
    return 2.0 * n * n * n / best([&] { product->run(stream_, memory_.data(), memory_.at(bytes), memory_.at(2 * bytes)); }, 5);
  }
  // Bytes read plus bytes written, per second.
  double memory_rate(double bytes) {
    const std::size_t half = std::min(static_cast<std::size_t>(bytes / 2), most / 2);
    const double copying = best([&] { stream_.copy(memory_.data(), memory_.at(most / 2), half); });
    const double reading =
        best([&] { ops::read_all(stream_, memory_.as<float>(), sums_.as<float>(), static_cast<std::int64_t>(2 * half / sizeof(float))); });
    return 2.0 * static_cast<double>(half) / std::min(copying, reading);
  }

 private:
  double best(const std::function<void()>& run, int samples = 7) {
    return measure(run, [&] { stream_.wait(); }, samples).least;
  }

  static constexpr std::size_t most = std::size_t{512} << 20;
  ops::Stream& stream_;
  ops::Buffer memory_, sums_;
};

void print_explanation(const std::vector<BenchExplained>& all, bool json) {
  const char* const vectors = ops::cpu::vector_target();
  const std::string kept = ops::cpu::ProductTable::of_this_cpu().file().string();
  nlohmann::json list = nlohmann::json::array();
  if (!json) print_result("vector loops of ops/cpu: {}; who computes a product is kept in {}\n\n", vectors, kept);
  for (const auto& [op, considered] : all) {
    bool taken = false;
    for (const auto& one : considered) {
      const std::string verdict = one.refusal ? *one.refusal : taken ? "not needed" : "used";
      taken = taken || !one.refusal;
      if (json)
        list.push_back({{"op", op}, {"implementation", one.implementation}, {"verdict", verdict}});
      else
        print_result("{:<18} {:<8} {}\n", op, one.implementation, verdict);
    }
  }
  if (json) print_result("{}\n", nlohmann::json{{"vectors", vectors}, {"products_kept_in", kept}, {"considered", list}}.dump());
}

// Which product serves each linear of a layer and the head, with the measured rates.
std::vector<BenchExplained> explain_linears(ops::Device& device, const BenchShape& shape) {
  std::vector<BenchExplained> all;
  const std::int64_t width = shape.width;
  for (const auto& [in, out] :
       {std::pair{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}, {width, shape.vocabulary}})
    all.push_back(
        {fmt::format("linear {}>{}", in, out),
         ops::cpu::explain_products(device, {.rows = shape.rows, .in = in, .out = out, .layout = ops::preferred_layout(device, in, out)})});
  return all;
}

void run(const Options& options) {
  const auto preset = std::ranges::find(presets, options.preset, &BenchShape::name);
  const auto device = ops::Device::open(options.device);
  if (options.explain) {
    auto all = explain_ops(*device, *preset, options.op);
    if (options.op.empty() || options.op == "linear") std::ranges::move(explain_linears(*device, *preset), std::back_inserter(all));
    return print_explanation(all, options.json);
  }

  ops::Stream stream(device);
  Limits limits(stream);
  const double best_flops = limits.matmul_flops(), best_memory = limits.memory_rate(512.0 * (1 << 20));
  nlohmann::json list = nlohmann::json::array();
  if (!options.json) {
    print_result("{} ({}), preset {}\nlarge matmul {:.0f} GFLOP/s, memory {:.1f} GB/s read and written\n\n", device->info().selector,
                 device->info().name, preset->name, best_flops / 1e9, best_memory / 1e9);
    print_result("{:<14} {:<12} {:<20} {:<8} {:>10} {:>7} {:>14} {:>7}\n", "op", "pass", "shape", "by", "time", "spread", "rate", "share");
  }
  std::size_t cases = 0;
  for_each_case(stream, *preset, options.op, [&](const BenchCase& one) {
    ++cases;
    const Measured time = measure(one.run, [&] { stream.wait(); });
    const bool product = one.flops > 0;
    const double rate = (product ? one.flops : one.bytes) / time.seconds;
    const double limit = product ? best_flops : limits.memory_rate(one.bytes);
    if (rate > limit)
      log::warning(
          fmt::format("{} {} {}: {:.1f} is above the measured limit of {:.1f}; another program used the machine meanwhile, or what "
                      "the op reads and writes fits a nearer cache; its own rate counts as the limit",
                      one.op, one.pass, one.shape, rate / 1e9, limit / 1e9));
    const double share = rate / std::max(limit, rate);
    if (options.json)
      list.push_back({{"op", one.op},
                      {"pass", one.pass},
                      {"shape", one.shape},
                      {"implementation", one.implementation},
                      {"used", one.used},
                      {"microseconds", time.seconds * 1e6},
                      {"spread", time.spread},
                      {product ? "gflops" : "gb_per_second", rate / 1e9},
                      {"share", share}});
    else
      print_result("{:<14} {:<12} {:<20} {:<8} {:>7.1f} us {:>5.0f} % {:>8.1f} {} {:>5.0f} %{}\n", one.op, one.pass, one.shape,
                   one.implementation, time.seconds * 1e6, time.spread * 100, rate / 1e9, product ? "GFLOP" : " GB/s", share * 100,
                   one.used ? "" : "  (not used)");
    std::fflush(results_file());
  });
  if (cases == 0) throw ConfigError(fmt::format("there is no op '{}'; --explain lists them", options.op));
  if (options.json)
    print_result("{}\n", nlohmann::json{{"device", device->info().selector},
                                        {"preset", preset->name},
                                        {"matmul_gflops", best_flops / 1e9},
                                        {"memory_gb_per_second", best_memory / 1e9},
                                        {"ops", list}}
                             .dump());
  else
    print_result("\nshare: of the large matmul's rate for linear; for the others of a plain copy or read that moves as many bytes.\n");
}

}  // namespace

void add_bench_ops(CLI::App& bench) {
  auto* command = bench.add_subcommand("ops", "Each op beside its limit: large matmul or plain copy and read, measured in the same run");
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag(
      "--explain", options->explain,
      "Say which implementations were considered, why each was refused, and who computes the products of linears at which rate");
  command->add_option("--device", options->device, "Device, as 'ppengine devices' lists it (default: SYCL's choice)")->type_name("DEVICE");
  command->add_option("--op", options->op, "Only this op (default: all)")->type_name("NAME");
  command->add_option("--preset", options->preset, "Shapes of which model (default: gpt2)")->check(CLI::IsMember({"tiny", "mid", "gpt2"}));
  command->footer("Examples:\n  ppengine bench ops --preset tiny\n  ppengine bench ops --op layer_norm\n  ppengine bench ops --explain");
  command->callback([options] { run(*options); });
}

}  // namespace ppengine::cli
