// Runs of programs exported by torch.export.
#include <ppengine/runs/program.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/data/tensor_data.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/runs/programs/program_files.hpp>
#include <ppengine/runs/programs/program_setup.hpp>
#include <ppengine/runs/training/rank_figures.hpp>
#include <ppengine/runs/training/trained_graph.hpp>

namespace ppengine::runs {
namespace {

// All samples in order, or the first `limit`; before(first, samples) is called for each batch.
// whole_batches: the program takes no smaller ones.
EvaluationResult evaluate(const models::TensorData& data, const engine::Graph& graph, engine::Evaluator& evaluator, std::int64_t batch_size,
                          bool whole_batches, std::int64_t limit, const std::function<void(std::int64_t, std::int64_t)>& before = {}) {
  const auto all = static_cast<std::int64_t>(data.samples());
  const std::int64_t samples = limit > 0 ? std::min(limit, all) : all;
  EvaluationResult result;
  const auto add = [&](const std::vector<std::uint64_t>& numbers, double share) {
    const auto one = evaluator.run(data.read(graph, numbers));
    result.loss_sum += share * one.loss_sum;
    result.valid_tokens += static_cast<std::int64_t>(std::llround(share * double(one.valid_tokens)));
  };
  for (std::int64_t first = 0; first < samples; first += batch_size) {
    const std::int64_t count = std::min(batch_size, samples - first), missing = whole_batches ? batch_size - count : 0;
    std::vector<std::uint64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), static_cast<std::uint64_t>(first));
    numbers.resize(static_cast<std::size_t>(count + missing), static_cast<std::uint64_t>(first));  // filled up with copies of a sample
    if (before) before(first, samples);
    // The copies do not count; what they give is overwritten by what comes next.
    if (missing > 0)
      add(std::vector<std::uint64_t>(numbers.size(), static_cast<std::uint64_t>(first)), -double(missing) / double(batch_size));
    add(numbers, 1.0);
  }
  return result;
}

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

}  // namespace

TrainingResult run_program_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener) {
  std::optional<models::SaveFolder> save_folder;  // locked until the run ends
  if (!options.save.empty() && world.rank() == 0) save_folder.emplace(options.save);
  const auto program = models::load_program(options.resume.empty() ? options.model : options.resume);
  const models::TensorData data(options.data.data);
  models::ProgramOptions how_built = build_options(options.program, &data, options.program.dropout, false);
  how_built.frozen = frozen_by_name(options);
  const models::ProgramGraph built = build_program(*program, how_built, true);
  if (built.graph->trained_count() == 0) throw ConfigError(fmt::format("{}: there is no parameter to train", program->file()));
  engine::TrainerOptions how = options.trainer;
  how.shared_statistics = options.program.sync_batchnorm;
  how.parallel = for_programs(how.parallel, built);
  if (how.parallel.shard && !built.running.empty()) throw ConfigError("--shard: programs with running statistics are not sharded");
  const std::int64_t batch_size = fit_batch(options.data, how.parallel, built.fixed_batch);
  if (static_cast<std::int64_t>(data.samples()) < batch_size)
    throw ConfigError(
        fmt::format("{}: {} samples are fewer than a batch of {}: use a smaller --batch-size", data.path(), data.samples(), batch_size));
  const std::shared_ptr<const engine::Graph> graph = built.graph;
  engine::Trainer trainer(graph, how, world, batch_size, 1);
  check_state(trainer.model(), built.running);
  load_program_weights(trainer.model(), trainer.pipeline().stream(), *program);
  models::DataSampler sampler(data.samples(), options.data.order, options.data.seed);
  ProgramState state;
  if (!options.resume.empty()) {
    state = load_program_state(options.resume, trainer);
    sampler.seek(state.position);
  }
  state.settings = options.settings;  // with what was chosen for this run
  if (state.settings.contains("batch-size")) state.settings["batch-size"] = std::to_string(batch_size);
  trainer.synchronize();
  const bool first_rank = world.rank() == 0;
  if (first_rank) {
    RunInfo info;
    info.ranks = world.size(), info.stages = trainer.plan().stages, info.microbatches = trainer.plan().microbatches;
    info.parameters = graph->parameter_count(), info.trained = graph->trained_count();
    info.sequence_length = 1, info.batch_size = batch_size, info.sequences = static_cast<std::int64_t>(data.samples());
    info.data = data.path(), info.device = trainer.model().device()->info().name;
    info.first_step = state.step + 1, info.steps = options.steps, info.stage_places = trainer.model().stage_places();
    listener.started(info);
  }
  TrainingResult result;
  std::vector<engine::TimedAction> timeline;
  std::vector<engine::TimedReduction> reductions;
  std::vector<engine::Batch> batches(static_cast<std::size_t>(options.accumulate));
  const std::int64_t forwards = std::int64_t{trainer.plan().microbatches} * options.accumulate;
  std::int64_t saved_at = -1, done = 0;
  const auto save_now = [&] {
    if (options.save.empty()) return;
    state.position = sampler.position();
    save_program(options.save, trainer, *program, built, state, done * forwards);
    if (first_rank) listener.saved(options.save, state.step);
  };
  std::optional<models::TensorData> eval_data;
  if (!options.eval_data.empty()) eval_data.emplace(options.eval_data);
  const auto evaluate_now = [&] {
    if (!eval_data) return;
    const EvaluationResult found =
        evaluate(*eval_data, *graph, trainer.evaluator(), batch_size, built.fixed_batch > 0, options.eval_sequences);
    if (first_rank) listener.evaluated(state.step, found.loss());
  };
  comm::abort_on_error(&world, [&] {
    while (state.step < options.steps && !result.interrupted) {
      for (engine::Batch& batch : batches) batch = data.read(*graph, sampler.next(static_cast<std::size_t>(batch_size)));
      share_running(trainer, built.running);
      result.last = trainer.step(batches, options.lr.at(state.step + 1));
      ++state.step, ++done;
      result.last.step = state.step;
      if (!options.record) timeline.clear(), reductions.clear();
      reductions.insert(reductions.end(), trainer.reductions().begin(), trainer.reductions().end());
      timeline.insert(timeline.end(), trainer.timeline().begin(), trainer.timeline().end());
      if (first_rank) listener.stepped(result.last, trainer.model().memory().peak());
      show_ranks(trainer, options, result.last, listener);
      result.interrupted = world.allreduce_value(std::int64_t{listener.stop_requested()}, comm::Reduce::max) != 0;
      if (result.interrupted) listener.stopping();
      if (options.eval_every > 0 && state.step % options.eval_every == 0 && state.step < options.steps) evaluate_now();
      if (options.save_every > 0 && state.step % options.save_every == 0) save_now(), saved_at = state.step;
    }
    if (saved_at != state.step) save_now();
    if (!result.interrupted) evaluate_now();
  });
  gather_ranks(trainer, result);
  result.timelines = comm::gather(world, timeline);
  result.reductions = comm::gather(world, reductions);
  return result;
}

EvaluationResult run_program_evaluation(const EvaluationOptions& options, comm::Communicator& world) {
  const auto program = models::load_program(options.model);
  const models::TensorData data(options.data.data);
  const bool outputs = !options.outputs.empty();
  models::ProgramOptions how_built = build_options(options.program, &data, false, outputs);
  if (how_built.loss != models::ProgramLoss::output && !data.sizes().contains("targets")) how_built.loss = models::ProgramLoss::none;
  const models::ProgramGraph built = build_program(*program, how_built, !outputs);
  engine::ParallelOptions parallel = for_programs(options.parallel, built);
  DataChoice choice = options.data;
  if (choice.batch_size == 0 && built.fixed_batch == 0) choice.batch_size = std::int64_t{16} * parallel.microbatches * parallel.data;
  const std::int64_t batch_size = fit_batch(choice, parallel, built.fixed_batch);
  const comm::Mesh mesh(world, parallel.mesh());
  const std::shared_ptr<const engine::Graph> graph = built.graph;
  const schedules::Plan plan = engine::make_plan(parallel, true);
  auto cuts = engine::make_cuts(*graph, parallel, plan.stages, 1, 1);
  const auto device = parallel.device_of(world);
  engine::ModelRank rank(graph, std::move(cuts), plan.stage_rank, mesh.place().pipeline, device,
                         engine::ModelRank::Options{parallel.type, false, {}, {}, {}});
  ops::Stream stream(device);
  load_program_weights(rank, stream, *program);
  const auto all = static_cast<std::int64_t>(data.samples());
  const std::int64_t samples = options.sequences > 0 ? std::min(options.sequences, all) : all;
  engine::Evaluator evaluator(rank, parallel, mesh, outputs);
  std::optional<ProgramOutputs> writer;
  if (outputs) writer.emplace(options.outputs, built, samples, world);
  std::int64_t batch_first = 0;
  evaluator.on_output = [&](std::int64_t first, std::int64_t count, std::span<const float> rows) {
    const std::int64_t wanted = std::min(count, samples - batch_first - first);  // a batch may be filled up
    if (writer && wanted > 0) writer->write(batch_first + first, wanted, rows);
  };
  EvaluationResult result;
  comm::abort_on_error(&world, [&] {
    result = evaluate(data, *graph, evaluator, batch_size, built.fixed_batch > 0, samples, [&](std::int64_t first, std::int64_t of) {
      batch_first = first;
      if (options.progress && world.rank() == 0) options.progress(first, of);
    });
    if (writer) writer->finish(world);
  });
  return result;
}

void load_program_weights(engine::ModelRank& model, ops::Stream& stream, const models::Program& program) {
  std::vector<float> host;
  for (engine::StageId stage : model.stages()) {
    engine::ParameterStore& store = model.parameters(stage);
    for (const engine::ParameterRange& range : store.ranges()) {
      const engine::ParameterInfo& info = model.graph().parameters()[range.id];
      host = stored_parameter(program, info.name);
      store.load(stream, range, host);
    }
    store.refresh(stream);
  }
  stream.wait();
}

ProgramInspection inspect_program(const std::string& file, const ProgramChoice& choice, int stages, const std::vector<std::string>& split) {
  const auto program = models::load_program(file);
  ProgramInspection result;
  result.program = program->build(build_options(choice, nullptr, true, true));
  const engine::Graph& graph = *result.program.graph;
  std::vector<engine::StageCut> cuts;
  if (result.program.unsupported.empty() && !graph.nodes().empty()) {
    engine::ParallelOptions parallel;
    parallel.split = names_of_graph(split, result.program);
    parallel.pipeline = parallel.stages = std::max(stages, 1);
    parallel.balance = engine::Balance::estimated;
    cuts = engine::make_cuts(graph, parallel, std::max(stages, 1), std::max<std::int64_t>(result.program.fixed_batch, 1), 1);
  }
  for (const engine::StageCut& cut : cuts) {
    ProgramInspection::Stage stage{engine::first_module(graph, cut), graph.nodes()[cut.end - 1].module, 0};
    for (engine::ParameterId id : cut.parameters) stage.parameters += graph.parameters()[id].shape.count();
    result.stages.push_back(std::move(stage));
  }
  for (const std::string& name : program->state()) {
    const models::StoredTensor& tensor = program->tensor(name);
    ProgramInspection::Entry entry{name, tensor.type_name, tensor.shape, static_cast<std::int64_t>(tensor.elements), false, {}};
    const engine::ParameterId id = graph.find_parameter(program->graph_name(name));
    entry.buffer = !id || std::ranges::find(result.program.running, program->graph_name(name)) != result.program.running.end();
    for (std::size_t s = 0; s < cuts.size() && id; ++s)
      if (std::ranges::find(cuts[s].parameters, id) != cuts[s].parameters.end()) entry.stages.push_back(static_cast<int>(s));
    result.state.push_back(std::move(entry));
  }
  for (const auto& [name, node] : result.program.modules) result.modules.push_back(name);
  return result;
}

}  // namespace ppengine::runs
