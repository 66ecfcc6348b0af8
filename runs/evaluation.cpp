// Evaluation of a model over a data set.
#include <ppengine/runs/evaluation.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/engine/graph/inference_graph.hpp>
#include <ppengine/engine/graph/pack.hpp>
#include <ppengine/engine/graph/tensor_parallel.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/stage/plan_memory.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/cached_evaluation.hpp>
#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/program.hpp>
#include <ppengine/runs/training/addition_answers.hpp>

namespace ppengine::runs {
namespace {

std::int64_t count_sequences(const models::TokenSource& source, std::int64_t limit) {
  constexpr std::uint64_t made_up = 64;
  const bool is_file = std::filesystem::exists(source.name());
  const std::uint64_t most = limit > 0 ? static_cast<std::uint64_t>(limit) : is_file ? source.sequences() : made_up;
  return static_cast<std::int64_t>(std::min(most, source.sequences()));
}

EvaluationResult evaluate_all(const models::TokenSource& source, models::DataSampler order, std::int64_t sequences,
                              engine::Evaluator& evaluator, std::int64_t batch_size,
                              const std::function<void(std::int64_t first)>& before_batch) {
  EvaluationResult result;
  for (std::int64_t first = 0; first < sequences; first += batch_size) {
    const auto numbers = order.next(static_cast<std::size_t>(std::min(batch_size, sequences - first)));
    if (before_batch) before_batch(first);
    const auto one = evaluator.run(read_batch(source, numbers));
    result.loss_sum += one.loss_sum;
    result.valid_tokens += one.valid_tokens;
  }
  return result;
}

}  // namespace

double EvaluationResult::perplexity() const { return std::exp(loss()); }

EvaluationResult evaluate(const models::TokenSource& source, engine::Evaluator& evaluator, std::int64_t batch_size, std::int64_t limit) {
  const models::DataSampler in_order(source.sequences(), models::DataOrder::sequential, 0);
  return evaluate_all(source, in_order, count_sequences(source, limit), evaluator, batch_size, {});
}

namespace {

void answer_questions(const std::string& ask, engine::Evaluator& evaluator, comm::Communicator& world, std::int64_t vocabulary,
                      EvaluationResult& result) {
  auto sums = models::addition::held_out_sums();
  result.sums = static_cast<std::int64_t>(sums.size());
  if (!ask.empty()) sums.push_back(models::addition::parse_question(ask).value());
  const auto answers = answer_sums(evaluator, world, sums, vocabulary);
  for (std::size_t i = 0; i < static_cast<std::size_t>(result.sums); ++i) result.right_sums += answers[i] == sums[i].answer();
  if (!ask.empty()) result.answer = models::addition::show(sums.back(), answers.back());
}

}  // namespace

EvaluationResult run_evaluation(const EvaluationOptions& options, comm::Communicator& world) {
  if (models::Program::is_program(options.model)) return run_program_evaluation(options, world);
  refuse_flags_of_programs(options.program);
  if (!options.outputs.empty()) throw ConfigError("--outputs goes with programs (FILE.pt2); for other models give --logits");
  if (options.cache_in_bytes) return run_cached_evaluation(options, world);
  const bool adds = options.data.data == "task:addition";
  if (!options.ask.empty() && !adds) throw ConfigError("--ask goes with --data task:addition: it asks a model that has learned to add");
  if (!options.ask.empty() && !models::addition::parse_question(options.ask))
    throw ConfigError(fmt::format("--ask '{}' is not a sum of two numbers from 0 to 99: give one as 23+58", options.ask));
  const models::ModelSource model = open_model_with_adapter(options.model, options.adapter);
  if (model.folder) models::match_parameters(model.config, models::WeightFiles::open(*model.folder));  // before anything is built
  const auto source = open_source(model, options.data);
  const engine::ParallelOptions& parallel = options.parallel;
  const comm::Mesh mesh(world, parallel.mesh());
  check(options.weights, parallel);
  auto graph = engine::shard_graph(
      options.data.pack ? engine::pack_documents(*models::build_graph(model.config)) : models::build_graph(model.config),
      mesh.place().tensor, parallel.tensor, parallel.sequence_parallel);
  const schedules::Plan plan = engine::make_plan(parallel, true);
  auto cuts = engine::make_cuts(*graph, parallel, plan.stages, 1, source->length());
  const auto device = parallel.device_of(world);
  if (options.weights.format != ops::WeightFormat::f32) {
    auto fused = engine::inference_graph(*device, *graph, cuts, options.weights);
    graph = std::move(fused.graph);
    cuts = std::move(fused.cuts);
  }
  engine::ModelRank::Options how{parallel.type, false, {}, {}, options.weights};
  if (parallel.sharded())
    how.sharding = engine::ShardingOptions{&mesh.data(), engine::count_active(plan, mesh.place().pipeline).gathered, 0};
  engine::ModelRank rank(graph, std::move(cuts), plan.stage_rank, mesh.place().pipeline, device, how);
  ops::Stream stream(device);
  if (model.folder)
    models::load_weights(rank, stream, model);
  else
    for (engine::StageId stage : rank.stages()) rank.parameters(stage).initialize(stream, options.data.seed);
  stream.wait();

  engine::Evaluator evaluator(rank, parallel, mesh, !options.logits.empty() || adds);
  const std::filesystem::path file = follow_links(options.logits);
  const std::int64_t length = source->length(), vocabulary = model.config.vocabulary(),
                     sequences = count_sequences(*source, options.sequences);
  std::optional<models::SafetensorsWriter> writer;
  std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const models::SafetensorsLayout layout({{"logits", models::StoredType::f32, {sequences, length, vocabulary}}}, UINT64_MAX,
                                         file.stem().string());
  if (!options.logits.empty()) {
    if (file.extension() != ".safetensors")
      throw ConfigError(fmt::format("--logits {}: the file's name must end in .safetensors", options.logits));
    if (std::filesystem::exists(file) && !std::filesystem::is_regular_file(file))
      throw FileError(fmt::format("{}: is not a regular file: ranks write their parts of the logits at once", options.logits));
    if (world.rank() == 0) models::SafetensorsWriter::create(folder, layout);
    world.barrier();
    writer = models::SafetensorsWriter::open(folder, layout);
  }
  std::int64_t batch_first = 0;
  evaluator.on_output = [&](std::int64_t first, std::int64_t, std::span<const float> logits) {
    if (writer)
      writer->write("logits", static_cast<std::uint64_t>((batch_first + first) * length * vocabulary) * sizeof(float), logits.data(),
                    logits.size_bytes());
  };
  const std::int64_t batch_size =
      options.data.batch_size > 0 ? options.data.batch_size : std::int64_t{parallel.microbatches} * parallel.data;
  const models::DataSampler order(source->sequences(), options.data.order, options.data.seed);
  EvaluationResult result = evaluate_all(*source, order, sequences, evaluator, batch_size, [&](std::int64_t first) {
    batch_first = first;
    if (options.progress && world.rank() == 0) options.progress(first, sequences);
  });
  if (writer) {
    writer->sync();
    world.barrier();
    if (world.rank() == 0) writer->commit();
    world.barrier();
  }
  if (adds) answer_questions(options.ask, evaluator, world, vocabulary, result);
  return result;
}

}  // namespace ppengine::runs
