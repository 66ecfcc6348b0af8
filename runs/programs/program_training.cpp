// A training run of a program exported by torch.export.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/data/tensor_data.hpp>
#include <ppengine/runs/program.hpp>
#include <ppengine/runs/programs/evaluate_samples.hpp>
#include <ppengine/runs/programs/program_files.hpp>
#include <ppengine/runs/programs/program_setup.hpp>
#include <ppengine/runs/training/loop.hpp>
#include <ppengine/runs/training/trained_graph.hpp>

namespace ppengine::runs {
namespace {

// Running statistics are those of the first data-parallel rank, as DistributedDataParallel broadcasts them before a forward.
void share_running(engine::Trainer& trainer, const std::vector<std::string>& running) {
  if (trainer.mesh().data().size() == 1) return;
  std::vector<comm::Pending> pending;
  for (engine::StageId stage : trainer.model().stages()) {
    engine::ParameterStore& store = trainer.model().parameters(stage);
    for (const engine::ParameterRange& range : store.ranges()) {
      const auto& info = trainer.model().graph().parameters()[range.id];
      if (std::ranges::find(running, info.name) == running.end()) continue;
      pending.push_back(
          trainer.mesh().data().broadcast(store.values() + range.offset, range.count * sizeof(float), 0, trainer.pipeline().stream()));
    }
  }
  for (const comm::Pending& one : pending) one.wait();
}

// A buffer that the program changes lives in one stage: its other readers would see old values.
void check_state(const engine::ModelRank& model, const std::vector<std::string>& running) {
  for (const std::string& name : running) {
    const engine::ParameterId id = model.graph().find_parameter(name);
    const auto holds = [&](const engine::StageCut& cut) { return std::ranges::find(cut.parameters, id) != cut.parameters.end(); };
    if (std::ranges::count_if(model.cuts(), holds) > 1)
      throw ConfigError(fmt::format(
          "the program changes the buffer {} in one stage and reads it in another: choose other cuts with --split, or fewer stages", name));
  }
}

// What the flags of other models ask for and programs do not have.
void refuse_unsupported(const TrainingOptions& options) {
  refuse_flags_of_other_models(options.data, options.adapter, options.weights);
  refuse_flag(options.lora.rank > 0, "--lora-rank", "have no low-rank terms beside their weights");
  refuse_flag(options.save_async, "--save-async", "are saved between two steps; leave it out");
}

models::ProgramGraph build(const TrainingOptions& options, const models::Program& program, const models::TensorData& data) {
  models::ProgramOptions how = build_options(options.program, &data, options.program.dropout, false);
  how.frozen = frozen_by_name(options);
  models::ProgramGraph built = build_program(program, how, true);
  if (built.graph->trained_count() == 0) throw ConfigError(fmt::format("{}: there is no parameter to train", program.file()));
  return built;
}

engine::TrainerOptions trainer_options(const TrainingOptions& options, const models::ProgramGraph& built) {
  engine::TrainerOptions how = options.trainer;
  how.shared_statistics = options.program.sync_batchnorm;
  how.parallel = for_programs(how.parallel, built);
  if (how.parallel.shard && !built.running.empty()) throw ConfigError("--shard: programs with running statistics are not sharded");
  if (options.check_every > 0 && (how.parallel.data == 1 || how.parallel.shard || !built.running.empty()))
    throw ConfigError(
        "--check-every compares data-parallel copies: it needs --dp 2 or more, without --shard, and a program without running statistics, "
        "in which copies differ between steps");
  return how;
}

std::int64_t fitting_batch(const TrainingOptions& options, const models::ProgramGraph& built, engine::ParallelOptions& parallel,
                           const models::TensorData& data) {
  const std::int64_t size = fit_batch(options.data, parallel, built.fixed_batch);
  if (static_cast<std::int64_t>(data.samples()) >= size) return size;
  throw ConfigError(
      fmt::format("{}: {} samples are fewer than a batch of {}: use a smaller --batch-size", data.path(), data.samples(), size));
}

class ProgramTask final : public TrainingTask {
 public:
  ProgramTask(const TrainingOptions& options, comm::Communicator& world)
      : options_(options),
        program_(models::load_program(options.resume.empty() ? options.model : options.resume)),
        data_(options.data.data),
        built_(build(options, *program_, data_)),
        how_(trainer_options(options, built_)),
        batch_size_(fitting_batch(options, built_, how_.parallel, data_)),
        trainer_(built_.graph, how_, world, batch_size_, 1),
        sampler_(data_.samples(), options.data.order, options.data.seed),
        forwards_(std::int64_t{trainer_.plan().microbatches} * options.accumulate) {
    state_.seed = options.trainer.seed;
    state_.data = options.data.data;
    check_state(trainer_.model(), built_.running);
    if (!options.eval_data.empty()) eval_data_.emplace(options.eval_data);
  }

  // Weights, optimizer and place in the data. Returns the step.
  std::int64_t load() {
    load_program_weights(trainer_.model(), trainer_.pipeline().stream(), *program_);
    if (!options_.resume.empty()) {
      state_ = load_program_state(options_.resume, trainer_);
      go_on_in_data(sampler_, state_, options_);
    }
    begun_at_ = state_.step;
    state_.settings = options_.settings;  // with what was chosen for this run
    if (state_.settings.contains("batch-size")) state_.settings["batch-size"] = std::to_string(batch_size_);
    state_.finite_only = options_.trainer.on_nan != engine::OnNan::ignore;
    trainer_.synchronize();
    return state_.step;
  }

  TrainingLoop::Data data() const { return {data_.path(), static_cast<std::int64_t>(data_.samples()), 1, batch_size_}; }

  engine::Trainer& trainer() override { return trainer_; }
  engine::Batch next_batch() override { return data_.read(*built_.graph, sampler_.next(static_cast<std::size_t>(batch_size_))); }
  models::DataPosition position() const override { return sampler_.position(); }
  void before_step() override { share_running(trainer_, built_.running); }

  std::optional<double> evaluate() override {
    if (!eval_data_) return {};
    return evaluate_samples(*eval_data_, *built_.graph, trainer_.evaluator(), batch_size_, built_.fixed_batch > 0, options_.eval_sequences)
        .loss();
  }

  std::unique_ptr<Saving> save(std::int64_t step) override {
    save_to({.folder = options_.save, .keep = options_.keep}, step);
    return nullptr;
  }
  void save_best(const std::string& folder, std::int64_t step) override { save_to({.folder = folder}, step); }

 private:
  void save_to(const SaveOptions& how, std::int64_t step) {
    state_.step = step;
    state_.position = sampler_.position();
    save_program(how, trainer_, *program_, built_, state_, (step - begun_at_) * forwards_);
  }

  const TrainingOptions& options_;
  const std::shared_ptr<const models::Program> program_;
  const models::TensorData data_;
  std::optional<models::TensorData> eval_data_;
  const models::ProgramGraph built_;
  engine::TrainerOptions how_;
  const std::int64_t batch_size_;
  engine::Trainer trainer_;
  models::DataSampler sampler_;
  RunState state_;
  std::int64_t begun_at_ = 0;
  const std::int64_t forwards_;  // of a data-parallel rank in a step
};

}  // namespace

TrainingResult run_program_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener) {
  refuse_unsupported(options);
  const SaveFolders folders(options, world.rank() == 0);
  ProgramTask task(options, world);
  const std::int64_t step = options.dry_run ? 0 : task.load();
  TrainingLoop loop(options, folders, task, listener, step);
  loop.tell_start(task.data());
  return options.dry_run ? loop.dry_run() : loop.run();
}

}  // namespace ppengine::runs
