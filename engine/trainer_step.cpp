// Trainer: steps.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/trainer_impl.hpp>

namespace ppengine::engine {

Trainer::Impl::Share Trainer::Impl::share_of(const Batch& batch) const {
  const Stretch mine = part_of(batch.sequences);
  return {&batch, mine.begin, mine.count, 0};
}

Stretch Trainer::Impl::part_of(std::int64_t sequences) const { return stretch_of(sequences, mesh_.place().data, options_.parallel.data); }

// Gradients add up where they are until the last batch of an update. Where sharding has no room for whole ones they are reduced with every
// batch, and the parts add up.
double Trainer::Impl::run_share(const Share& share, double weight, bool last) {
  const bool parts = model_->keeps_gradient_parts(), first = held_.batches++ == 0;
  GradientSink* const sink = reducer_ && (last || parts) ? reducer_.get() : nullptr;
  if (reducer_) {
    if (first || parts) reducer_->rows().clear();
    if (share.batch) reducer_->rows().add(*share.batch, share.begin, share.count);
  }
  if (sink) reducer_->begin(parts && !first, last);
  double loss = 0;
  recorder_.clear();
  if (share.batch) {
    StepInputs inputs;
    inputs.batch = share.batch;
    inputs.microbatches = split_batch(*share.batch, share.begin, share.count, pipeline_->plan().microbatches);
    inputs.loss_weight = static_cast<float>(weight);
    inputs.dropout_key = key_ + share.salt;
    inputs.accumulate = !first && !parts;
    inputs.sink = sink;
    pipeline_->run(inputs, &recorder_);
    for (double one : pipeline_->losses()) loss += one;
  } else {
    pipeline_->shadow(sink, first || parts);
  }
  if (sink) reducer_->finish();
  idle_ = recorder_.span() > 0 ? 1.0 - recorder_.busy() / recorder_.span() : 0.0;
  return loss;
}

void Trainer::Impl::fail(const std::exception& error) {
  if (reducer_) reducer_->cancel(error.what());
}

void Trainer::Impl::accumulate(const Batch& batch) {
  check_batch(*graph_, batch);
  const std::int64_t valid = valid_tokens(*graph_, batch);
  if (held_.batches == 0) {
    key_ = mix(options_.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(optimizer_->steps()) + 1);
    held_.weight = 1.0 / double(std::max<std::int64_t>(valid, 1));
  }
  held_.valid += valid;
  held_.tokens += batch.tokens();
  try {
    held_.loss += run_share(share_of(batch), held_.weight, false);
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
}

StepResult Trainer::Impl::step(std::span<const Batch> batches, double lr) {
  std::int64_t valid = 0;
  std::vector<Share> shares;
  for (const Batch& batch : batches) {
    check_batch(*graph_, batch);
    valid += valid_tokens(*graph_, batch);
    shares.push_back(share_of(batch));
    held_.tokens += batch.tokens();
  }
  return update(shares, valid, 1.0, lr, true);
}

std::optional<StepResult> Trainer::Impl::step_own(const Batch* mine, double lr, Uneven uneven) {
  if (mine) check_batch(*graph_, *mine);
  const comm::Communicator& data = mesh_.data();
  // Every copy of the model says what it has: sequences, valid tokens, tokens.
  const std::vector<std::int64_t> figures{mine ? 1 : 0, mine ? valid_tokens(*graph_, *mine) : 0, mine ? mine->tokens() : 0};
  const auto all = comm::gather(mesh_.data(), figures);
  std::int64_t active = 0, valid = 0;
  std::vector<int> without;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<std::int64_t>& theirs = all[rank];
    active += theirs[0];
    valid += theirs[1];
    held_.tokens += theirs[2];
    if (theirs[0] == 0) without.push_back(data.world_rank(static_cast<int>(rank)));
  }
  if (active == 0) return std::nullopt;
  if (uneven == Uneven::stop && !without.empty())
    throw Error(fmt::format("no more data on rank {} at step {}, while others have some: all stop", fmt::join(without, ", "),
                            optimizer_->steps() + 1));
  const double factor = uneven == Uneven::average_all ? double(active) / double(all.size()) : 1.0;
  const Share share{mine, 0, mine ? mine->sequences : 0, static_cast<std::uint64_t>(mesh_.place().data) << 32};
  return update(std::span(&share, 1), valid, factor, lr, false);
}

StepResult Trainer::Impl::update(std::span<const Share> shares, std::int64_t valid, double factor, double lr, bool same_batches) {
  const auto begin = std::chrono::steady_clock::now();
  valid += held_.valid;
  if (valid == 0) throw ConfigError("every target of the batch is masked: there is nothing to learn from");
  // Batches that came before had a weight of their own: the gradients are brought to the right one as they are read.
  const double weight = held_.batches > 0 ? held_.weight : factor / double(valid);
  scale_ = held_.batches > 0 ? factor / double(valid) / held_.weight : 1.0;
  lr_ = lr;
  const std::int64_t number = optimizer_->steps() + 1;
  if (held_.batches == 0) key_ = mix(options_.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(optimizer_->steps()) + 1);
  double loss = held_.loss;
  ready_to_update_ = false;
  if (options_.optimizer_in_backward) optimizer_->begin_step();
  norm_->clear();
  try {
    for (std::size_t i = 0; i < shares.size(); ++i) loss += run_share(shares[i], weight, i + 1 == shares.size());
  } catch (const std::exception& error) {
    fail(error);
    throw;
  }
  tied_gradients_->sum(pipeline_->stream());
  // The loss adds up over all ranks but tensor-parallel ones, which have the same; the norm over the stages of one data-parallel rank (they
  // are equal on the others), or over all where each has a part.
  const bool counts = mesh_.place().data == 0 || model_->sharding();
  // A gradient that is not finite would spoil the weights, in which find_not_finite looks for the cause. What this rank knows costs
  // nothing.
  const bool ignores = options_.on_nan == OnNan::ignore;
  bool finite = ignores || std::isfinite(GradientNorm::total(norm_->squares().items()));
  if (!counts) norm_->clear();
  const bool clips = options_.grad_clip > 0,
             waits = clips || options_.on_nan == OnNan::skip || options_.before_update || optimizer_->meets_ranks();
  if (!waits && !options_.optimizer_in_backward) optimizer_->begin_step();
  // Without clipping or skipping no rank has to wait for the norm, and a bucket's gradients are updated with while they are in the cache.
  for (StageId stage : model_->stages()) {
    const auto& buckets = model_->parameters(stage).buckets();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      if (!buckets[i].reduced()) continue;         // frozen, or unused
      const bool tied = model_->tied(buckets[i]);  // whole only now; the reducer has added, and maybe updated, all others
      if (counts && (!reducer_ || tied)) norm_->add(pipeline_->stream(), stage, i);
      finite = finite && (ignores || std::isfinite(GradientNorm::total(norm_->squares().items())));
      if (!waits && finite && (!options_.optimizer_in_backward || tied)) optimizer_->update(pipeline_->stream(), stage, i, lr, scale_);
    }
  }
  figures_ = norm_->squares().items();
  figures_.push_back(mesh_.place().tensor == 0 ? loss : 0.0);
  ready_to_update_ = waits;
  mesh_.world().allreduce_values(std::span(figures_));
  StepResult result;
  result.loss = figures_.back() / double(valid);
  figures_.pop_back();
  result.grad_norm = std::sqrt(GradientNorm::total(figures_)) * scale_;
  if (!ignores && !(std::isfinite(result.loss) && std::isfinite(result.grad_norm))) {
    if (options_.on_nan == OnNan::stop)
      throw Error(
          fmt::format("step {}: the loss is {} and the norm of the gradients {}; the first that is not finite comes from {}. A "
                      "checkpoint saved before stays. Try a smaller --lr or --grad-clip; --on-nan skip leaves such updates out",
                      number, result.loss, result.grad_norm, find_not_finite(shares, same_batches)));
    result.skipped = true;
  }
  if (options_.before_update) options_.before_update(result.loss, result.grad_norm);
  if (waits && !result.skipped) apply(result.grad_norm);
  pipeline_->stream().wait();
  ready_to_update_ = false;
  result.step = optimizer_->steps();
  result.tokens = held_.tokens;
  result.lr = lr;
  result.idle_share = idle_;
  add_times(result);
  held_ = {};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void Trainer::Impl::apply(double grad_norm) {
  if (options_.grad_clip > 0) scale_ *= std::min(1.0, options_.grad_clip / (grad_norm + 1e-6));  // as torch.nn.utils.clip_grad_norm_
  optimizer_->step(pipeline_->stream(), lr_, scale_);
}

void Trainer::Impl::finish_update(double grad_norm) {
  if (std::isfinite(grad_norm) || options_.on_nan == OnNan::ignore) apply(grad_norm);
  pipeline_->stream().wait();
  ready_to_update_ = false;
}

void Trainer::Impl::add_times(StepResult& result) const {
  double last = 0;
  for (const TimedAction& one : recorder_.actions()) {
    if (!schedules::is_compute(one.action.type)) continue;
    last = std::max(last, one.end);
    if (one.action.type != schedules::ActionType::forward) result.backward += one.end - one.start;
  }
  for (const TimedReduction& one : reductions()) {  // one after the other: they do not overlap each other
    result.communication += one.end - one.start;
    result.overlap += std::max(0.0, std::min(one.end, last) - one.start);
  }
}

}  // namespace ppengine::engine
