// ppengine bench generate: tokens per second of prefill and decode, beside the rate at which the same ranks read
// memory.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/engine/measure/measure.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/stage/program.hpp>
#include <ppengine/models/data/counter_random.hpp>
#include <ppengine/ops/weights.hpp>
#include <ppengine/runs/generation.hpp>

#include "commands.hpp"
#include "flags/run_flags.hpp"
#include "output/plural.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

struct BenchGenerateFlags {
  std::string model = "gpt2";
  ParallelFlags parallel;
  WeightFlags weights;
  std::int64_t prompt_tokens = 128, new_tokens = 32, batch_size = 1;
  int warmup = 1, repeat = 3;
  bool profile = false, json = false;

  void run();
};

struct MeasuredGeneration {
  std::vector<double> prefill, decode;  // tokens per second, by run
  std::vector<std::size_t> cache_bytes, peak_bytes;
  double read_rate = 0;     // bytes per second
  double weight_bytes = 0;  // that one decode step reads, all ranks together
  engine::Profile profile;
};

// Bytes per second of a plain read of memory, more of it than caches hold: the best of a few.
double read_rate(const std::shared_ptr<ops::Device>& device) {
  constexpr std::int64_t count = 128 << 20;
  ops::Buffer data(device, count * sizeof(float)), sums(device, ops::read_sums * sizeof(float));
  ops::Stream stream(device);
  stream.zero(data.data(), data.bytes());
  stream.wait();
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ops::read_all(stream, data.as<float>(), sums.as<float>(), count);
    stream.wait();
    best = std::max(best, double(data.bytes()) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// All weights but an embedding's table, of which a step reads one row (unless it is the head's weight too).
double weight_bytes(engine::ModelRank& model) {
  double bytes = 0;
  for (engine::StageId stage : model.stages())
    for (const engine::ParameterRange& range : model.parameters(stage).ranges()) {
      const auto& info = model.graph().parameters()[range.id];
      const bool is_table = !info.linear_weight && info.shape.rank() == 2;
      if (!is_table) bytes += double(range.compute_bytes);
    }
  return bytes;
}

// One run. The prefill ends when all requests have their first token; what is decoded is counted from there on.
void measure_once(runs::Generator& generator, const BenchGenerateFlags& flags, std::int64_t vocabulary, int number,
                  MeasuredGeneration* into) {
  using Clock = std::chrono::steady_clock;
  std::int64_t without_token = flags.batch_size, decoded = 0;
  Clock::time_point prefilled;
  for (std::int64_t i = 0; i < flags.batch_size; ++i) {
    runs::GenerationRequest request;
    for (std::int64_t t = 0; t < flags.prompt_tokens; ++t)
      request.prompt.push_back(
          static_cast<std::int32_t>(models::random_below(static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(i),
                                                         static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(vocabulary))));
    request.max_new_tokens = flags.new_tokens;
    request.on_token = [&, first = true](std::int32_t) mutable {
      if (without_token == 0)
        ++decoded;
      else if (std::exchange(first, false) && --without_token == 0)
        prefilled = Clock::now();
      return true;
    };
    generator.submit(std::move(request));
  }
  const auto begun = Clock::now();
  generator.run();
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  if (!into) return;
  into->prefill.push_back(double(flags.batch_size * flags.prompt_tokens) / seconds(prefilled - begun));
  into->decode.push_back(double(decoded) / seconds(Clock::now() - prefilled));
}

MeasuredGeneration measure_generation(const BenchGenerateFlags& flags, const models::ModelSource& source,
                                      const engine::ParallelOptions& options, comm::Communicator& world) {
  const comm::Mesh mesh(world, options.mesh());
  comm::Communicator& pipeline = mesh.pipeline();
  const auto model = runs::load_for_inference(source, options, pipeline, 0, flags.weights.chosen(), mesh.place().tensor);
  runs::GeneratorOptions how;
  how.capacity = flags.prompt_tokens + flags.new_tokens;
  how.groups = static_cast<int>(std::min<std::int64_t>(pipeline.size(), flags.batch_size));
  how.sequences = (flags.batch_size + how.groups - 1) / how.groups;
  if (options.tensor > 1) how.tensor = &mesh.tensor();
  runs::Generator generator(*model, how, pipeline);
  generator.prepare(flags.prompt_tokens);
  MeasuredGeneration result;
  world.barrier();
  if (world.rank() == 0) result.read_rate = read_rate(options.device);
  world.barrier();
  for (int i = 0; i < flags.warmup + flags.repeat; ++i) {
    if (world.rank() == 0)
      measure_once(generator, flags, source.config.vocabulary(), i, i < flags.warmup ? nullptr : &result);
    else
      generator.run();
  }
  if (flags.profile) {
    generator.set_profile(&result.profile);
    if (world.rank() == 0)
      measure_once(generator, flags, source.config.vocabulary(), 0, nullptr);
    else
      generator.run();
  }
  result.weight_bytes = world.allreduce_value(weight_bytes(*model));
  if (world.rank() == 0) result.read_rate = std::max(result.read_rate, read_rate(options.device));
  const auto all = [&](std::size_t mine) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(world.size()));
    values[static_cast<std::size_t>(world.rank())] = static_cast<std::int64_t>(mine);
    world.allreduce_values(std::span(values));
    return std::vector<std::size_t>(values.begin(), values.end());
  };
  result.cache_bytes = all(generator.cache_bytes());
  result.peak_bytes = all(model->memory().peak());
  return result;
}

void BenchGenerateFlags::run() {
  const models::ModelSource source = models::open_model(model);
  if (prompt_tokens + new_tokens > source.config.positions() + 1)
    throw ConfigError(fmt::format("--prompt-tokens {} and --new-tokens {} do not fit the model's context of {}", prompt_tokens, new_tokens,
                                  source.config.positions()));
  const engine::ParallelOptions options = parallel.options();
  runs::check(weights.get(), options);
  MeasuredGeneration result;
  const bool prints = parallel.run(options, [&](comm::Communicator& world) {
    MeasuredGeneration mine = measure_generation(*this, source, options, world);
    if (world.rank() == 0) result = std::move(mine);
  });
  if (!prints) return;
  const engine::Spread prefill = engine::spread_of(result.prefill), decode = engine::spread_of(result.decode);
  // A step reads all weights once, for all sequences of its group.
  const std::int64_t groups = std::min<std::int64_t>(batch_size, parallel.pp), group = (batch_size + groups - 1) / groups;
  const double read = decode.median / static_cast<double>(group) * result.weight_bytes;
  if (read > result.read_rate)
    log::warning(
        fmt::format("decode read its weights at {:.1f} GB/s, plain reading of memory reached {:.1f}: another program used the memory "
                    "meanwhile, or the weights fit the caches; the higher rate counts as the limit",
                    read / 1e9, result.read_rate / 1e9));
  result.read_rate = std::max(result.read_rate, read);  // it has been seen to be possible
  const double share = read / result.read_rate;
  if (json) {
    print_result("{}\n", nlohmann::json{{"prefill_tokens_per_second", prefill.median},
                                        {"prefill_tokens_per_second_range", {prefill.low, prefill.high}},
                                        {"decode_tokens_per_second", decode.median},
                                        {"decode_tokens_per_second_range", {decode.low, decode.high}},
                                        {"weight_bytes", result.weight_bytes},
                                        {"read_bytes_per_second", result.read_rate},
                                        {"bandwidth_share", share},
                                        {"cache_bytes", result.cache_bytes},
                                        {"peak_memory_bytes", result.peak_bytes}}
                             .dump());
    return;
  }
  print_result("{} on {}, {} of {} at once, {} each\n", model, plural(parallel.ranks(), "rank"), plural(batch_size, "prompt"),
               plural(prompt_tokens, "token"), plural(new_tokens, "new token"));
  print_result("  prefill {:.1f} tokens/s ({:.1f} to {:.1f})\n", prefill.median, prefill.low, prefill.high);
  print_result("  decode  {:.1f} tokens/s ({:.1f} to {:.1f}), {:.1f} % of what reading the weights at {:.1f} GB/s allows\n", decode.median,
               decode.low, decode.high, 100 * share, result.read_rate / 1e9);
  std::vector<std::pair<double, std::string>> slowest;
  for (const auto& [what, entry] : result.profile.entries())
    slowest.emplace_back(entry.seconds, fmt::format("{:<18} {:>6} calls {:>9.2f} ms", what, entry.calls, 1e3 * entry.seconds));
  std::ranges::sort(slowest, std::greater());
  for (const auto& [seconds, line] : slowest) print_result("  {}\n", line);
  for (std::size_t rank = 0; rank < result.peak_bytes.size(); ++rank)
    print_result("  rank {}: {:.0f} MiB at the peak, {:.1f} MiB of it cache\n", rank, double(result.peak_bytes[rank]) / (1 << 20),
                 double(result.cache_bytes[rank]) / (1 << 20));
}

}  // namespace

void add_bench_generate(CLI::App& bench) {
  auto* command = bench.add_subcommand("generate", "Prefill and decode of a model on random prompts");
  auto flags = std::make_shared<BenchGenerateFlags>();
  command->add_option("--model", flags->model, "Preset or model folder (default gpt2)")->type_name("DIR|PRESET");
  command->add_option("--prompt-tokens", flags->prompt_tokens, "Tokens of a prompt (default 128)")->check(CLI::Range(1L, 1L << 24));
  command->add_option("--new-tokens", flags->new_tokens, "Tokens that each prompt is continued by (default 32)")
      ->check(CLI::Range(2L, 1L << 24));
  command->add_option("--batch-size", flags->batch_size, "Prompts at once (default 1)")->check(CLI::Range(1L, 4096L));
  command->add_option("--warmup", flags->warmup, "Runs before measuring (default 1)")->check(CLI::Range(0, 10000));
  command->add_option("--repeat", flags->repeat, "Runs measured (default 3)")->check(CLI::Range(1, 10000));
  command->add_flag("--profile", flags->profile, "Where rank 0's time goes, op by op (measured in one more run)");
  flags->weights.add(*command, WeightFlags::as_stored);
  flags->parallel.add(*command, Use::inference);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->footer(
      "Examples:\n  ppengine bench generate --model gpt2\n  ppengine bench generate --model mid --pp 2 --batch-size 8 "
      "--json");
  command->callback([flags] { flags->run(); });
}

}  // namespace ppengine::cli
