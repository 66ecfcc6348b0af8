// Generation from a model folder.
#include <ppengine/runs/generation.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/inference_graph.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/graph/tensor_parallel.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/ops/device/kernel_library.hpp>
#include <ppengine/runs/generator/adapters.hpp>

namespace ppengine::runs {
namespace {

constexpr std::int64_t default_batch_per_rank = 8;
constexpr std::int64_t capacity_granularity = 64;

// Stages of inference: contiguous on the ranks.
struct StagePlan {
  std::shared_ptr<const engine::Graph> graph;
  std::vector<engine::StageCut> cuts;
  std::vector<int> stage_rank;
};

StagePlan plan_stages(const models::ModelSource& source, const engine::ParallelOptions& parallel, int tensor_rank = 0) {
  StagePlan plan{engine::shard_graph(graph_with_adapters(source).graph, tensor_rank, parallel.tensor), {}, {}};
  const int ranks = parallel.pipeline, stages = parallel.stages > 0 ? parallel.stages : ranks;
  if (stages < ranks) throw ConfigError(fmt::format("--stages {}: {} ranks need at least as many stages", stages, ranks));
  for (int stage = 0; stage < stages; ++stage) plan.stage_rank.push_back(stage * ranks / stages);
  plan.cuts = engine::make_cuts(*plan.graph, parallel, stages, 1, 1);
  return plan;
}

// How the folder has its matrices, where that loses nothing. An adapter is added to the weights in f32.
ops::WeightStorage as_stored(const models::ModelSource& source, const engine::ParallelOptions& parallel) {
  if (!source.folder || !source.adapter.empty() || parallel.type != ops::Type::f32) return {};
  const auto narrow = [](const models::StoredTensor& tensor) { return tensor.shape.size() < 2 || tensor.type == models::StoredType::bf16; };
  const models::WeightFiles files = models::WeightFiles::open(*source.folder);
  return {std::ranges::all_of(files.tensors(), narrow) ? ops::WeightFormat::bf16 : ops::WeightFormat::f32};
}

std::string name_of(std::size_t prompt, std::size_t prompts) { return prompts == 1 ? "the prompt" : fmt::format("prompt {}", prompt + 1); }

void check_prompt(const std::vector<std::int32_t>& ids, const std::string& name, const models::ModelConfig& config) {
  if (ids.empty()) throw ConfigError(fmt::format("{} is empty: there must be a token to go on from", name));
  if (static_cast<std::int64_t>(ids.size()) > config.positions())
    throw ConfigError(fmt::format("{} has {} tokens, and the model's context holds {}; shorten it", name, ids.size(), config.positions()));
  for (std::int32_t id : ids)
    if (id < 0 || id >= config.vocabulary())
      throw ConfigError(fmt::format("{}: token {} is not in the model's vocabulary of {} (0 to {})", name, id, config.vocabulary(),
                                    config.vocabulary() - 1));
}

// The text of one request as it grows.
struct TextState {
  std::optional<models::StreamDecoder> decoder;
  StopMatcher stops;
  std::string text;
  TextState(const std::optional<models::Tokenizer>& tokenizer, const std::vector<std::string>& stop_strings) : stops(stop_strings) {
    if (tokenizer) decoder.emplace(*tokenizer);
  }
  std::string push(std::int32_t id) { return keep(decoder ? stops.push(decoder->push(id)) : ""); }
  std::string finish() {
    if (!decoder || stops.stopped()) return "";
    std::string rest = stops.push(decoder->finish());
    return keep(rest + stops.finish());
  }

 private:
  std::string keep(std::string piece) {
    text += piece;
    return piece;
  }
};

}  // namespace

GenerationRun::GenerationRun(GenerationOptions options)
    : options_(std::move(options)),
      source_(open_model_with_adapters(options_.model, options_.adapters)),
      tokenizer_(source_.tokenizer()),
      prompts_(options_.ids) {
  check(options_.sampling);
  const auto missing = [&](const char* flag) {
    return ConfigError(
        fmt::format("{}: there is no tokenizer.json to read text with ({}); give token numbers with --ids 1,2,3", flag, options_.model));
  };
  if (!options_.texts.empty() && !tokenizer_) throw missing("--prompt");
  if (!options_.stops.empty() && !tokenizer_) throw missing("--stop");
  static_cast<void>(StopMatcher(options_.stops));  // refuses empty ones
  const std::size_t count = options_.texts.size() + options_.ids.size();
  if (count == 0) throw ConfigError("there is no prompt: give --prompt TEXT, --ids 1,2,3 or --prompts FILE");
  for (const std::string& text : options_.texts) {
    // A tokenizer may put a token before every text; an empty prompt is a mistake all the same.
    prompts_.push_back(text.empty() ? std::vector<std::int32_t>() : tokenizer_.value().encode(text));
  }
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    check_prompt(prompts_[i], name_of(i, count), source_.config);
    longest_ = std::max(longest_, prompts_[i].size());
  }
  if (options_.weights) check(*options_.weights, options_.parallel);
  check_adapters(source_, options_.parallel);
  if (options_.cache_memory > 0) static_cast<void>(generator_options());  // refuses what does not fit
  if (options_.parallel.data != 1)
    throw ConfigError("--dp: generation has one copy of the model; use --pp, and --batch-size for more prompts at once");
}

std::optional<std::int64_t> GenerationRun::shortened_to() const {
  const std::int64_t room = source_.config.positions() - static_cast<std::int64_t>(longest_) + 1;
  return room < options_.max_new_tokens ? std::optional(room) : std::nullopt;
}

// Tokens that the cache holds per request.
std::int64_t GenerationRun::capacity() const {
  const std::int64_t needed = static_cast<std::int64_t>(longest_) + std::min(options_.max_new_tokens, source_.config.positions());
  const std::int64_t rounded = (needed + capacity_granularity - 1) / capacity_granularity * capacity_granularity;
  return std::min(rounded, source_.config.positions());
}

GeneratorOptions GenerationRun::generator_options() const {
  const auto requests = static_cast<std::int64_t>(prompts_.size() * variants()), ranks = std::int64_t{options_.parallel.pipeline};
  const std::int64_t at_once = std::min(requests, options_.batch_size > 0 ? options_.batch_size : default_batch_per_rank * ranks);
  GeneratorOptions how;
  how.capacity = capacity();
  how.adapters = graph_with_adapters(source_).masks;
  how.groups = static_cast<int>(std::min(ranks, at_once));
  how.sequences = (at_once + how.groups - 1) / how.groups;
  how.cache_in_bytes = options_.cache_in_bytes;
  if (options_.cache_memory > 0) fit_cache(cache_bytes(source_, options_.parallel, how), options_.cache_memory, how);
  return how;
}

void GenerationRun::submit(Generator& generator) const {
  for (std::size_t i = 0; i < prompts_.size() * variants(); ++i) {
    const std::vector<std::int32_t>& prompt = prompts_[i / variants()];
    GenerationRequest request;
    request.prompt = prompt;
    if (!source_.adapters.empty()) request.adapter = static_cast<int>(i % variants());
    request.random_stream = i / variants();
    request.max_new_tokens = options_.max_new_tokens;
    request.sampling = options_.sampling;
    if (!options_.ignore_eos) request.end_ids = source_.config.ids().eos;
    const auto state = std::make_shared<TextState>(tokenizer_, options_.stops);
    request.on_token = [this, i, state](std::int32_t id) {
      const std::string piece = state->push(id);
      if (options_.on_token) options_.on_token(i, id, piece);
      return !state->stops.stopped();
    };
    request.on_finished = [this, i, state, &prompt](const Generated& generated) {
      const std::string rest = state->finish();
      if (options_.on_token && !rest.empty()) options_.on_token(i, -1, rest);
      if (options_.on_finished)
        options_.on_finished(i, {prompt, generated, tokenizer_ ? std::optional(state->text) : std::nullopt, state->stops.stopped(),
                                 source_.adapters.empty() ? "" : source_.adapters[i % variants()].name});
    };
    generator.submit(std::move(request));
  }
}

void GenerationRun::run(comm::Communicator& world) const {
  const comm::Mesh mesh(world, options_.parallel.mesh());
  const auto model =
      load_for_inference(source_, options_.parallel, mesh.pipeline(), options_.weight_seed, options_.weights, mesh.place().tensor);
  GeneratorOptions how = generator_options();
  if (options_.parallel.tensor > 1) how.tensor = &mesh.tensor();
  Generator generator(*model, how, mesh.pipeline());
  for (const auto& prompt : prompts_) generator.prepare(static_cast<std::int64_t>(prompt.size()));
  world.barrier();  // nobody's compiling counts as somebody else's prefill
  if (world.rank() == 0) submit(generator);
  generator.run();
}

void check(const ops::WeightStorage& weights, const engine::ParallelOptions& parallel) {
  if (weights.format == ops::WeightFormat::f32) return;
  if (parallel.type != ops::Type::f32)
    throw ConfigError(fmt::format("--weights {} computes in f32; leave --dtype out", ops::name_of(weights.format)));
}

std::vector<CacheBytes> cache_bytes(const models::ModelSource& source, const engine::ParallelOptions& parallel,
                                    const GeneratorOptions& how) {
  const StagePlan plan = plan_stages(source, parallel);
  engine::CompileOptions paged, one_page;
  paged.type = parallel.type;
  paged.cache_in_bytes = how.cache_in_bytes;
  one_page = paged;
  paged.cache_capacity = how.capacity;
  paged.cache_chunk = std::min(how.capacity, how.chunk);
  paged.cache_pages = 1;
  one_page.cache_capacity = engine::CompileOptions::cache_page;
  std::vector<CacheBytes> bytes(static_cast<std::size_t>(parallel.pipeline));
  for (std::size_t s = 0; s < plan.cuts.size(); ++s)
    for (engine::NodeId i : plan.cuts[s].nodes()) {
      const engine::NodeOp& op = *plan.graph->nodes()[i].op;
      CacheBytes& rank = bytes[static_cast<std::size_t>(plan.stage_rank[s])];
      const auto own = static_cast<std::int64_t>(op.cache_bytes(paged));
      rank.place += own;
      if (own == 0) rank.page += static_cast<std::int64_t>(op.cache_bytes(one_page));
    }
  return bytes;
}

void fit_cache(const std::vector<CacheBytes>& bytes, std::int64_t limit, GeneratorOptions& how) {
  const std::int64_t each = (how.capacity + engine::CompileOptions::cache_page - 1) / engine::CompileOptions::cache_page;
  std::int64_t places = how.groups * how.sequences, pages = places * each;
  for (const CacheBytes& rank : bytes) {
    const std::int64_t one = rank.place + (each + 1) * rank.page;  // and the page that belongs to nobody
    if (one > limit)
      throw ConfigError(fmt::format(
          "--cache-memory {}: the keys and values of one sequence of {} tokens take {} MiB on a rank; give more, or allow fewer tokens",
          limit >> 20, how.capacity, (one + (1 << 20) - 1) >> 20));
    if (rank.place > 0) places = std::min(places, (limit - (each + 1) * rank.page) / rank.place);
  }
  for (const CacheBytes& rank : bytes)
    if (rank.page > 0) pages = std::min(pages, (limit - places * rank.place) / rank.page - 1);
  how.groups = static_cast<int>(std::min<std::int64_t>(how.groups, places));
  how.sequences = std::min(how.sequences, places / how.groups);
  how.pages = pages;
}

std::unique_ptr<engine::ModelRank> load_for_inference(const models::ModelSource& source, const engine::ParallelOptions& parallel,
                                                      comm::Communicator& pipeline, std::uint64_t weight_seed,
                                                      std::optional<ops::WeightStorage> chosen, int tensor_rank) {
  PPENGINE_ASSERT(pipeline.size() == parallel.pipeline);
  const ops::WeightStorage weights = chosen ? *chosen : as_stored(source, parallel);
  auto [graph, cuts, stage_rank] = plan_stages(source, parallel, tensor_rank);
  const auto device = parallel.device_of(pipeline);
  const bool fuses = parallel.type == ops::Type::f32;
  if (fuses) {
    auto fused = engine::inference_graph(*device, *graph, cuts, weights);
    graph = std::move(fused.graph);
    cuts = std::move(fused.cuts);
  }
  auto model = std::make_unique<engine::ModelRank>(graph, std::move(cuts), std::move(stage_rank), pipeline.rank(), device,
                                                   engine::ModelRank::Options{parallel.type, false, {}, {}, weights});
  // What every model needs is brought in from the kernel cache while weights are read.
  const auto prepared =
      device->info().is_cpu ? device->kernels().prepare_soon({"loss", "attention", "attention_lanes"}) : std::future<void>();
  ops::Stream stream(device);
  if (source.folder)
    models::load_weights(*model, stream, source);
  else
    for (engine::StageId stage : model->stages()) model->parameters(stage).initialize(stream, weight_seed);
  if (!source.adapters.empty()) models::load_adapters(*model, stream, open_adapters(source));
  stream.wait();
  if (prepared.valid()) prepared.wait();
  return model;
}

}  // namespace ppengine::runs
