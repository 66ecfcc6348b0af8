// A training run of a model of a family.
#include <ppengine/runs/training.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/graph/pack.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/files/npy.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/elastic/elastic.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/program.hpp>
#include <ppengine/runs/training/loop.hpp>
#include <ppengine/runs/training/trained_graph.hpp>

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

models::ModelSource open_checked(const TrainingOptions& options) {
  models::ModelSource model = open_model_with_adapter(options.model, options.adapter);
  if (model.folder && options.resume.empty())  // before anything is built: a wrong configuration may ask for any amount of memory
    models::match_parameters(model.config, models::WeightFiles::open(*model.folder));
  return model;
}

std::unique_ptr<models::TokenSource> open_evaluation(const models::ModelSource& model, const TrainingOptions& options) {
  if (options.eval_data.empty()) return nullptr;
  DataChoice choice = options.data;
  choice.data = options.eval_data;
  return open_source(model, choice);
}

// With what the run does between steps.
engine::TrainerOptions trainer_options(const TrainingOptions& options, std::optional<Elastic>& elastic) {
  engine::TrainerOptions how = options.trainer;
  if (!elastic) return how;
  how.uneven_shares = true;  // replicas may become fewer
  how.before_update = [&elastic](double loss, double grad_norm) { elastic->commit(loss, grad_norm); };
  return how;
}

class ModelTask final : public TrainingTask {
 public:
  ModelTask(const TrainingOptions& options, comm::Communicator& world, std::optional<Elastic>& elastic)
      : options_(options),
        model_(open_checked(options)),
        trained_(make_trained_graph(options, model_)),
        source_(open_source(model_, options.data)),
        eval_source_(open_evaluation(model_, options)),
        batch_size_(batch_size(options)),
        trainer_(trained_.graph, trainer_options(options, elastic), world, batch_size_, source_->length()),
        sampler_(source_->sequences(), options.data.order, options.data.seed),
        warns_(world.rank() == 0) {
    state_.seed = options.trainer.seed;
    state_.data = options.data.data;
  }

  // Weights, optimizer and place in the data: of the checkpoint, the folder, or the replica of a lost rank. Returns the step.
  std::int64_t load(const Elastic* elastic) {
    if (!options_.resume.empty()) {
      state_ = load_checkpoint(options_.resume, trainer_, model_);
      go_on_in_data(sampler_, state_, options_);
    } else if (model_.folder) {
      models::load_weights(trainer_.model(), trainer_.pipeline().stream(), model_);
    }
    if (const std::optional<KeptStep> kept = elastic ? elastic->found() : std::nullopt) {
      elastic->load(trainer_);
      state_.step = kept->step;
      sampler_.seek(kept->position);
    }
    state_.settings = options_.settings;  // with what was chosen for this run: another number of ranks would choose otherwise
    if (state_.settings.contains("seq-len")) state_.settings["seq-len"] = std::to_string(source_->length());
    if (state_.settings.contains("batch-size")) state_.settings["batch-size"] = std::to_string(batch_size_);
    state_.finite_only = options_.trainer.on_nan != engine::OnNan::ignore;
    trainer_.synchronize();
    return state_.step;
  }

  TrainingLoop::Data data() const {
    return {source_->name(), static_cast<std::int64_t>(source_->sequences()), source_->length(), batch_size_};
  }

  engine::Trainer& trainer() override { return trainer_; }
  engine::Batch next_batch() override { return runs::next_batch(*source_, sampler_, batch_size_, warns_); }
  models::DataPosition position() const override { return sampler_.position(); }

  std::optional<double> evaluate() override {
    if (!eval_source_) return {};
    return runs::evaluate(*eval_source_, trainer_.evaluator(), batch_size_, options_.eval_sequences).loss();
  }

  std::unique_ptr<Saving> save(std::int64_t step) override {
    SaveOptions how = save_options(options_.save);
    how.keep = options_.keep;
    if (options_.save_async) how.kept = &kept_;
    auto saving = std::make_unique<Saving>(std::move(how), trainer_, state_after(step));
    if (options_.save_async) return saving;
    saving->finish();
    return nullptr;
  }

  void save_best(const std::string& folder, std::int64_t step) override {
    save_checkpoint(save_options(folder), trainer_, state_after(step));
  }

 private:
  static std::int64_t batch_size(const TrainingOptions& options) {
    const engine::ParallelOptions& parallel = options.trainer.parallel;
    return options.data.batch_size > 0 ? options.data.batch_size : std::int64_t{parallel.microbatches} * parallel.data;
  }

  SaveOptions save_options(const std::string& folder) const { return {.folder = folder, .model = &model_, .lora = trained_.lora}; }
  const RunState& state_after(std::int64_t step) {
    state_.step = step;
    state_.position = sampler_.position();
    return state_;
  }

  const TrainingOptions& options_;
  const models::ModelSource model_;
  const TrainedGraph trained_;
  const std::unique_ptr<models::TokenSource> source_, eval_source_;
  const std::int64_t batch_size_;
  engine::Trainer trainer_;
  models::DataSampler sampler_;
  RunState state_;
  KeptTensors kept_;
  const bool warns_;
};

}  // namespace

TrainingResult run_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener) {
  if (models::Program::is_program(options.model)) return run_program_training(options, world, listener);
  refuse_flags_of_programs(options.program);
  const SaveFolders folders(options, world.rank() == 0);
  const engine::ParallelOptions& parallel = options.trainer.parallel;
  std::optional<Elastic> elastic;
  if (!options.elastic.folder.empty())
    elastic.emplace(options.elastic.folder, options.elastic.start, world.rank(), parts_of(parallel.mesh()));
  if (options.check_every > 0 && ((parallel.data == 1 && !elastic) || parallel.shard))
    throw ConfigError("--check-every compares data-parallel copies: it needs --dp 2 or more, without --shard");
  ModelTask task(options, world, elastic);
  Elastic* const keeper = elastic ? &*elastic : nullptr;
  const std::int64_t step = options.dry_run ? 0 : task.load(keeper);
  TrainingLoop loop(options, folders, task, listener, step, keeper);
  loop.tell_start(task.data());
  return options.dry_run ? loop.dry_run() : loop.run();
}

}  // namespace ppengine::runs
