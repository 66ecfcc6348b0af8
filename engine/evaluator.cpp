// Forward passes of one rank over batches of any size.
#include <ppengine/engine/evaluator.hpp>

#include <algorithm>

#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/stage/host_output.hpp>

namespace ppengine::engine {

Evaluator::Evaluator(ModelRank& model, const ParallelOptions& options, const comm::Mesh& mesh, bool output)
    : model_(model), options_(options), mesh_(mesh), output_(output), host_(std::make_unique<HostOutput>(model.device(), model.memory())) {}

Evaluator::~Evaluator() = default;

Pipeline& Evaluator::pipeline_for(int microbatches) {
  auto& pipeline = pipelines_[microbatches];
  if (!pipeline) {
    ParallelOptions options = options_;
    options.plan.reset();
    options.microbatches = microbatches;
    pipeline = std::make_unique<Pipeline>(model_, make_plan(options, true, model_.stage_rank().items()),
                                          PipelineOptions{.peers = &mesh_.pipeline(), .tensor = &mesh_.tensor()});
  }
  return *pipeline;
}

Evaluator::Result Evaluator::run(const Batch& batch) {
  check_batch(model_.graph(), batch);
  // Data-parallel ranks get shares that differ by one sequence at most; one without any has nothing to do.
  const std::int64_t ranks = options_.data, share = batch.sequences / ranks, more = batch.sequences % ranks, rank = mesh_.place().data;
  const std::int64_t begin = rank * share + std::min(rank, more), mine = share + (rank < more ? 1 : 0);
  double loss = 0;
  // Sharded ranks gather stages together: they follow one plan, and one without data shadows it.
  const std::int64_t least = model_.sharding() ? std::max<std::int64_t>(share, 1) : mine;
  if (mine == 0 && model_.sharding()) pipeline_for(1).shadow(nullptr);
  if (mine > 0) {
    Pipeline& pipeline = pipeline_for(static_cast<int>(std::min<std::int64_t>(options_.microbatches, least)));
    StepInputs inputs;
    inputs.batch = &batch;
    inputs.output = output_ ? Output::all : Output::none;
    inputs.microbatches =
        output_ ? split_batch(begin, mine, pipeline.plan().microbatches) : split_batch(batch, begin, mine, pipeline.plan().microbatches);
    pipeline.on_output = [&](int microbatch, const ops::Tensor& output, ops::Stream& stream) {
      if (!on_output || mesh_.place().tensor != 0) return;
      on_output(inputs.microbatches[static_cast<std::size_t>(microbatch)].begin, output.shape[0], host_->read(output, stream));
    };
    pipeline.set_profile(profile_);
    pipeline.run(inputs);
    pipeline.set_profile(nullptr);
    pipeline.on_output = nullptr;
    for (double one : pipeline.losses()) loss += one;
  }
  return {mesh_.world().allreduce_value(mesh_.place().tensor == 0 ? loss : 0.0), valid_tokens(model_.graph(), batch)};
}

}  // namespace ppengine::engine
