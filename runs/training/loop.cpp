// The steps of a training run.
#include <ppengine/runs/training/loop.hpp>

#include <fmt/core.h>

#include <filesystem>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/runs/training/rank_figures.hpp>

namespace ppengine::runs {
namespace {

// A file may be named relative to another folder than it was.
bool same_data(const std::string& before, const std::string& now) {
  std::error_code failed;
  return before == now || (std::filesystem::exists(before, failed) && std::filesystem::equivalent(before, now, failed));
}

}  // namespace

void go_on_in_data(models::DataSampler& sampler, RunState& state, const TrainingOptions& options) {
  if (same_data(state.data, options.data.data))
    sampler.seek(state.position);
  else
    log::warning(fmt::format("{} was trained on {}; {} starts from its beginning", options.resume, state.data, options.data.data));
  state.data = options.data.data;
}

SaveFolders::SaveFolders(const TrainingOptions& options, bool first_rank) : saves_(!options.save.empty() && !options.dry_run) {
  if (!saves_) return;
  if (first_rank) last_lock_.emplace(options.save);
  if (options.eval_every == 0 || options.eval_data.empty()) return;
  best_ = models::save_target(options.save).string() + ".best";
  if (first_rank) best_lock_.emplace(best_);
}

TrainingLoop::TrainingLoop(const TrainingOptions& options, const SaveFolders& folders, TrainingTask& task, TrainingListener& listener,
                           std::int64_t step, Elastic* elastic)
    : options_(options),
      folders_(folders),
      task_(task),
      listener_(listener),
      trainer_(task.trainer()),
      world_(trainer_.mesh().world()),
      elastic_(elastic),
      first_rank_(world_.rank() == 0),
      step_(step),
      batches_(static_cast<std::size_t>(options.accumulate)) {}

void TrainingLoop::tell_start(const Data& data) {
  if (!first_rank_) return;
  const engine::Graph& graph = trainer_.model().graph();
  listener_.started({world_.size(), trainer_.plan().stages, trainer_.plan().microbatches, graph.parameter_count(), graph.trained_count(),
                     data.sequence_length, data.batch_size, data.sequences, data.name, trainer_.model().device()->info().name, step_ + 1,
                     options_.steps, trainer_.model().stage_places()});
}

TrainingResult TrainingLoop::dry_run() {
  for (engine::Batch& batch : batches_) batch = task_.next_batch();
  for (int i = 0; i < 2; ++i) {
    task_.before_step();
    result_.last = trainer_.step(batches_, 0.0);
  }
  gather_ranks(trainer_, result_);
  const double seconds = result_.last.seconds * double(options_.steps);
  if (first_rank_)
    listener_.planned({result_.peak_bytes, options_.steps, result_.last.tokens * options_.steps, result_.last.seconds, seconds});
  return std::move(result_);
}

TrainingResult TrainingLoop::run() {
  try {
    comm::abort_on_error(&world_, [&] { all_steps(); });
    if (elastic_ && result_.regroup)
      elastic_->survive(world_.timeout());
    else if (elastic_)
      elastic_->over();
  } catch (const CommError&) {
    if (elastic_) elastic_->survive(world_.timeout());
    throw;
  } catch (...) {
    if (elastic_) elastic_->release();
    throw;
  }
  return std::move(result_);
}

void TrainingLoop::all_steps() {
  const std::optional<KeptStep> kept = elastic_ ? elastic_->found() : std::nullopt;
  if (kept) best_ = kept->best;
  if (elastic_) elastic_->guard(trainer_, {step_, task_.position(), best_, {}});
  if (kept) finish_lost_step(*kept);
  while (step_ < options_.steps && !result_.interrupted && !result_.regroup) {
    step();
    record_step();
    if (options_.check_every > 0 && step_ % options_.check_every == 0) trainer_.check_replicas();
    tell_step();
    notice();
    show_ranks(trainer_, options_, result_.last, listener_);
    agree_to_stop();
    finish_step();
  }
  if (saved_at_ != step_ && !result_.regroup) save();
  finish_saving();
  if (result_.regroup) return;
  if (!result_.interrupted) evaluate();
  gather_ranks(trainer_, result_);
  result_.timelines = comm::gather(world_, timeline_);
  result_.reductions = comm::gather(world_, reductions_);
}

// What the rank that was lost has left undone.
void TrainingLoop::finish_lost_step(const KeptStep& kept) {
  result_.last = kept.last;
  if (!elastic_->was_told(step_)) tell_step();
  if (!elastic_->was_finished(step_)) finish_step();
}

void TrainingLoop::step() {
  for (engine::Batch& batch : batches_) batch = task_.next_batch();
  if (elastic_) elastic_->begin(task_.position());
  task_.before_step();
  result_.last = trainer_.step(batches_, options_.lr.at(step_ + 1));
  result_.last.step = ++step_;
  if (elastic_) elastic_->completed(result_.last);
}

void TrainingLoop::record_step() {
  if (!options_.record) timeline_.clear(), reductions_.clear();
  reductions_.insert(reductions_.end(), trainer_.reductions().begin(), trainer_.reductions().end());
  timeline_.insert(timeline_.end(), trainer_.timeline().begin(), trainer_.timeline().end());
}

void TrainingLoop::notice() {
  if (const auto notice = watch_.loss(result_.last); notice && first_rank_) listener_.noticed(*notice);
  worked_ += trainer_.busy_seconds();
  if (constexpr std::int64_t between = 20; world_.size() == 1 || step_ % between != 0) return;
  std::vector<double> all;
  for (const auto& one : comm::gather(world_, std::vector<double>{worked_})) all.push_back(one.front());
  if (const auto notice = Watch::ranks(all, step_); notice && first_rank_) listener_.noticed(*notice);
  worked_ = 0;
}

void TrainingLoop::agree_to_stop() {
  const std::int64_t wish = listener_.stop_requested() ? 2 : elastic_ && elastic_->regroup_requested() ? 1 : 0;
  const std::int64_t wanted = world_.allreduce_value(wish, comm::Reduce::max);
  result_.interrupted = wanted == 2;
  result_.regroup = wanted == 1 && step_ < options_.steps;
  if (result_.interrupted) listener_.stopping();
}

void TrainingLoop::tell_step() {
  if (!first_rank_) return;
  listener_.stepped(result_.last, trainer_.model().memory().peak());
  if (elastic_) elastic_->told(step_);
}

void TrainingLoop::finish_step() {
  if (saving_ && saving_->advance()) finish_saving();
  if (options_.eval_every > 0 && step_ % options_.eval_every == 0 && step_ < options_.steps) evaluate();
  if (options_.save_every > 0 && step_ % options_.save_every == 0) save();
  if (elastic_ && first_rank_) elastic_->finished(step_);
}

void TrainingLoop::evaluate() {
  const std::optional<double> loss = task_.evaluate();
  if (!loss) return;
  if (first_rank_) listener_.evaluated(step_, *loss);
  if (folders_.best().empty() || !(*loss < best_)) return;
  best_ = *loss;
  if (elastic_) elastic_->set_best(best_);
  task_.save_best(folders_.best(), step_);
  if (first_rank_) listener_.saved(folders_.best(), step_);
}

void TrainingLoop::save() {
  if (!folders_.saves()) return;
  finish_saving();
  saved_at_ = step_;
  saving_ = task_.save(step_);
  if (!saving_ && first_rank_) listener_.saved(options_.save, step_);
}

void TrainingLoop::finish_saving() {
  if (!saving_) return;
  saving_->finish();
  if (first_rank_) listener_.saved(options_.save, saving_->step());
  saving_.reset();
}

}  // namespace ppengine::runs
