// ppengine train: trains a model over a pipeline of ranks.
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/runs/checkpoint.hpp>

#include "commands.hpp"
#include "plural.hpp"
#include "progress.hpp"
#include "resume.hpp"
#include "run_flags.hpp"
#include "stage_list.hpp"
#include "timeline_files.hpp"
#include "within.hpp"

namespace ppengine::cli {
namespace {

std::atomic<int> interrupts{0};
std::atomic<unsigned> grace_seconds{60};
void end_at_once(int) { std::_Exit(static_cast<int>(ExitCode::interrupted)); }
void on_interrupt(int signal) {
  if (++interrupts > 1) end_at_once(signal);
  alarm(grace_seconds);  // for the step that is under way
}

struct TrainFlags {
  runs::TrainingOptions options;
  ParallelFlags parallel;
  DataFlags data;
  GradientFlags gradients;
  ProgramFlags program;
  double lr = 1e-3;
  std::string lr_schedule = "constant", optimizer = "adamw", dropout = "off", on_nan = "stop";
  std::vector<double> betas{0.9, 0.999};
  std::string trace, timeline;
  unsigned grace = 60;
  bool no_decay_1d = false, json = false;

  void add(CLI::App& command);
  void run(CLI::App& command);
  void survive_losses();
};

// Prints steps as JSON lines, or as a progress line with a summary at the end.
class Reporter final : public runs::TrainingListener {
 public:
  explicit Reporter(bool json) : json_(json) {}

  void started(const runs::RunInfo& info) override {
    info_ = info;
    begin_ = std::chrono::steady_clock::now();
    if (json_) return;
    progress_.note(fmt::format("{:.1f} M parameters, {} on {}, {}, {} of {} a step, on {}", double(info.parameters) / 1e6,
                               plural(info.stages, "stage"), plural(info.ranks, "rank"),
                               plural(info.microbatches, "microbatch", "microbatches"), plural(info.batch_size, "sequence"),
                               plural(info.sequence_length, "token"), info.device));
    progress_.note(stages_text(info.stage_places));
  }

  void stepped(const engine::StepResult& result, std::size_t peak_bytes) override {
    if (json_) {
      nlohmann::json line{{"step", result.step},     {"loss", result.loss},       {"grad_norm", result.grad_norm},  {"lr", result.lr},
                          {"tokens", result.tokens}, {"seconds", result.seconds}, {"idle_share", result.idle_share}};
      if (result.skipped) line["skipped"] = true;
      if (result.step == info_.first_step) line["stages"] = stages_json(info_.stage_places);
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
      return;
    }
    if (result.skipped)
      progress_.note(fmt::format("step {}: loss {}, norm {}: the update is left out", result.step, result.loss, result.grad_norm));
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const auto done = result.step - info_.first_step + 1, left = info_.steps - result.step;
    progress_.show(
        fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  idle {:.1f} %  {:.0f} MiB  {} left", result.step,
                    info_.steps, result.loss, result.grad_norm, result.lr, double(result.tokens) / result.seconds, 100 * result.idle_share,
                    double(peak_bytes) / (1 << 20), duration_text(elapsed / double(done) * double(left))),
        left == 0);
  }

  void evaluated(std::int64_t step, double loss) override {
    evaluated_ = {step, loss};
    if (json_)
      fmt::print("{}\n", nlohmann::json{{"step", step}, {"eval_loss", loss}}.dump());
    else
      progress_.note(fmt::format("step {}: evaluation loss {:.4f}", step, loss));
  }

  void saved(const std::string& folder, std::int64_t step) override {
    saved_in_ = folder;
    if (!json_) progress_.note(fmt::format("step {}: saved to {}", step, folder));
  }

  bool stop_requested() override { return interrupts > 0; }
  void stopping() override { alarm(0); }

  std::int64_t first_step() const { return info_.first_step; }
  void finish(const runs::TrainingResult& result) {
    if (json_) return;
    if (result.last.step == 0 && !result.interrupted)
      return fmt::print("nothing to do: step {} is reached already, and --steps is {}; give a larger one to go on\n", info_.first_step - 1,
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
    fmt::print("{}\n", text);
  }

 private:
  bool json_;
  runs::RunInfo info_;
  std::pair<std::int64_t, double> evaluated_{0, 0.0};  // step and loss of the last evaluation
  std::string saved_in_;
  Progress progress_;
  std::chrono::steady_clock::time_point begin_;
};

void TrainFlags::add(CLI::App& command) {
  command
      .add_option("--model", options.model,
                  "Model folder (Hugging Face's layout), or a preset: demo, tiny, mid, gpt2 are shapes with random weights to measure "
                  "with (gpt2: 162 M parameters with a head of its own, 256 positions)")
      ->type_name("DIR|PRESET");
  data.add(command, true);
  parallel.add(command, Use::training);
  gradients.add(command);
  program.add(command, true);
  const char* group = "Training";
  command.add_option("--steps", options.steps, "Steps up to which to train (default 100)")->check(CLI::Range(1L, 1L << 40))->group(group);
  command.add_option("--lr", lr, "Learning rate at its peak (default 0.001)")->check(within(0.0, 1e3))->group(group);
  command.add_option("--lr-schedule", lr_schedule, "constant or cosine")->check(CLI::IsMember({"constant", "cosine"}))->group(group);
  command.add_option("--warmup", options.lr.warmup, "Steps in which the learning rate rises")
      ->check(CLI::Range(0L, 1L << 40))
      ->group(group);
  command.add_option("--optimizer", optimizer, "adamw or sgd")->check(CLI::IsMember({"adamw", "sgd"}))->group(group);
  command.add_option("--weight-decay", options.trainer.optimizer.weight_decay, "Weight decay (default 0.01)")
      ->check(within(0.0, 1e3))
      ->group(group);
  command.add_flag("--no-decay-1d", no_decay_1d, "Spare norms and biases from weight decay")->group(group);
  command.add_option("--betas", betas, "AdamW's decay rates (default 0.9,0.999)")
      ->delimiter(',')
      ->expected(2)
      ->check(within(0.0, 0.9999999))
      ->group(group);
  command.add_option("--eps", options.trainer.optimizer.epsilon, "AdamW's epsilon (default 1e-8)")->check(within(0.0, 1.0))->group(group);
  command.add_option("--momentum", options.trainer.optimizer.momentum, "SGD's momentum (default 0)")->check(within(0.0, 1.0))->group(group);
  command.add_option("--grad-clip", options.trainer.grad_clip, "Largest gradient norm; 0: no clipping (default)")
      ->check(within(0.0, 1e9))
      ->group(group);
  command.add_option("--accumulate", options.accumulate, "Batches whose gradients make one update (default 1)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command.add_flag("--recompute", options.trainer.recompute, "Keep blocks' inputs only and compute the rest again: less memory, more time")
      ->group(group);
  command.add_option("--dropout", dropout, "model: as config.json says; off (default)")
      ->check(CLI::IsMember({"model", "off"}))
      ->group(group);
  auto* save =
      command.add_option("--save", options.save, "Folder for the checkpoint: at the end, when interrupted, and every --save-every steps")
          ->type_name("DIR")
          ->group(group);
  command.add_option("--save-every", options.save_every, "Steps between checkpoints")
      ->check(CLI::Range(1L, 1L << 40))
      ->needs(save)
      ->group(group);
  command
      .add_option("--resume", options.resume,
                  "Checkpoint to go on from: with the data and settings that it was made with, unless flags say otherwise")
      ->type_name("DIR")
      ->group(group);
  command
      .add_option(
          "--grace", grace,
          "Seconds that a step may still take after SIGINT or SIGTERM; then, or at a second signal, the run ends at once (default 60)")
      ->check(CLI::Range(1u, 1u << 20))
      ->group(group);
  command
      .add_option(
          "--on-nan", on_nan,
          "When the loss or the gradients are not finite: stop (default) names the module, skip leaves the update out, ignore goes on")
      ->check(CLI::IsMember({"stop", "skip", "ignore"}))
      ->group(group);
  command.add_option("--check-every", options.check_every, "Steps between comparisons of the data-parallel copies' parameters")
      ->check(CLI::Range(1L, 1L << 40))
      ->group(group);
  auto* eval_data = command.add_option("--eval-data", options.eval_data, "Data to evaluate on between steps and at the end")
                        ->type_name("DATA")
                        ->group(group);
  command.add_option("--eval-every", options.eval_every, "Steps between evaluations")
      ->check(CLI::Range(1L, 1L << 40))
      ->needs(eval_data)
      ->group(group);
  command.add_option("--trace", trace, "Write what every rank did in all steps, for ui.perfetto.dev")->type_name("FILE")->group(group);
  command.add_option("--timeline", timeline, "Write a page with the last step as measured and as simulated, and draw it in the terminal")
      ->type_name("FILE.html")
      ->group(group);
  command.add_flag("--json", json, "One JSON object per step on stdout")->group(group);
}

// Where a run goes on after it has lost a rank: at the checkpoint that it has saved last, or where it began.
void TrainFlags::survive_losses() {
  if (const char* folder = std::getenv("PPENGINE_RESTART_FROM")) options.resume = folder;
  parallel.when_lost = [this]() -> std::string {
    for (const std::string& folder : {options.save, options.resume})
      if (const auto saved = runs::find_checkpoint(folder); saved && !folder.empty())
        return fmt::format("the last checkpoint is of step {}: go on with --resume {}", saved->step, folder);
    return options.save.empty() ? "no checkpoint was asked for (--save)" : "no checkpoint was saved yet";
  };
  const auto before = runs::find_checkpoint(options.save);
  parallel.before_restart = [this, mark = before ? before->mark : std::string()]() -> std::map<std::string, std::string> {
    const auto saved = runs::find_checkpoint(options.save);
    if (!saved || saved->mark == mark) return {};  // one that was there before this run is not its own
    log::warning(fmt::format("going on from the checkpoint of step {} in {}", saved->step, options.save));
    return {{"PPENGINE_RESTART_FROM", options.save}};
  };
}

void TrainFlags::run(CLI::App& command) {
  options.settings = settings_of(command);
  if (!options.resume.empty()) warn_of_differences(command, options.resume);
  survive_losses();
  if (options.model.empty()) options.model = options.resume;
  if (options.model.empty()) throw ConfigError("--model is required: a folder, or demo, tiny, mid or gpt2");
  options.data = data.get();
  options.trainer.parallel = parallel.options(options.data.batch_size);
  options.trainer.optimizer.kind = engine::parse_optimizer(optimizer);
  options.trainer.optimizer.beta1 = betas[0];
  options.trainer.optimizer.beta2 = betas[1];
  options.trainer.optimizer.decay_1d = !no_decay_1d;
  options.trainer.seed = options.data.seed;
  options.trainer.on_nan = engine::parse_on_nan(on_nan);
  gradients.apply(options.trainer);
  options.program = program.choice;
  options.lr.shape = engine::parse_lr_schedule(lr_schedule);
  options.lr.peak = lr;
  options.lr.steps = options.steps;
  options.dropout = dropout == "model";
  options.record = !trace.empty();
  for (const std::string& file : {trace, timeline}) check_writable(file);
  if (!parallel.starts_processes()) {  // who starts ranks has nothing to save: it passes signals on as soon as there are any
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    std::signal(SIGALRM, end_at_once);
    grace_seconds = grace;
  }
  Reporter reporter(json);
  runs::TrainingResult result;
  const bool prints = parallel.run(options.trainer.parallel, [&](comm::Communicator& world) {
    runs::TrainingResult mine = runs::run_training(options, world, reporter);
    if (world.rank() == 0) result = std::move(mine);
  });
  if (!prints) return;
  reporter.finish(result);
  if (!trace.empty() || !timeline.empty()) {
    const TimelineFiles files(result, parallel.dp * parallel.tp, options.trainer.parallel.schedule);
    if (!trace.empty()) files.write_trace(trace, reporter.first_step());
    if (!timeline.empty()) files.write_page(timeline);
    if (!timeline.empty() && !json) files.print();
  }
  if (result.interrupted) throw CLI::RuntimeError(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

void add_train(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Train a model split into stages over ranks");
  auto flags = std::make_shared<TrainFlags>();
  flags->add(*command);
  command->footer(
      "Examples:\n"
      "  ppengine train --model tiny --data task:addition --steps 200 --lr 3e-3\n"
      "  ppengine train --model tiny --data synthetic --pp 2 --schedule interleavedzerobubble --stages 4 --microbatches 8 --json\n"
      "  ppengine train --model my-gpt2/ --data tokens.npy --pp 2 --dp 2 --batch-size 16 --save out/ --save-every 100\n"
      "  ppengine train --model tiny --data synthetic --pp 2 --launch processes\n"
      "  ppengine train --model tiny --data synthetic --dp 2 --shard --launch processes\n"
      "  ppengine train --model tiny --data synthetic --pp 2 --steps 10 --timeline steps.html --trace steps.json");
  command->callback([flags, command] { flags->run(*command); });
}

}  // namespace ppengine::cli
