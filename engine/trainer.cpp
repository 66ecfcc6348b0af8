// Trainer: what is set up before the first step.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/tensor_parallel.hpp>
#include <ppengine/engine/graph/verify.hpp>
#include <ppengine/engine/stage/plan_memory.hpp>
#include <ppengine/engine/stage/readiness.hpp>
#include <ppengine/engine/trainer_impl.hpp>

namespace ppengine::engine {
namespace {

void refuse_unused(const Graph& graph, const std::vector<StageCut>& cuts) {
  std::vector<std::string> names;
  for (const StageCut& cut : cuts)
    for (ParameterId id : gradient_order(graph, cut).unused) names.push_back(graph.parameters()[id].name);
  if (!names.empty())
    throw ConfigError(fmt::format("the loss does not depend on {}: remove them, or allow unused parameters", fmt::join(names, ", ")));
}

}  // namespace

Trainer::Impl::Impl(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, std::int64_t batch_size,
                    std::int64_t length)
    : options_(options), mesh_(world, options_.parallel.mesh()), graph_(std::move(graph)) {
  const ParallelOptions& parallel = options_.parallel;
  if (options_.verify && world.size() > 1) check_settings(batch_size, length);
  graph_ = shard_graph(graph_, mesh_.place().tensor, parallel.tensor, parallel.sequence_parallel);
  if (!graph_->loss_value()) throw ConfigError("the model has no loss: call Graph::loss before training");
  if (batch_size % parallel.data != 0 && !options_.uneven_shares)
    throw ConfigError(fmt::format("--batch-size {} cannot be divided over --dp {} ranks: use a multiple of {}", batch_size, parallel.data,
                                  parallel.data));
  if (options_.optimizer_in_backward && options_.grad_clip > 0)
    throw ConfigError("clipping needs the norm of all gradients before the first update: use --grad-clip 0, or no updates in the backward");
  if (options_.before_update && options_.optimizer_in_backward)
    throw ConfigError("--elastic: updates in the backward cannot be taken back when a rank is lost");
  if (options_.on_nan == OnNan::skip && options_.optimizer_in_backward)
    throw ConfigError("an update that may be left out cannot happen in the backward: use --on-nan stop, or no updates in the backward");

  schedules::Plan plan = make_plan(parallel, /*inference=*/false);
  const Stretch mine = part_of(batch_size);
  split_batch(0, batch_size / parallel.data, plan.microbatches);  // refuses what cannot be split, before anything is built
  const std::int64_t sequences = (batch_size / parallel.data + plan.microbatches - 1) / plan.microbatches;
  auto cuts = make_cuts(*graph_, parallel, plan.stages, sequences, length, &world);
  if (!options_.allow_unused) refuse_unused(*graph_, cuts);

  const auto device = parallel.device_of(world);
  ModelRank::Options how{parallel.type, true, options_.buckets, {}};
  if (parallel.sharded()) {
    const ActiveCount active = count_active(plan, mesh_.place().pipeline);
    how.sharding = ShardingOptions{&mesh_.data(), active.gathered, active.gradients, parallel.always_gather};
  }
  model_ = std::make_unique<ModelRank>(graph_, std::move(cuts), plan.stage_rank, mesh_.place().pipeline, device, how);
  if (options_.shared_statistics && parallel.data > 1) statistics_ = mesh_.data().split(0, mesh_.data().rank());
  pipeline_ = std::make_unique<Pipeline>(
      *model_, std::move(plan),
      PipelineOptions{
          .compile = {.recompute = options_.recompute}, .peers = &mesh_.pipeline(), .tensor = &mesh_.tensor(), .data = statistics_.get()});
  evaluator_ = std::make_unique<Evaluator>(*model_, parallel, mesh_);
  optimizer_ = std::make_unique<Optimizer>(*model_, options_.optimizer, &mesh_.tensor());
  if (optimizer_->meets_ranks() && options_.optimizer_in_backward)
    throw ConfigError(fmt::format("--optimizer {} gathers matrices over ranks: it does not go with updates in the backward",
                                  name_of(options_.optimizer.kind)));
  tied_gradients_ = std::make_unique<TiedGradients>(*model_, mesh_.pipeline());
  norm_ = std::make_unique<GradientNorm>(*model_, mesh_.place().tensor);
  if (parallel.data > 1 || options_.optimizer_in_backward) make_reducer();
  for (StageId stage : model_->stages()) model_->parameters(stage).initialize(pipeline_->stream(), options_.seed);
  pipeline_->stream().wait();
  synchronize();
  pipeline_->prepare(split_batch(0, mine.count, pipeline_->plan().microbatches), length);
}

void Trainer::Impl::check_settings(std::int64_t batch_size, std::int64_t length) const {
  const ParallelOptions& parallel = options_.parallel;
  verify_same_model(mesh_.world(), *graph_,
                    {{"batch size", std::to_string(batch_size)},
                     {"sequence length", std::to_string(length)},
                     {"microbatches", std::to_string(parallel.microbatches)},
                     {"schedule", parallel.plan ? "a plan of its own" : parallel.schedule},
                     {"sharding", parallel.shard ? "on" : "off"},
                     {"gradient hook", options_.own_hook ? options_.own_hook->name() : options_.hook.name},
                     {"bucket sizes", fmt::format("{}", fmt::join(options_.buckets.effective(), ","))},
                     {"updates in the backward", options_.optimizer_in_backward ? "on" : "off"},
                     {"seed", std::to_string(options_.seed)}});
}

void Trainer::Impl::make_reducer() {
  Reducer::Options how;
  if (options_.parallel.data > 1) {
    reducing_ = mesh_.data().split(0, mesh_.data().rank());
    how.data = reducing_.get();
    how.hook = options_.own_hook ? options_.own_hook : make_hook(options_.hook);
  }
  if (options_.optimizer_in_backward)
    how.reduced = [this](StageId stage, std::size_t bucket, ops::Stream& stream) {
      optimizer_->update(stream, stage, bucket, lr_, scale_);
    };
  reducer_ = std::make_unique<Reducer>(*model_, *norm_, std::move(how));
}

void Trainer::Impl::synchronize() {
  if (options_.parallel.data == 1 || !options_.broadcast || model_->sharding()) return;
  std::vector<comm::Pending> pending;
  for (StageId stage : model_->stages()) {
    const ParameterStore& parameters = model_->parameters(stage);
    pending.push_back(mesh_.data().broadcast(parameters.values(), parameters.value_count() * sizeof(float), 0, pipeline_->stream()));
  }
  for (const comm::Pending& one : pending) one.wait();
  for (StageId stage : model_->stages()) model_->parameters(stage).refresh(pipeline_->stream());
  pipeline_->stream().wait();
}

const std::vector<TimedReduction>& Trainer::Impl::reductions() const {
  static const std::vector<TimedReduction> none;
  return reducer_ ? reducer_->timings() : none;
}

// What programs see.

Trainer::Trainer(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, std::int64_t batch_size,
                 std::int64_t length)
    : impl_(std::make_unique<Impl>(std::move(graph), options, world, batch_size, length)) {}

Trainer::~Trainer() = default;

StepResult Trainer::step(std::span<const Batch> batches, double lr) { return impl_->step(batches, lr); }
void Trainer::accumulate(const Batch& batch) { impl_->accumulate(batch); }
std::optional<StepResult> Trainer::step_own(const Batch* mine, double lr, Uneven uneven) { return impl_->step_own(mine, lr, uneven); }
bool Trainer::ready_to_update() const { return impl_->ready_to_update_; }
void Trainer::finish_update(double grad_norm) { impl_->finish_update(grad_norm); }
void Trainer::synchronize() { impl_->synchronize(); }
void Trainer::check_replicas() { impl_->check_replicas(); }
Evaluator& Trainer::evaluator() { return *impl_->evaluator_; }
ModelRank& Trainer::model() { return *impl_->model_; }
Optimizer& Trainer::optimizer() { return *impl_->optimizer_; }
const schedules::Plan& Trainer::plan() const { return impl_->pipeline_->plan(); }
const comm::Mesh& Trainer::mesh() const { return impl_->mesh_; }
Pipeline& Trainer::pipeline() { return *impl_->pipeline_; }
const std::vector<TimedAction>& Trainer::timeline() const { return impl_->recorder_.actions(); }
double Trainer::busy_seconds() const { return impl_->recorder_.busy(); }

const std::vector<TimedReduction>& Trainer::reductions() const { return impl_->reductions(); }

const float* Trainer::whole(StageId stage, const float* local) {
  Sharding* const sharding = impl_->model_->sharding();
  return sharding ? sharding->gather(stage, local, impl_->pipeline_->stream()) : local;
}

}  // namespace ppengine::engine
