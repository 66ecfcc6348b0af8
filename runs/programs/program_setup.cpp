// Setting up runs of programs, and the batches of their benchmarks.
#include <ppengine/runs/programs/program_setup.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/graph/split.hpp>
#include <ppengine/models/data/counter_random.hpp>
#include <ppengine/runs/program.hpp>

namespace ppengine::runs {

void refuse_flag(bool given, const char* flag, const char* why) {
  if (given) throw ConfigError(fmt::format("{}: programs (.pt2) {}", flag, why));
}

void refuse_flags_of_other_models(const DataChoice& data, const std::string& adapter, const ops::WeightStorage& weights) {
  refuse_flag(!adapter.empty(), "--adapter", "have no low-rank terms beside their weights");
  refuse_flag(weights.format != ops::WeightFormat::f32, "--weights", "keep their weights in f32");
  refuse_flag(data.pack, "--pack", "take samples as they are");
  refuse_flag(data.variable_lengths, "--lengths variable", "take samples as they are");
  refuse_flag(data.sequence_length > 0, "--seq-len", "take samples of the sizes that the data has");
}

void refuse_flags_of_programs(const ProgramChoice& choice) {
  const auto refuse = [](bool given, const char* flag, const char* why) {
    if (given) throw ConfigError(fmt::format("{} is for programs (.pt2): {}", flag, why));
  };
  refuse(!choice.loss.empty() && choice.loss != "cross_entropy", "--loss", "this model has cross entropy");
  refuse(choice.class_dim != -1, "--class-dim", "this model's classes are in the last dimension");
  refuse(choice.sync_batchnorm, "--sync-batchnorm", "this model has no batch norm");
}

models::ProgramOptions build_options(const ProgramChoice& choice, const models::TensorData* data, bool dropout, bool outputs) {
  models::ProgramOptions options;
  options.loss = models::parse_program_loss(choice.loss);
  options.class_dim = choice.class_dim;
  options.dropout = dropout;
  options.sync_batchnorm = choice.sync_batchnorm;
  options.patterns = choice.patterns;
  options.outputs = outputs;
  if (data) options.sizes = data->sizes();
  return options;
}

models::ProgramGraph build_program(const models::Program& program, const models::ProgramOptions& options, bool needs_loss) {
  models::ProgramGraph graph = program.build(options);
  models::Program::check(graph, program.file());
  if (needs_loss && !graph.graph->loss_value())
    throw ConfigError(fmt::format("{}: the program's first output is no scalar: say what to minimise with --loss cross_entropy, mse or bce",
                                  program.file()));
  return graph;
}

std::vector<std::string> names_of_graph(const std::vector<std::string>& split, const models::ProgramGraph& program) {
  const engine::Graph& graph = *program.graph;
  std::vector<std::string> names = split;
  for (std::string& name : names) {
    const auto module = std::ranges::find(program.modules, name, &std::pair<std::string, int>::first);
    const bool has_nodes = std::ranges::any_of(
        graph.nodes(), [&](const engine::Node& node) { return node.module == name || node.module.starts_with(name + "."); });
    if (module == program.modules.end() || has_nodes || module->second <= 0 || module->second >= static_cast<int>(graph.nodes().size()))
      continue;
    engine::StageCut cut;
    cut.begin = engine::NodeId(module->second);
    name = engine::first_module(graph, cut);
  }
  return names;
}

engine::ParallelOptions for_programs(engine::ParallelOptions parallel, const models::ProgramGraph& program) {
  parallel.split = names_of_graph(parallel.split, program);
  if (parallel.tensor > 1) throw ConfigError("--tp: programs are not divided over tensor-parallel ranks; use --pp and --dp");
  parallel.prefer_f32();
  if (parallel.type != ops::Type::f32) throw ConfigError("--dtype bf16: programs compute in f32");
  parallel.balance = engine::Balance::estimated;  // measuring would compile every piece of the program apart
  return parallel;
}

std::int64_t fit_batch(const DataChoice& data, engine::ParallelOptions& parallel, std::int64_t fixed_batch) {
  const std::int64_t per_rank = std::max<std::int64_t>(fixed_batch, 1) * parallel.data;
  if (data.batch_size == 0) return parallel.microbatches * per_rank;
  if (fixed_batch == 0 || data.batch_size == parallel.microbatches * per_rank) return data.batch_size;
  if (data.batch_size % per_rank != 0 || parallel.plan)
    throw ConfigError(fmt::format(
        "the program was exported for microbatches of {} samples: --batch-size {} is no multiple of {} x --dp {}; choose another, or "
        "export with dynamic_shapes",
        fixed_batch, data.batch_size, fixed_batch, parallel.data));
  parallel.microbatches = static_cast<int>(data.batch_size / per_rank);
  return data.batch_size;
}

ProgramBatches::ProgramBatches(const std::string& file, const ProgramChoice& choice, const DataChoice& data,
                               engine::ParallelOptions& parallel)
    : seed_(data.seed) {
  const auto program = models::load_program(file);
  if (data.data != "synthetic") data_ = std::make_shared<models::TensorData>(data.data);
  const models::ProgramGraph built = build_program(*program, build_options(choice, data_.get(), choice.dropout, false), true);
  graph_ = built.graph;
  parallel = for_programs(std::move(parallel), built);
  batch_size_ = fit_batch(data, parallel, built.fixed_batch);
}

engine::Batch ProgramBatches::read(std::uint64_t step) const {
  const auto samples = static_cast<std::size_t>(batch_size_);
  if (data_) {
    std::vector<std::uint64_t> numbers(samples);
    for (std::size_t i = 0; i < samples; ++i) numbers[i] = (step * samples + i) % data_->samples();
    return data_->read(*graph_, numbers);
  }
  engine::Batch batch;
  batch.sequences = batch_size_, batch.length = 1;
  for (engine::Value id : graph_->values().ids()) {
    const engine::ValueInfo& value = graph_->values()[id];
    if (value.producer) continue;
    engine::BatchInput input;
    input.name = value.name;
    std::int64_t below = 2;
    for (const engine::Node& node : graph_->nodes())
      for (std::size_t k = 0; k < node.inputs.size(); ++k)
        if (node.inputs[k] == id) below = std::max(below, node.op->index_limit(k));
    const std::size_t count = samples * static_cast<std::size_t>(value.width);
    for (std::size_t i = 0; i < count; ++i) {
      if (value.kind == engine::ValueKind::tokens)
        input.tokens.push_back(
            static_cast<std::int32_t>(models::random_below(seed_ + step, id.index(), i, static_cast<std::uint64_t>(below))));
      else
        input.values.push_back(static_cast<float>(2 * models::random_uniform(seed_ + step, id.index(), i) - 1));
    }
    batch.inputs.push_back(std::move(input));
  }
  return batch;
}

}  // namespace ppengine::runs
