// A training run from start to end.
#include <ppengine/runs/training.hpp>

#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <regex>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/graph/pack.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/npy.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/evaluation.hpp>

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

std::regex expression(const std::string& text, const char* flag) {
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    throw ConfigError(fmt::format("{} '{}' is not a regular expression: {}", flag, text, error.what()));
  }
}

// What is trained: low-rank terms beside a frozen model, or the parameters that the expressions leave.
std::shared_ptr<const engine::Graph> with_frozen(const TrainingOptions& options, std::shared_ptr<const engine::Graph> graph) {
  if (options.freeze.empty() && options.only.empty()) return graph;
  const std::regex freeze = expression(options.freeze, "--freeze"), only = expression(options.only, "--only");
  bool any_frozen = options.freeze.empty(), any_only = options.only.empty();
  auto result = std::make_shared<engine::Graph>(*graph);
  result->freeze([&](const engine::ParameterInfo& info) {
    const bool frozen = !options.freeze.empty() && std::regex_search(info.name, freeze);
    const bool left_out = !options.only.empty() && !std::regex_search(info.name, only);
    any_frozen = any_frozen || frozen;
    any_only = any_only || !left_out;
    return frozen || left_out;
  });
  if (!any_frozen) throw ConfigError(fmt::format("--freeze '{}' fits no parameter; 'ppengine inspect' lists them", options.freeze));
  if (!any_only) throw ConfigError(fmt::format("--only '{}' fits no parameter; 'ppengine inspect' lists them", options.only));
  if (result->trained_count() == 0) throw ConfigError("--freeze and --only leave no parameter to train");
  return result;
}

// Of the run, and where there are low-rank terms their options: from the flags, or from the adapter or checkpoint to go on with.
struct TrainedGraph {
  std::shared_ptr<const engine::Graph> graph;
  std::optional<engine::LoraOptions> lora;
};

TrainedGraph make_graph(const TrainingOptions& options, const models::ModelSource& model) {
  TrainedGraph made{models::build_graph(model.config, {.dropout = options.dropout}), {}};
  const std::string folder = !options.adapter.empty()                                                          ? options.adapter
                             : !options.resume.empty() && models::is_adapter_folder(options.resume) ? options.resume
                                                                                                               : "";
  if (!folder.empty()) {
    const models::Adapter adapter = models::Adapter::open(folder);
    adapter.check(*made.graph);
    if (options.lora.rank > 0 && options.lora.rank != adapter.options().rank)
      throw ConfigError(fmt::format("--lora-rank {}: {} has rank {}; leave the flag out", options.lora.rank, folder, adapter.options().rank));
    made.lora = adapter.options();
  } else if (options.lora.rank > 0) {
    made.lora = options.lora;
    if (made.lora->targets.empty()) made.lora->targets = engine::default_lora_targets(*made.graph);
  }
  if (made.lora) made.graph = engine::add_lora(*made.graph, *made.lora);
  made.graph = with_frozen(options, made.graph);
  if (options.data.pack) made.graph = engine::pack_documents(*made.graph);
  return made;
}

// The first step warms up, the second is measured.
TrainingResult dry_run(const TrainingOptions& options, engine::Trainer& trainer, const engine::Batch& batch, TrainingListener& listener) {
  const std::vector<engine::Batch> batches(static_cast<std::size_t>(options.accumulate), batch);
  TrainingResult result;
  for (int i = 0; i < 2; ++i) result.last = trainer.step(batches, 0.0);
  comm::Communicator& world = trainer.mesh().world();
  for (const auto& one : comm::gather(world, std::vector<std::size_t>{trainer.model().memory().peak()})) result.peak_bytes.push_back(one.front());
  result.idle_share = {result.last.idle_share};
  result.plan = trainer.plan();
  const double seconds = result.last.seconds * double(options.steps);
  if (world.rank() == 0) listener.planned({result.peak_bytes, options.steps, result.last.tokens * options.steps, result.last.seconds, seconds});
  return result;
}

// A loss far above those of the last steps, and a rank that is much slower than the others.
class Watch {
 public:
  std::optional<std::string> loss(const engine::StepResult& step) {
    std::optional<std::string> notice;
    if (recent_.size() == window) {
      double mean = 0, spread = 0;
      for (double one : recent_) mean += one / double(window);
      for (double one : recent_) spread += (one - mean) * (one - mean) / double(window);
      const double limit = mean + std::max(6.0 * std::sqrt(spread), 0.25 * std::abs(mean));
      if (step.loss > limit)
        notice = fmt::format("step {}: the loss jumped to {:.4f}; the mean of the last {} steps is {:.4f}", step.step, step.loss, window, mean);
      recent_.erase(recent_.begin());
    }
    recent_.push_back(step.loss);
    return notice;
  }

 private:
  static constexpr std::size_t window = 20;
  std::vector<double> recent_;
};

}  // namespace

TrainingResult run_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener) {
  if (!options.save.empty() && !options.dry_run && world.rank() == 0) check_can_save(options.save);
  const models::ModelSource model = open_model_with_adapter(options.model, options.adapter);
  const auto [graph, lora] = make_graph(options, model);
  const auto source = open_source(model, options.data);
  const engine::ParallelOptions& parallel = options.trainer.parallel;
  const std::int64_t batch_size =
      options.data.batch_size > 0 ? options.data.batch_size : std::int64_t{parallel.microbatches} * parallel.data;

  engine::Trainer trainer(graph, options.trainer, world, batch_size, source->length());
  models::DataSampler sampler(source->sequences(), options.data.order, options.data.seed);
  RunState state{0, options.trainer.seed, {}, options.data.data, {}};
  const bool first_rank = world.rank() == 0;
  const auto tell_start = [&] {
    if (first_rank)
      listener.started({world.size(), trainer.plan().stages, trainer.plan().microbatches, graph->parameter_count(), graph->trained_count(),
                        source->length(), batch_size, static_cast<std::int64_t>(source->sequences()), source->name(),
                        trainer.model().device()->info().name, state.step + 1, options.steps, trainer.model().stage_places()});
  };
  if (options.dry_run) {
    tell_start();
    return dry_run(options, trainer, read_batch(*source, sampler.next(static_cast<std::size_t>(batch_size))), listener);
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
  state.settings = options.settings;  // with what was chosen for this run: another number of ranks would choose otherwise
  if (state.settings.contains("seq-len")) state.settings["seq-len"] = std::to_string(source->length());
  if (state.settings.contains("batch-size")) state.settings["batch-size"] = std::to_string(batch_size);
  trainer.synchronize();
  tell_start();

  std::unique_ptr<models::TokenSource> eval_source;
  if (!options.eval_data.empty()) {
    DataChoice choice = options.data;
    choice.data = options.eval_data;
    eval_source = open_source(model, choice);
  }
  double best = std::numeric_limits<double>::infinity();  // loss of an evaluation
  const auto evaluate_now = [&] {
    state.position = sampler.position();
    if (!eval_source) return;
    const EvaluationResult result = evaluate(*eval_source, trainer.evaluator(), batch_size, options.eval_sequences);
    if (first_rank) listener.evaluated(state.step, result.loss());
    if (options.save.empty() || options.eval_every == 0 || !(result.loss() < best)) return;
    best = result.loss();
    save_checkpoint({options.save + ".best", 1, lora ? &*lora : nullptr, false}, trainer, model, state);
    if (first_rank) listener.saved(options.save + ".best", state.step);
  };
  std::optional<Saving> saving;  // what is on its way
  const auto finish_saving = [&] {
    if (!saving) return;
    saving->finish();
    if (first_rank) listener.saved(options.save, saving->step());
    saving.reset();
  };
  const auto save_now = [&] {
    if (options.save.empty()) return;
    finish_saving();
    state.position = sampler.position();
    saving.emplace(SaveOptions{options.save, options.keep, lora ? &*lora : nullptr, options.save_async}, trainer, model, state);
    if (!options.save_async) finish_saving();
  };

  TrainingResult result;
  std::vector<engine::TimedAction> timeline;
  std::vector<engine::TimedReduction> reductions;
  std::vector<engine::Batch> batches(static_cast<std::size_t>(options.accumulate));
  std::int64_t saved_at = -1;
  Watch watch;
  comm::abort_on_error(&world, [&] {
    while (state.step < options.steps && !result.interrupted) {
      for (engine::Batch& batch : batches) batch = read_batch(*source, sampler.next(static_cast<std::size_t>(batch_size)));
      result.last = trainer.step(batches, options.lr.at(state.step + 1));
      ++state.step;
      result.last.step = state.step;
      if (!options.record) timeline.clear(), reductions.clear();
      reductions.insert(reductions.end(), trainer.reductions().begin(), trainer.reductions().end());
      timeline.insert(timeline.end(), trainer.timeline().actions().begin(), trainer.timeline().actions().end());
      if (first_rank) listener.stepped(result.last, trainer.model().memory().peak());
      if (const auto notice = watch.loss(result.last); notice && first_rank) listener.noticed(*notice);
      result.interrupted = world.allreduce_value(std::int64_t{listener.stop_requested()}, comm::Reduce::max) != 0;
      if (result.interrupted) listener.stopping();
      if (saving && world.allreduce_value(std::int64_t{!saving->written()}, comm::Reduce::max) == 0) finish_saving();
      if (options.eval_every > 0 && state.step % options.eval_every == 0 && state.step < options.steps) evaluate_now();
      if (options.save_every > 0 && state.step % options.save_every == 0) save_now(), saved_at = state.step;
    }
    if (saved_at != state.step) save_now();
    finish_saving();
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
