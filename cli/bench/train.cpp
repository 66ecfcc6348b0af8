// ppengine bench train: tokens per second, idle share, memory, and the share of what a large matrix product reaches on the same ranks.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/measure/measure.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/source.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/program.hpp>

#include "commands.hpp"
#include "flags/run_flags.hpp"
#include "output/plural.hpp"
#include "output/prediction.hpp"
#include "output/progress.hpp"
#include "output/results.hpp"
#include "output/stage_list.hpp"

namespace ppengine::cli {
namespace {

struct BenchTrainFlags {
  std::string model = "tiny";
  ParallelFlags parallel;
  DataFlags data;
  GradientFlags gradients;
  ProgramFlags program;
  double link = 0;  // MB/s; 0: no limit
  int warmup = 2, repeat = 5;
  bool recompute = false, profile = false, predict = false, json = false;

  void run();
};

struct Measured {
  engine::Spread seconds;
  double idle_share = 0, loss = 0, rate = 0;  // rate: large matrix products, all ranks together
  std::vector<std::size_t> peak_bytes;
  engine::Profile profile;
  // Of rank 0: seconds of a step (means), and the buckets in the order in which they are reduced.
  double backward = 0, communication = 0, overlap = 0;
  std::vector<engine::TimedReduction> buckets;
  StagePlaces stages;
  std::int64_t length = 0;  // tokens of a sequence
  std::optional<PredictedStep> predicted;
};

// What is trained, and the batches of one rank.
struct Workload {
  std::shared_ptr<const engine::Graph> graph;
  std::int64_t length = 1;  // tokens of a sequence
  std::function<engine::Batch(std::size_t)> next;
};

Workload open_family(const models::ModelSource& model, const std::shared_ptr<const engine::Graph>& graph, const runs::DataChoice& data) {
  const std::shared_ptr<models::TokenSource> source = runs::open_source(model, data);
  const auto sampler = std::make_shared<models::DataSampler>(source->sequences(), data.order, data.seed);
  return {graph, source->length(), [=](std::size_t sequences) { return runs::read_batch(*source, sampler->next(sequences)); }};
}

// From this device's own figures and counted work: nothing of the steps that were measured goes into it.
PredictedStep predict_step(const BenchTrainFlags& flags, const engine::DeviceModel& device, engine::Trainer& trainer,
                           const engine::TrainerOptions& options, std::int64_t batch_size, std::int64_t length, int ranks) {
  const engine::ParallelOptions& parallel = options.parallel;
  const schedules::Plan& plan = trainer.plan();
  PredictedStep step{.prediction = {},
                     .device = device,
                     .model = flags.model,
                     .type = ops::name_of(parallel.type),
                     .tokens = double(batch_size * length),
                     .ranks = ranks};
  step.prediction = engine::predict(trainer.model().graph(), trainer.model().cuts().items(), plan, step.device,
                                    {.batch = std::max<std::int64_t>(1, batch_size / plan.microbatches / parallel.data),
                                     .length = length,
                                     .data = parallel.data,
                                     .tensor = parallel.tensor,
                                     .sharded = parallel.sharded(),
                                     .type = step.type});
  return step;
}

Measured measure(const BenchTrainFlags& flags, const Workload& work, const engine::TrainerOptions& options, std::int64_t batch_size,
                 comm::Communicator& world) {
  const std::int64_t length = work.length;
  engine::Trainer trainer(work.graph, options, world, batch_size, length);
  Measured result;
  result.length = length;
  result.stages = trainer.model().stage_places();
  const auto figures = [&] { return engine::measure_device(trainer.pipeline().stream(), options.parallel.type, world); };
  const engine::DeviceModel before = flags.predict ? figures() : engine::DeviceModel{};
  world.barrier();
  double rates = engine::large_matmul_rate(trainer.pipeline().stream(), options.parallel.type);
  std::vector<double> seconds;
  for (int i = 0; i < flags.warmup + flags.repeat; ++i) {
    const auto step = trainer.step(work.next(static_cast<std::size_t>(batch_size)), 1e-4);
    if (i < flags.warmup) continue;
    seconds.push_back(world.allreduce_value(step.seconds, comm::Reduce::max));
    result.idle_share += world.allreduce_value(step.idle_share) / world.size() / flags.repeat;
    result.loss = step.loss;
    result.backward += step.backward / flags.repeat;
    result.communication += step.communication / flags.repeat;
    result.overlap += step.overlap / flags.repeat;
    result.buckets = trainer.reductions();
  }
  if (flags.profile) {
    trainer.pipeline().set_profile(&result.profile);
    trainer.step(work.next(static_cast<std::size_t>(batch_size)), 1e-4);
  }
  world.barrier();
  rates = std::max(rates, engine::large_matmul_rate(trainer.pipeline().stream(), options.parallel.type));
  result.rate = world.allreduce_value(rates);
  result.seconds = engine::spread_of(seconds);
  if (flags.predict)
    result.predicted = predict_step(flags, engine::between(before, figures()), trainer, options, batch_size, length, world.size());
  for (int rank = 0; rank < world.size(); ++rank)
    result.peak_bytes.push_back(static_cast<std::size_t>(
        world.allreduce_value(rank == world.rank() ? static_cast<std::int64_t>(trainer.model().memory().peak()) : std::int64_t{0})));
  return result;
}

nlohmann::json buckets_json(const std::vector<engine::TimedReduction>& buckets) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& one : buckets)
    list.push_back({{"stage", one.stage.number()},
                    {"bucket", one.bucket},
                    {"bytes", one.bytes},
                    {"sent_bytes", one.sent},
                    {"milliseconds", 1e3 * (one.end - one.start)}});
  return list;
}

void BenchTrainFlags::run() {
  engine::TrainerOptions options;
  options.parallel = parallel.options(data.choice.batch_size);
  options.recompute = recompute;
  gradients.apply(options);
  parallel.link.bytes_per_second = 1e6 * link;
  const std::int64_t per_microbatch = model == "tiny" ? 2 : 1;
  std::int64_t batch_size =
      data.choice.batch_size > 0 ? data.choice.batch_size : per_microbatch * options.parallel.microbatches * options.parallel.data;
  std::function<Workload()> open;
  if (models::Program::is_program(model)) {
    const auto batches = std::make_shared<runs::ProgramBatches>(model, program.choice, data.get(), options.parallel);
    batch_size = batches->batch_size();
    open = [=] {
      return Workload{batches->graph(), 1, [=, step = std::uint64_t{0}](std::size_t) mutable { return batches->read(step++); }};
    };
  } else {
    const models::ModelSource source = models::open_model(model);
    const std::shared_ptr<const engine::Graph> whole = models::build_graph(source.config);
    open = [=, this] { return open_family(source, whole, data.get()); };
  }
  const std::shared_ptr<const engine::Graph> graph = open().graph;
  Measured result;
  const bool prints = parallel.run(options.parallel, [&](comm::Communicator& world) {
    Measured mine = measure(*this, open(), options, batch_size, world);
    if (world.rank() == 0) result = std::move(mine);
  });
  if (!prints) return;
  const std::int64_t length = result.length;
  const double tokens = double(batch_size * length), flops = engine::training_flops(*graph, batch_size, length);
  const double share = flops / result.seconds.median / result.rate;
  if (json) {
    nlohmann::json line = nlohmann::json{{"tokens_per_second", tokens / result.seconds.median},
                                         {"tokens_per_second_range", {tokens / result.seconds.high, tokens / result.seconds.low}},
                                         {"step_milliseconds", 1e3 * result.seconds.median},
                                         {"step_milliseconds_range", {1e3 * result.seconds.low, 1e3 * result.seconds.high}},
                                         {"idle_share", result.idle_share},
                                         {"peak_memory_bytes", result.peak_bytes},
                                         {"flops_share", share},
                                         {"gflops_large_matmul", result.rate / 1e9},
                                         {"loss", result.loss},
                                         {"backward_milliseconds", 1e3 * result.backward},
                                         {"communication_milliseconds", 1e3 * result.communication},
                                         {"overlap_milliseconds", 1e3 * result.overlap},
                                         {"overlap_share", result.communication > 0 ? result.overlap / result.communication : 0.0},
                                         {"buckets", buckets_json(result.buckets)},
                                         {"stages", stages_json(result.stages)}};
    if (result.predicted) line["prediction"] = result.predicted->json();
    print_result("{}\n", line.dump());
    return;
  }
  print_result("{} on {}, {}, {} of {} a step\n", model, plural(parallel.ranks(), "rank"),
               plural(options.parallel.microbatches, "microbatch", "microbatches"), plural(batch_size, "sequence"),
               plural(length, "token"));
  print_result("  {}\n", stages_text(result.stages));
  print_result("  {:.0f} tokens/s ({:.0f} to {:.0f}), {:.1f} ms a step\n", tokens / result.seconds.median, tokens / result.seconds.high,
               tokens / result.seconds.low, 1e3 * result.seconds.median);
  print_result("  {:.1f} % of what a large matrix product reaches ({:.0f} GFLOP/s), {:.1f} % idle\n", 100 * share, result.rate / 1e9,
               100 * result.idle_share);
  if (!result.buckets.empty())
    print_result("  {} of gradients in {:.1f} ms, of which {:.1f} ms ({:.0f} %) beside {:.1f} ms of backward\n",
                 plural(std::int64_t(result.buckets.size()), "bucket"), 1e3 * result.communication, 1e3 * result.overlap,
                 100 * result.overlap / result.communication, 1e3 * result.backward);
  if (result.predicted) {
    const engine::DeviceModel& device = result.predicted->device;
    print_result(
        "  figures of a rank: {:.0f} GFLOP/s, attention {:.0f} %, memory {:.1f} GB/s, cache {:.1f} GB/s, {:.1f} us a launch ({:.1f} more "
        "for a product), link {:.1f} GB/s\n",
        device.peak_of(result.predicted->type) / 1e9, 100 * device.attention, device.bandwidth / 1e9, device.cache_bandwidth / 1e9,
        1e6 * device.launch, 1e6 * device.product_launch, device.link / 1e9);
    print_result(
        "  predicted {:.1f} ms a step ({:+.1f} %), {:.1f} % idle: the plan {:.1f} ms, gradients {:.1f} ms, the optimizer {:.1f} ms\n",
        1e3 * result.predicted->prediction.step(), 100 * (result.predicted->prediction.step() / result.seconds.median - 1),
        100 * result.predicted->prediction.idle_share, 1e3 * result.predicted->prediction.pipeline,
        1e3 * result.predicted->prediction.reduction, 1e3 * result.predicted->prediction.optimizer);
  }
  std::vector<std::pair<double, std::string>> slowest;
  for (const auto& [what, entry] : result.profile.entries()) {
    std::string line = fmt::format("{:<18} {:>4} calls {:>9.2f} ms", what, entry.calls, 1e3 * entry.seconds);
    if (result.predicted && parallel.pp == 1)  // a profile is of one rank, a prediction of all
      if (const auto& kinds = result.predicted->prediction.by_kind; kinds.contains(what))
        line += fmt::format(", predicted {:.2f} ms", 1e3 * kinds.at(what));
    slowest.emplace_back(entry.seconds, std::move(line));
  }
  std::ranges::sort(slowest, std::greater());
  for (const auto& [seconds, line] : slowest) print_result("  {}\n", line);
  for (std::size_t rank = 0; rank < result.peak_bytes.size(); ++rank)
    print_result("  rank {}: {:.0f} MiB at the peak\n", rank, double(result.peak_bytes[rank]) / (1 << 20));
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  auto* command = bench.add_subcommand("train", "Training steps of a model");
  auto flags = std::make_shared<BenchTrainFlags>();
  command->add_option("--model", flags->model, "Model folder, PyTorch program, or preset (default tiny)")->type_name("DIR|FILE.pt2|PRESET");
  flags->data.add(*command, false);
  flags->parallel.add(*command, Use::training);
  flags->gradients.add(*command);
  flags->program.add(*command, false);
  command->add_option("--link", flags->link, "Simulate a slower link between ranks, in MB/s")->check(CLI::Range(0.0, 1e6));
  command->add_option("--warmup", flags->warmup, "Steps before measuring (default 2)")->check(CLI::Range(0, 10000));
  command->add_option("--repeat", flags->repeat, "Steps measured (default 5)")->check(CLI::Range(1, 10000));
  command->add_flag("--recompute", flags->recompute, "Compute activations again in the backward");
  command->add_flag("--profile", flags->profile, "Where the time of rank 0's plan goes, op by op (measured in one more step)");
  command->add_flag("--predict", flags->predict, "Predict the step from this device's figures (measured) and counted work, and print both");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->footer(
      "Examples:\n  ppengine bench train --model gpt2 --microbatches 4\n  ppengine bench train --model tiny --pp 2 --microbatches 8 "
      "--json");
  command->callback([flags] { flags->run(); });
}

}  // namespace ppengine::cli
