// A training run from start to end.
#include <ppengine/runs/training.hpp>

#include <fmt/core.h>

#include <filesystem>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/runs/program.hpp>
#include <ppengine/models/files/npy.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/evaluation.hpp>

namespace ppengine::runs {
namespace {

models::DataOptions data_options(const models::ModelSource& model, const DataChoice& choice) {
  models::DataOptions options;
  const bool sets_its_own = choice.data.ends_with(".npy") && models::NpyFile(choice.data).shape().size() == 2;
  options.sequence_length = choice.sequence_length > 0 || sets_its_own ? choice.sequence_length : model.sequence_length;
  options.vocabulary = model.config.vocabulary();
  options.seed = choice.seed;
  if (choice.data.ends_with(".txt")) options.tokenizer = model.tokenizer();
  return options;
}

// A file may be named relative to another folder than it was.
bool same_data(const std::string& before, const std::string& now) {
  std::error_code failed;
  return before == now || (std::filesystem::exists(before, failed) && std::filesystem::equivalent(before, now, failed));
}

}  // namespace

std::unique_ptr<models::TokenSource> open_source(const models::ModelSource& model, const DataChoice& choice) {
  auto source = models::open_data(choice.data, data_options(model, choice));
  if (source->length() > model.config.positions())
    throw ConfigError(fmt::format("--seq-len {} is more than the {} positions of the model", source->length(), model.config.positions()));
  return source;
}

engine::Batch read_batch(const models::TokenSource& source, std::span<const std::uint64_t> sequences) {
  const auto count = static_cast<std::int64_t>(sequences.size()), length = source.length();
  engine::Batch batch{count, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}};
  for (auto& input : batch.inputs) input.tokens.resize(static_cast<std::size_t>(count * length));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = [&](auto& input) {
      return std::span(input.tokens).subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length));
    };
    source.read(sequences[static_cast<std::size_t>(i)], row(batch.inputs[0]), row(batch.inputs[1]));
  }
  return batch;
}

TrainingResult run_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener) {
  if (models::Program::is_program(options.model)) return run_program_training(options, world, listener);
  std::optional<models::SaveFolder> save_folder;  // locked until the run ends
  if (!options.save.empty() && world.rank() == 0) save_folder.emplace(options.save);
  const models::ModelSource model = models::open_model(options.model);
  if (model.folder && options.resume.empty())  // before anything is built: a wrong configuration may ask for any amount of memory
    models::match_parameters(model.config, models::WeightFiles::open(*model.folder));
  const auto graph = models::build_graph(model.config, {.dropout = options.dropout});
  const auto source = open_source(model, options.data);
  const engine::ParallelOptions& parallel = options.trainer.parallel;
  if (options.check_every > 0 && (parallel.data == 1 || parallel.shard))
    throw ConfigError("--check-every compares data-parallel copies: it needs --dp 2 or more, without --shard");
  const std::int64_t batch_size =
      options.data.batch_size > 0 ? options.data.batch_size : std::int64_t{parallel.microbatches} * parallel.data;

  engine::Trainer trainer(graph, options.trainer, world, batch_size, source->length());
  models::DataSampler sampler(source->sequences(), options.data.order, options.data.seed);
  RunState state{.step = 0, .seed = options.trainer.seed, .position = {}, .data = options.data.data, .settings = {}};
  if (!options.resume.empty()) {
    state = load_checkpoint(options.resume, trainer, model.config);
    if (same_data(state.data, options.data.data))
      sampler.seek(state.position);
    else
      log::warning(fmt::format("{} was trained on {}; {} starts from its beginning", options.resume, state.data, options.data.data));
    state.data = options.data.data;
  } else if (model.folder) {
    models::load_weights(trainer.model(), trainer.pipeline().stream(), model.config, models::WeightFiles::open(*model.folder));
  }
  state.settings = options.settings;  // with what was chosen for this run: another number of ranks would choose otherwise
  if (state.settings.contains("seq-len")) state.settings["seq-len"] = std::to_string(source->length());
  if (state.settings.contains("batch-size")) state.settings["batch-size"] = std::to_string(batch_size);
  state.finite_only = options.trainer.on_nan != engine::OnNan::ignore;
  trainer.synchronize();
  const bool first_rank = world.rank() == 0;
  if (first_rank)
    listener.started({world.size(), trainer.plan().stages, trainer.plan().microbatches, graph->parameter_count(), source->length(),
                      batch_size, static_cast<std::int64_t>(source->sequences()), source->name(), trainer.model().device()->info().name,
                      state.step + 1, options.steps, trainer.model().stage_places()});

  std::unique_ptr<models::TokenSource> eval_source;
  if (!options.eval_data.empty()) {
    DataChoice choice = options.data;
    choice.data = options.eval_data;
    eval_source = open_source(model, choice);
  }
  const auto evaluate_now = [&] {
    if (!eval_source) return;
    const EvaluationResult result = evaluate(*eval_source, trainer.evaluator(), batch_size, options.eval_sequences);
    if (first_rank) listener.evaluated(state.step, result.loss());
  };
  const auto save_now = [&] {
    if (options.save.empty()) return;
    state.position = sampler.position();
    save_checkpoint(options.save, trainer, model.config, state, model.folder.value_or(""));
    if (first_rank) listener.saved(options.save, state.step);
  };

  TrainingResult result;
  std::vector<engine::TimedAction> timeline;
  std::vector<engine::TimedReduction> reductions;
  std::vector<engine::Batch> batches(static_cast<std::size_t>(options.accumulate));
  std::int64_t saved_at = -1;
  comm::abort_on_error(&world, [&] {
    while (state.step < options.steps && !result.interrupted) {
      for (engine::Batch& batch : batches) batch = read_batch(*source, sampler.next(static_cast<std::size_t>(batch_size)));
      result.last = trainer.step(batches, options.lr.at(state.step + 1));
      ++state.step;
      result.last.step = state.step;
      if (!options.record) timeline.clear(), reductions.clear();
      reductions.insert(reductions.end(), trainer.reductions().begin(), trainer.reductions().end());
      timeline.insert(timeline.end(), trainer.timeline().actions().begin(), trainer.timeline().actions().end());
      if (options.check_every > 0 && state.step % options.check_every == 0) trainer.check_replicas();
      if (first_rank) listener.stepped(result.last, trainer.model().memory().peak());
      result.interrupted = world.allreduce_value(std::int64_t{listener.stop_requested()}, comm::Reduce::max) != 0;
      if (result.interrupted) listener.stopping();
      if (options.eval_every > 0 && state.step % options.eval_every == 0 && state.step < options.steps) evaluate_now();
      if (options.save_every > 0 && state.step % options.save_every == 0) save_now(), saved_at = state.step;
    }
    if (saved_at != state.step) save_now();
    if (!result.interrupted) evaluate_now();
  });
  for (const auto& one : comm::gather(world, std::vector<std::size_t>{trainer.model().memory().peak()}))
    result.peak_bytes.push_back(one.front());
  for (const auto& one : comm::gather(world, std::vector<double>{result.last.idle_share})) result.idle_share.push_back(one.front());
  result.timelines = comm::gather(world, timeline);
  result.reductions = comm::gather(world, reductions);
  result.plan = trainer.plan();
  return result;
}

}  // namespace ppengine::runs
