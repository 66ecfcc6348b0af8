// Trainer: one rank of a training run.
#include <ppengine/engine/trainer.hpp>

#include <fmt/core.h>

#include <chrono>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/engine/tensor_parallel.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

Trainer::Trainer(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, int64_t batch_size, int64_t length)
    : options_(options), mesh_(world, options_.parallel.mesh()), graph_(shard_graph(graph, mesh_.place().tensor, options_.parallel.tensor, options_.parallel.sequence_parallel)) {
  const ParallelOptions& parallel = options_.parallel;
  if (graph_->loss_value() < 0) throw ConfigError("the model has no loss: call Graph::loss before training");
  if (batch_size % parallel.data != 0)
    throw ConfigError(fmt::format("--batch-size {} cannot be divided over --dp {} ranks: use a multiple of {}", batch_size, parallel.data, parallel.data));

  schedules::Plan plan = make_plan(parallel, /*inference=*/false);
  split_batch(0, batch_size / parallel.data, plan.microbatches);  // refuses what cannot be split, before anything is built
  const int64_t sequences = (batch_size / parallel.data + plan.microbatches - 1) / plan.microbatches;
  auto cuts = make_cuts(*graph_, parallel, plan.stages, sequences, length, &world);

  const auto device = parallel.device ? parallel.device : ops::Device::open();
  model_ = std::make_unique<ModelRank>(graph_, std::move(cuts), plan.stage_rank, mesh_.place().pipeline, device, ModelRank::Options{parallel.type, true});
  pipeline_ = std::make_unique<Pipeline>(*model_, std::move(plan), PipelineOptions{options_.recompute, false, &mesh_.pipeline(), &mesh_.tensor()});
  evaluator_ = std::make_unique<Evaluator>(*model_, parallel, mesh_);
  optimizer_ = std::make_unique<Optimizer>(*model_, options_.optimizer);
  tied_gradients_ = std::make_unique<TiedGradients>(*model_, mesh_.pipeline());
  scratch_ = ops::Buffer(device, ops::reduce_workspace() + ops::buffer_alignment, &model_->memory());
  for (int stage : model_->stages()) model_->parameters(stage).initialize(pipeline_->stream(), options_.seed);
  pipeline_->prepare(split_batch(0, batch_size / parallel.data, pipeline_->plan().microbatches), length);
}

Trainer::~Trainer() = default;

double Trainer::run_batch(const Batch& batch, double weight, bool accumulate) {
  const int64_t mine = batch.sequences / options_.parallel.data;
  StepInputs inputs;
  inputs.batch = &batch;
  inputs.microbatches = split_batch(mine * mesh_.place().data, mine, pipeline_->plan().microbatches);
  inputs.loss_weight = static_cast<float>(weight);
  inputs.dropout_key = mix(options_.seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(optimizer_->steps()) + 1);
  inputs.accumulate = accumulate;
  recorder_.clear();
  pipeline_->run(inputs, &recorder_);
  idle_ = recorder_.span() > 0 ? 1.0 - recorder_.busy() / recorder_.span() : 0.0;
  double loss = 0;
  for (double one : pipeline_->losses()) loss += one;
  return loss;
}

StepResult Trainer::step(std::span<const Batch> batches, double lr) {
  const auto begin = std::chrono::steady_clock::now();
  StepResult result;
  int64_t valid = 0;
  for (const Batch& batch : batches) {
    check_batch(*graph_, batch);
    valid += valid_tokens(*graph_, batch);
    result.tokens += batch.sequences * batch.length;
  }
  if (valid == 0) throw ConfigError("every target of the batch is masked: there is nothing to learn from");
  double loss = 0;
  for (size_t i = 0; i < batches.size(); ++i) loss += run_batch(batches[i], 1.0 / double(valid), i > 0);
  reduce_gradients();
  tied_gradients_->sum(pipeline_->stream());
  // The loss adds up over all ranks but tensor-parallel ones, which have the same; the norm over the stages of one data-parallel rank (they
  // are equal on the others).
  double figures[2] = {mesh_.place().tensor == 0 ? loss : 0.0, mesh_.place().data == 0 ? squared_norm() : 0.0};
  mesh_.world().allreduce_values(std::span(figures));
  result.loss = figures[0] / double(valid);
  result.grad_norm = std::sqrt(figures[1]);
  double scale = 1.0;
  if (options_.grad_clip > 0) scale = std::min(1.0, options_.grad_clip / (result.grad_norm + 1e-6));  // as torch.nn.utils.clip_grad_norm_
  optimizer_->step(pipeline_->stream(), lr, scale);
  pipeline_->stream().wait();
  result.step = optimizer_->steps();
  result.lr = lr;
  result.idle_share = idle_;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void Trainer::reduce_gradients() {
  if (options_.parallel.data == 1) return;
  std::vector<comm::Pending> pending;
  for (int stage : model_->stages()) {
    const ParameterStore& parameters = model_->parameters(stage);
    pending.push_back(mesh_.data().allreduce(parameters.gradients(), parameters.count(), ops::Type::f32, pipeline_->stream()));
  }
  for (auto& one : pending) one.wait();
}

double Trainer::squared_norm() {
  ops::Stream& stream = pipeline_->stream();
  double total = 0;
  for (int stage : model_->stages()) {
    const ParameterStore& parameters = model_->parameters(stage);
    // Ranges that this stage owns: a tied copy elsewhere counts once, and so does what all tensor-parallel ranks have.
    const auto counts = [&](const ParameterRange& range) {
      return model_->owner(range.id) == stage && (mesh_.place().tensor == 0 || graph_->parameters()[static_cast<size_t>(range.id)].placement.is_split());
    };
    for (size_t i = 0; i < parameters.ranges().size();) {
      size_t j = i;
      while (j < parameters.ranges().size() && counts(parameters.ranges()[j])) ++j;
      if (j > i) {
        const auto &first = parameters.ranges()[i], &last = parameters.ranges()[j - 1];
        const size_t count = last.offset + last.count - first.offset;
        float* result = scratch_.as<float>();
        ops::sum_squares(stream, parameters.gradients() + first.offset, result, static_cast<int64_t>(count), scratch_.at(ops::buffer_alignment));
        float host = 0;
        stream.copy(&host, result, sizeof(float));
        stream.wait();
        total += host;
      }
      i = j + 1;
    }
  }
  return total;
}

}  // namespace ppengine::engine
