// What a training run prints.
#include "output/train_reporter.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <ppengine/base/log.hpp>

#include "output/plural.hpp"
#include "output/results.hpp"
#include "output/stage_list.hpp"

namespace ppengine::cli {
namespace {

std::string count_text(std::int64_t parameters) {
  if (parameters < 1000) return plural(parameters, "parameter");
  return parameters < 1'000'000 ? fmt::format("{:.1f} K parameters", double(parameters) / 1e3)
                                : fmt::format("{:.1f} M parameters", double(parameters) / 1e6);
}

// Samples of a program have no length of their own.
std::string batch_text(const runs::RunInfo& info) {
  if (info.sequence_length == 1) return plural(info.batch_size, "sample");
  return fmt::format("{} of {}", plural(info.batch_size, "sequence"), plural(info.sequence_length, "token"));
}

}  // namespace

void TrainReporter::started(const runs::RunInfo& info) {
  info_ = info;
  begin_ = std::chrono::steady_clock::now();
  if (!tensorboard_.empty()) events_.emplace(tensorboard_);
  if (dashboard_) dashboard_->started(info);
  if (json_) return;
  progress_.note(fmt::format("{}, {} on {}, {}, {} a step, on {}", count_text(info.parameters), plural(info.stages, "stage"),
                             plural(info.ranks, "rank"), plural(info.microbatches, "microbatch", "microbatches"), batch_text(info),
                             info.device));
  if (info.trained < info.parameters)
    progress_.note(fmt::format("{} of {} parameters are trained ({:.2f} %)", info.trained, info.parameters,
                               100.0 * double(info.trained) / double(info.parameters)));
  progress_.note(stages_text(info.stage_places));
}

void TrainReporter::stepped(const engine::StepResult& result, std::size_t peak_bytes) {
  if (events_)
    events_->write(result.step, {{"train/loss", result.loss},
                                 {"train/grad_norm", result.grad_norm},
                                 {"train/learning_rate", result.lr},
                                 {"speed/tokens_per_second", double(result.tokens) / result.seconds},
                                 {"speed/idle_share", result.idle_share},
                                 {"memory/peak_bytes", double(peak_bytes)}});
  if (dashboard_) dashboard_->stepped(result);
  if (json_) {
    nlohmann::json line{{"step", result.step},     {"loss", result.loss},       {"grad_norm", result.grad_norm},  {"lr", result.lr},
                        {"tokens", result.tokens}, {"seconds", result.seconds}, {"idle_share", result.idle_share}};
    if (result.skipped) line["skipped"] = true;
    if (result.step == info_.first_step) line["stages"] = stages_json(info_.stage_places);
    return print_result_line(line.dump());
  }
  if (result.skipped)
    progress_.note(fmt::format("step {}: loss {}, norm {}: the update is left out", result.step, result.loss, result.grad_norm));
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const auto done = result.step - info_.first_step + 1, left = info_.steps - result.step;
  progress_.show(fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  idle {:.1f} %  {:.0f} MiB  {} left",
                             result.step, info_.steps, result.loss, result.grad_norm, result.lr, double(result.tokens) / result.seconds,
                             100 * result.idle_share, double(peak_bytes) / (1 << 20), duration_text(elapsed / double(done) * double(left))),
                 left == 0);
}

void TrainReporter::evaluated(std::int64_t step, double loss) {
  evaluated_ = {step, loss};
  if (events_) events_->write(step, {{"eval/loss", loss}});
  if (dashboard_) dashboard_->evaluated(step, loss);
  if (json_)
    print_result_line(nlohmann::json{{"step", step}, {"eval_loss", loss}}.dump());
  else
    progress_.note(fmt::format("step {}: evaluation loss {:.4f}", step, loss));
}

void TrainReporter::saved(const std::string& folder, std::int64_t step) {
  if (!folder.ends_with(".best")) saved_in_ = folder;
  if (!json_) progress_.note(fmt::format("step {}: saved to {}", step, folder));
}

void TrainReporter::planned(const runs::DryRun& run) {
  if (json_) {
    print_result("{}\n", nlohmann::json{{"dry_run", true},
                                        {"stages", stages_json(info_.stage_places)},
                                        {"parameters", info_.parameters},
                                        {"trained", info_.trained},
                                        {"memory_bytes", run.memory_bytes},
                                        {"steps", run.steps},
                                        {"tokens", run.tokens},
                                        {"step_seconds", run.step_seconds},
                                        {"seconds", run.seconds}}
                             .dump());
    return;
  }
  std::string memory;
  for (std::size_t bytes : run.memory_bytes) memory += fmt::format("{}{:.0f}", memory.empty() ? "" : " + ", double(bytes) / (1 << 20));
  progress_.note(fmt::format("dry run: {} steps of {:.3f} s, {} in all; {} tokens; {} MiB on the ranks; no weights were loaded", run.steps,
                             run.step_seconds, duration_text(run.seconds), run.tokens, memory));
}

void TrainReporter::noticed(const std::string& text) {
  if (dashboard_) dashboard_->noticed(text);
  if (json_)
    log::warning(text);
  else
    progress_.note(text);
}

void TrainReporter::stopping() { alarm(0); }

void TrainReporter::finish(const runs::TrainingResult& result) {
  if (dashboard_) dashboard_->write(result, false);
  if (json_) return;
  if (result.last.step == 0 && !result.interrupted)
    return print_result("nothing to do: step {} is reached already, and --steps is {}; give a larger one to go on\n", info_.first_step - 1,
                        info_.steps);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  std::string memory;
  for (std::size_t bytes : result.peak_bytes) memory += fmt::format("{}{:.0f}", memory.empty() ? "" : " + ", double(bytes) / (1 << 20));
  // The result, on stdout; what came before it was progress.
  std::string text = fmt::format("{} at step {} after {}: loss {:.4f}", result.interrupted ? "interrupted" : "done", result.last.step,
                                 duration_text(elapsed), result.last.loss);
  if (evaluated_.first == result.last.step) text += fmt::format(", evaluation loss {:.4f}", evaluated_.second);
  text += fmt::format(", peak memory {} MiB", memory);
  if (!saved_in_.empty()) text += fmt::format(", saved to {}", saved_in_);
  progress_.finish();
  print_result_line(text);
}

}  // namespace ppengine::cli
