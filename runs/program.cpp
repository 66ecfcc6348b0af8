// Runs of programs exported by torch.export.
#include <ppengine/runs/program.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/models/data/tensor_data.hpp>
#include <ppengine/runs/programs/evaluate_samples.hpp>
#include <ppengine/runs/programs/program_files.hpp>
#include <ppengine/runs/programs/program_setup.hpp>

namespace ppengine::runs {

EvaluationResult run_program_evaluation(const EvaluationOptions& options, comm::Communicator& world) {
  refuse_flags_of_other_models(options.data, options.adapter, options.weights);
  refuse_flag(!options.logits.empty(), "--logits", "write what they return with --outputs FILE.safetensors");
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
    result =
        evaluate_samples(data, *graph, evaluator, batch_size, built.fixed_batch > 0, samples, [&](std::int64_t first, std::int64_t of) {
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
