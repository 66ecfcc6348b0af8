// A training run from start to end.
#include <ppengine/runs/training.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/graph/pack.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/files/npy.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/elastic/elastic.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/program.hpp>
#include <ppengine/runs/training/rank_figures.hpp>
#include <ppengine/runs/training/saving.hpp>
#include <ppengine/runs/training/trained_graph.hpp>
#include <ppengine/runs/training/watch.hpp>

namespace ppengine::runs {
namespace {

models::DataOptions data_options(const models::ModelSource& model, const DataChoice& choice) {
  models::DataOptions options;
  const bool examples = choice.data.ends_with(".jsonl");
  options.pack = choice.pack;
  options.variable_lengths = choice.variable_lengths;
  options.positions = model.config.positions();
  if (examples) {
    options.end_tokens = model.config.ids().eos;
    options.folder = model.folder.value_or("");
  }
  const bool sets_its_own = choice.data.ends_with(".npy") && models::NpyFile(choice.data).shape().size() == 2;
  options.sequence_length = choice.sequence_length > 0 || sets_its_own || examples ? choice.sequence_length : model.sequence_length;
  options.vocabulary = model.config.vocabulary();
  options.seed = choice.seed;
  if (choice.data.ends_with(".txt") || examples) options.tokenizer = model.tokenizer();
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
  engine::Batch batch{count, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}, {}};
  if (source.packed()) batch.inputs.push_back({engine::positions_input, {}, {}});
  for (auto& input : batch.inputs) input.tokens.resize(static_cast<std::size_t>(count * length));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = [&](auto& input) {
      return std::span(input.tokens).subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length));
    };
    const std::uint64_t index = sequences[static_cast<std::size_t>(i)];
    source.read(index, row(batch.inputs[0]), row(batch.inputs[1]));
    if (source.packed()) source.read_positions(index, row(batch.inputs[2]));
    if (source.variable_lengths()) batch.lengths.push_back(source.used(index));
  }
  return batch;
}

models::ModelSource open_model_with_adapter(const std::string& model, const std::string& adapter) {
  models::ModelSource source = models::open_model(model);
  if (!adapter.empty() && !source.folder) throw ConfigError(fmt::format("--adapter {}: needs a model folder, not a preset", adapter));
  source.adapter = adapter;
  return source;
}

namespace {

// The next one with anything to learn: of examples that are cut off, or empty, a batch may hold nothing else.
engine::Batch next_batch(const models::TokenSource& source, models::DataSampler& sampler, std::int64_t sequences, bool warns) {
  const std::uint64_t most = source.sequences() / static_cast<std::uint64_t>(sequences) + 1;
  for (std::uint64_t left_out = 0; left_out <= most; ++left_out) {
    engine::Batch batch = read_batch(source, sampler.next(static_cast<std::size_t>(sequences)));
    if (std::ranges::any_of(batch.inputs[1].tokens, [](std::int32_t target) { return target >= 0; })) return batch;
    if (warns) log::warning(fmt::format("{}: a batch has nothing to learn, and is left out", source.name()));
  }
  throw FileError(fmt::format("{}: no example has anything to learn within {} tokens", source.name(), source.length()));
}

// The first step warms up, the second is measured.
TrainingResult dry_run(const TrainingOptions& options, engine::Trainer& trainer, const engine::Batch& batch, TrainingListener& listener) {
  const std::vector<engine::Batch> batches(static_cast<std::size_t>(options.accumulate), batch);
  TrainingResult result;
  for (int i = 0; i < 2; ++i) result.last = trainer.step(batches, 0.0);
  gather_ranks(trainer, result);
  const double seconds = result.last.seconds * double(options.steps);
  if (trainer.mesh().world().rank() == 0)
    listener.planned({result.peak_bytes, options.steps, result.last.tokens * options.steps, result.last.seconds, seconds});
  return result;
}

}  // namespace

TrainingResult run_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener) {
  if (models::Program::is_program(options.model)) return run_program_training(options, world, listener);
  std::optional<models::SaveFolder> save_folder, best_folder;  // locked until the run ends
  const bool saves = !options.save.empty() && !options.dry_run, saves_best = saves && options.eval_every > 0 && !options.eval_data.empty();
  const std::string best_name = saves ? models::save_target(options.save).string() + ".best" : "";
  if (saves && world.rank() == 0) save_folder.emplace(options.save);
  if (saves_best && world.rank() == 0) best_folder.emplace(best_name);
  const models::ModelSource model = open_model_with_adapter(options.model, options.adapter);
  if (model.folder && options.resume.empty())  // before anything is built: a wrong configuration may ask for any amount of memory
    models::match_parameters(model.config, models::WeightFiles::open(*model.folder));
  const auto [graph, lora] = make_trained_graph(options, model);
  const auto source = open_source(model, options.data);
  const engine::ParallelOptions& parallel = options.trainer.parallel;
  std::optional<Elastic> elastic;
  engine::TrainerOptions trainer_options = options.trainer;
  if (!options.elastic.folder.empty()) {
    elastic.emplace(options.elastic.folder, options.elastic.start, world.rank(), parts_of(parallel.mesh()));
    trainer_options.uneven_shares = true;  // replicas may become fewer
    trainer_options.before_update = [&](double loss, double grad_norm) { elastic->commit(loss, grad_norm); };
  }
  if (options.check_every > 0 && ((parallel.data == 1 && !elastic) || parallel.shard))
    throw ConfigError("--check-every compares data-parallel copies: it needs --dp 2 or more, without --shard");
  const std::int64_t batch_size =
      options.data.batch_size > 0 ? options.data.batch_size : std::int64_t{parallel.microbatches} * parallel.data;

  engine::Trainer trainer(graph, trainer_options, world, batch_size, source->length());
  models::DataSampler sampler(source->sequences(), options.data.order, options.data.seed);
  RunState state{.step = 0, .seed = options.trainer.seed, .position = {}, .data = options.data.data, .settings = {}};
  const bool first_rank = world.rank() == 0;
  const auto tell_start = [&] {
    if (first_rank)
      listener.started({world.size(), trainer.plan().stages, trainer.plan().microbatches, graph->parameter_count(), graph->trained_count(),
                        source->length(), batch_size, static_cast<std::int64_t>(source->sequences()), source->name(),
                        trainer.model().device()->info().name, state.step + 1, options.steps, trainer.model().stage_places()});
  };
  if (options.dry_run) {
    tell_start();
    return dry_run(options, trainer, next_batch(*source, sampler, batch_size, first_rank), listener);
  }
  if (!options.resume.empty()) {
    state = load_checkpoint(options.resume, trainer, model);
    if (same_data(state.data, options.data.data))
      sampler.seek(state.position);
    else
      log::warning(fmt::format("{} was trained on {}; {} starts from its beginning", options.resume, state.data, options.data.data));
    state.data = options.data.data;
  } else if (model.folder) {
    models::load_weights(trainer.model(), trainer.pipeline().stream(), model);
  }
  const std::optional<KeptStep> kept = elastic ? elastic->found() : std::nullopt;
  if (kept) {
    elastic->load(trainer);
    state.step = kept->step;
    sampler.seek(kept->position);
  }
  state.settings = options.settings;  // with what was chosen for this run: another number of ranks would choose otherwise
  if (state.settings.contains("seq-len")) state.settings["seq-len"] = std::to_string(source->length());
  if (state.settings.contains("batch-size")) state.settings["batch-size"] = std::to_string(batch_size);
  state.finite_only = options.trainer.on_nan != engine::OnNan::ignore;
  trainer.synchronize();
  tell_start();

  std::unique_ptr<models::TokenSource> eval_source;
  if (!options.eval_data.empty()) {
    DataChoice choice = options.data;
    choice.data = options.eval_data;
    eval_source = open_source(model, choice);
  }
  const auto save_options = [&](const std::string& folder) { return SaveOptions{.folder = folder, .model = &model, .lora = lora}; };
  double best = kept ? kept->best : std::numeric_limits<double>::infinity();  // loss of an evaluation
  const auto evaluate_now = [&] {
    state.position = sampler.position();
    if (!eval_source) return;
    const EvaluationResult result = evaluate(*eval_source, trainer.evaluator(), batch_size, options.eval_sequences);
    if (first_rank) listener.evaluated(state.step, result.loss());
    if (!saves_best || !(result.loss() < best)) return;
    best = result.loss();
    if (elastic) elastic->set_best(best);
    save_checkpoint(save_options(best_name), trainer, state);
    if (first_rank) listener.saved(best_name, state.step);
  };
  KeptTensors kept_tensors;
  std::optional<Saving> saving;  // what is on its way
  const auto finish_saving = [&] {
    if (!saving) return;
    saving->finish();
    if (first_rank) listener.saved(options.save, saving->step());
    saving.reset();
  };
  const auto save_now = [&] {
    if (!saves) return;
    finish_saving();
    state.position = sampler.position();
    SaveOptions how = save_options(options.save);
    how.keep = options.keep;
    if (options.save_async) how.kept = &kept_tensors;
    saving.emplace(std::move(how), trainer, state);
    if (!options.save_async) finish_saving();
  };

  TrainingResult result;
  std::vector<engine::TimedAction> timeline;
  std::vector<engine::TimedReduction> reductions;
  std::vector<engine::Batch> batches(static_cast<std::size_t>(options.accumulate));
  std::int64_t saved_at = -1;
  Watch watch;
  double worked = 0;  // seconds, since ranks were compared
  const auto finish_step = [&] {
    if (saving && saving->advance()) finish_saving();
    if (options.eval_every > 0 && state.step % options.eval_every == 0 && state.step < options.steps) evaluate_now();
    if (options.save_every > 0 && state.step % options.save_every == 0) save_now(), saved_at = state.step;
    if (elastic && first_rank) elastic->finished(state.step);
  };
  const auto tell_step = [&] {
    if (!first_rank) return;
    listener.stepped(result.last, trainer.model().memory().peak());
    if (elastic) elastic->told(state.step);
  };
  const auto train = [&] {
    if (elastic) elastic->guard(trainer, {state.step, sampler.position(), best, {}});
    if (kept) {  // what the rank that was lost has left undone
      result.last = kept->last;
      if (!elastic->was_told(state.step)) tell_step();
      if (!elastic->was_finished(state.step)) finish_step();
    }
    while (state.step < options.steps && !result.interrupted && !result.regroup) {
      for (engine::Batch& batch : batches) batch = next_batch(*source, sampler, batch_size, first_rank);
      if (elastic) elastic->begin(sampler.position());
      result.last = trainer.step(batches, options.lr.at(state.step + 1));
      ++state.step;
      result.last.step = state.step;
      if (elastic) elastic->completed(result.last);
      if (!options.record) timeline.clear(), reductions.clear();
      reductions.insert(reductions.end(), trainer.reductions().begin(), trainer.reductions().end());
      timeline.insert(timeline.end(), trainer.timeline().begin(), trainer.timeline().end());
      if (options.check_every > 0 && state.step % options.check_every == 0) trainer.check_replicas();
      tell_step();
      if (const auto notice = watch.loss(result.last); notice && first_rank) listener.noticed(*notice);
      worked += trainer.busy_seconds();
      if (constexpr std::int64_t between = 20; world.size() > 1 && state.step % between == 0) {
        std::vector<double> all;
        for (const auto& one : comm::gather(world, std::vector<double>{worked})) all.push_back(one.front());
        if (const auto notice = Watch::ranks(all, state.step); notice && first_rank) listener.noticed(*notice);
        worked = 0;
      }
      show_ranks(trainer, options, result.last, listener);
      const std::int64_t wish = listener.stop_requested() ? 2 : elastic && elastic->regroup_requested() ? 1 : 0;
      const std::int64_t wanted = world.allreduce_value(wish, comm::Reduce::max);
      result.interrupted = wanted == 2;
      result.regroup = wanted == 1 && state.step < options.steps;
      if (result.interrupted) listener.stopping();
      finish_step();
    }
    if (saved_at != state.step && !result.regroup) save_now();
    finish_saving();
    if (result.regroup) return;
    if (!result.interrupted) evaluate_now();
    gather_ranks(trainer, result);
    result.timelines = comm::gather(world, timeline);
    result.reductions = comm::gather(world, reductions);
  };
  try {
    comm::abort_on_error(&world, train);
    if (elastic && result.regroup)
      elastic->survive(world.timeout());
    else if (elastic)
      elastic->over();
  } catch (const CommError&) {
    if (elastic) elastic->survive(world.timeout());
    throw;
  } catch (...) {
    if (elastic) elastic->release();
    throw;
  }
  return result;
}

}  // namespace ppengine::runs
