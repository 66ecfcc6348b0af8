// ppengine train: trains a model over a pipeline of ranks.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/launch/stop_signals.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/runs/checkpoint.hpp>

#include "commands.hpp"
#include "elastic.hpp"
#include "flags/resume.hpp"
#include "flags/run_flags.hpp"
#include "flags/within.hpp"
#include "output/results.hpp"
#include "output/timeline_files.hpp"
#include "output/train_reporter.hpp"

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
  WeightFlags weights;
  ElasticFlags elastic;
  double lr = 1e-3;
  std::string lr_schedule = "constant", optimizer = "adamw", dropout = "off", on_nan = "stop", state_type = "f32";
  std::vector<double> betas{0.9, 0.999};
  std::string trace, timeline, tensorboard, dashboard;
  unsigned grace = 60;
  bool no_decay_1d = false, json = false;

  void add(CLI::App& command);
  void add_fine_tuning(CLI::App& command);
  void run(CLI::App& command);
  void survive_losses();
};

void TrainFlags::add(CLI::App& command) {
  command
      .add_option("--model", options.model,
                  "Model folder (Hugging Face's layout), a PyTorch program, or a preset: demo, tiny, mid, gpt2 are shapes with random "
                  "weights to measure "
                  "with (gpt2: 162 M parameters with a head of its own, 256 positions)")
      ->type_name("DIR|FILE.pt2|PRESET");
  data.add(command, true);
  parallel.add(command, Use::training);
  gradients.add(command);
  elastic.add(command);
  program.add(command, true);
  const char* group = "Training";
  command.add_option("--steps", options.steps, "Steps up to which to train (default 100)")->check(CLI::Range(1L, 1L << 40))->group(group);
  command.add_option("--lr", lr, "Learning rate at its peak (default 0.001)")->check(within(0.0, 1e3))->group(group);
  command.add_option("--lr-schedule", lr_schedule, "constant, cosine, or wsd: warm-up, constant, then a straight fall")
      ->check(CLI::IsMember({"constant", "cosine", "wsd"}))
      ->group(group);
  command
      .add_option("--decay-steps", options.lr.decay, "wsd: the last steps, in which the learning rate falls to --min-lr (default: a tenth)")
      ->check(CLI::Range(1L, 1L << 40))
      ->group(group);
  command.add_option("--min-lr", options.lr.minimum, "cosine and wsd: the learning rate at the end (default 0)")
      ->check(within(0.0, 1e3))
      ->group(group);
  command.add_option("--warmup", options.lr.warmup, "Steps in which the learning rate rises")
      ->check(CLI::Range(0L, 1L << 40))
      ->group(group);
  command.add_option("--optimizer", optimizer, "adamw, sgd, adafactor, or muon: for hidden layers' matrices, with adamw for the rest")
      ->check(CLI::IsMember({"adamw", "sgd", "muon", "adafactor"}))
      ->group(group);
  command.add_option("--state-type", state_type, "Type of AdamW's moments: f32 (default) or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->group(group);
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
      .add_option("--grace", grace,
                  "Seconds that a step may still take after SIGINT, SIGTERM or SIGHUP; then, or at a second signal, the run ends at once "
                  "(default 60)")
      ->check(CLI::Range(1u, 1u << 20))
      ->group(group);
  command.add_option("--keep", options.keep, "Checkpoints that stay: the last in DIR, those before in DIR.step-N (default 1)")
      ->check(CLI::Range(1L, 1L << 20))
      ->needs(save)
      ->group(group);
  command
      .add_flag("--save-async", options.save_async, "Train on while a checkpoint is written (a copy of what is saved is held in memory)")
      ->needs(save)
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
  command.add_option("--eval-every", options.eval_every, "Steps between evaluations; with --save the best of them is kept in DIR.best")
      ->check(CLI::Range(1L, 1L << 40))
      ->needs(eval_data)
      ->group(group);
  command.add_option("--trace", trace, "Write what every rank did in all steps, for ui.perfetto.dev")->type_name("FILE")->group(group);
  command.add_option("--tensorboard", tensorboard, "Write loss, norm, rate, speed, idle share and memory of every step for TensorBoard")
      ->type_name("DIR")
      ->group(group);
  command
      .add_option("--dashboard", dashboard,
                  "Write a page that shows the run while it goes on, in a browser: curves, the last step's timeline, memory of the ranks")
      ->type_name("FILE.html")
      ->group(group);
  command
      .add_option("--timeline", timeline,
                  "Write a page or picture with the last step as measured and as simulated, and draw it in the terminal")
      ->type_name("FILE.html|FILE.svg")
      ->group(group);
  command
      .add_flag("--dry-run", options.dry_run,
                "Print stages, memory, time and tokens of the run, from a step with random weights; load and save nothing")
      ->group(group);
  command.add_flag("--json", json, "One JSON object per step on stdout")->group(group);
  add_fine_tuning(command);
  weights.add(command);
}

void TrainFlags::add_fine_tuning(CLI::App& command) {
  const char* group = "Fine-tuning";
  command.add_option("--freeze", options.freeze, "Parameters whose name contains this regular expression are not trained")
      ->type_name("REGEX")
      ->group(group);
  command.add_option("--only", options.only, "Only parameters whose name contains this regular expression are trained")
      ->type_name("REGEX")
      ->group(group);
  auto* rank = command
                   .add_option("--lora-rank", options.lora.rank,
                               "Train low-rank terms (LoRA) of this rank beside frozen weights; --save writes an adapter that peft reads")
                   ->check(CLI::Range(1L, 1L << 16))
                   ->group(group);
  command.add_option("--lora-alpha", options.lora.alpha, "LoRA: terms are multiplied by alpha / rank (default 8)")
      ->check(within(0.0, 1e6))
      ->needs(rank)
      ->group(group);
  command.add_option("--lora-dropout", options.lora.dropout, "LoRA: dropout of the terms' inputs (default 0)")
      ->check(within(0.0, 0.999))
      ->needs(rank)
      ->group(group);
  command
      .add_option("--lora-targets", options.lora.targets,
                  "LoRA: linears by how their names end, a regular expression of whole names, or all-linear (default: as peft, "
                  "q_proj,v_proj or what "
                  "they are packed into)")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->needs(rank)
      ->group(group);
  command.add_flag("--lora-rslora", options.lora.rank_stabilized, "LoRA: multiply by alpha / sqrt(rank)")->needs(rank)->group(group);
  command.add_option("--adapter", options.adapter, "LoRA adapter to go on with: a folder that peft or --save has written")
      ->type_name("DIR")
      ->group(group);
}

// Where a run goes on after it has lost a rank: at the checkpoint that it has saved last, or where it began.
void TrainFlags::survive_losses() {
  if (const char* folder = std::getenv("PPENGINE_RESTART_FROM")) options.resume = folder;
  parallel.when_lost = [this]() -> std::string {
    if (elastic.minimum > 0) return "the replicas that are left go on from memory (--elastic)";
    for (const std::string& folder : {options.save, options.resume})
      if (const auto saved = runs::find_checkpoint(folder); saved && !folder.empty())
        return fmt::format("the last checkpoint is of step {}: go on with --resume {}", saved->step, folder);
    return options.save.empty() ? "no checkpoint was asked for (--save)" : "no checkpoint was saved yet";
  };
  const auto before = runs::find_checkpoint(options.save);
  const auto from_checkpoint = [this, mark = before ? before->mark : std::string()](comm::LaunchOptions& launch) {
    const auto saved = runs::find_checkpoint(options.save);
    if (!saved || saved->mark == mark) return false;  // one that was there before this run is not its own
    log::warning(fmt::format("going on from the checkpoint of step {} in {}", saved->step, options.save));
    launch.environment["PPENGINE_RESTART_FROM"] = options.save;
    return true;
  };
  parallel.before_launch = [this, from_checkpoint](comm::LaunchOptions& launch) {
    if (elastic.minimum > 0) return elastic.before_launch(launch, {parallel.pp, parallel.dp, parallel.tp}, from_checkpoint);
    launch.before_restart = [from_checkpoint](comm::LaunchOptions& again, comm::LaunchResult& so_far) {
      from_checkpoint(again);
      return fmt::format("a rank was lost: starting again ({} of {})", so_far.restarts + 1, again.restarts);
    };
  };
}

void TrainFlags::run(CLI::App& command) {
  options.settings = settings_of(command);
  if (!options.resume.empty()) warn_of_differences(command, options.resume);
  survive_losses();
  if (options.model.empty() && !options.resume.empty())
    options.model = models::is_adapter_folder(options.resume) ? models::adapter_base(options.resume) : options.resume;
  if (options.model.empty()) throw ConfigError("--model is required: a folder, or demo, tiny, mid or gpt2");
  options.data = data.get();
  options.elastic = elastic.in_rank(parallel, options);
  options.trainer.parallel = parallel.options(options.data.batch_size);
  options.trainer.optimizer.kind = engine::parse_optimizer(optimizer);
  options.trainer.optimizer.beta1 = betas[0];
  options.trainer.optimizer.beta2 = betas[1];
  options.trainer.optimizer.decay_1d = !no_decay_1d;
  options.trainer.seed = options.data.seed;
  options.trainer.on_nan = engine::parse_on_nan(on_nan);
  gradients.apply(options.trainer);
  options.program = program.choice;
  options.weights = weights.get();
  if (options.weights.format != ops::WeightFormat::f32) options.trainer.parallel.prefer_f32();
  options.lr.shape = engine::parse_lr_schedule(lr_schedule);
  options.lr.peak = lr;
  options.lr.steps = options.steps;
  if (options.lr.shape == engine::LrShape::wsd) {
    if (options.lr.decay == 0) options.lr.decay = std::max<std::int64_t>(1, options.steps / 10);
    if (options.lr.decay + options.lr.warmup > options.steps)
      throw ConfigError(fmt::format("--warmup {} and --decay-steps {} together are more than --steps {}", options.lr.warmup,
                                    options.lr.decay, options.steps));
  } else if (options.lr.decay > 0) {
    throw ConfigError("--decay-steps goes with --lr-schedule wsd");
  }
  if (options.lr.minimum > lr) throw ConfigError(fmt::format("--min-lr {} is above --lr {}", options.lr.minimum, lr));
  options.trainer.optimizer.state_type = state_type == "bf16" ? ops::Type::bf16 : ops::Type::f32;
  options.dropout = dropout == "model";
  options.record = !trace.empty();
  options.observe = !dashboard.empty();
  for (const std::string& file : {trace, timeline, dashboard}) check_writable(file);
  if (!parallel.starts_processes()) {  // who starts ranks has nothing to save: it passes signals on as soon as there are any
    comm::on_stop_signals(on_interrupt);
    std::signal(SIGALRM, end_at_once);
    grace_seconds = grace;
  }
  std::signal(SIGPIPE, SIG_IGN);  // who has read enough of the results must not cost the checkpoint
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) is an error with a message
  std::optional<Dashboard> page;
  if (options.observe) page.emplace(dashboard, options.trainer.parallel.schedule, parallel.dp * parallel.tp);
  // What comes with every step is results with --json, else progress.
  const auto nobody_reads = [this] { return results_are_lost() && (json || notes_are_lost()); };
  TrainReporter reporter(json, tensorboard, std::move(page), [&] { return interrupts > 0 || nobody_reads(); });
  runs::TrainingResult result;
  bool regroup = false;
  const bool prints = parallel.run(options.trainer.parallel, [&](comm::Communicator& world) {
    runs::TrainingResult mine = runs::run_training(options, world, reporter);
    if (mine.regroup) regroup = true;  // only where ranks are processes
    if (world.rank() == 0) result = std::move(mine);
  });
  if (regroup) throw CLI::RuntimeError(static_cast<int>(ExitCode::peer_lost));  // the launcher starts all again
  if (!prints || options.dry_run) return;
  if (result.interrupted && interrupts == 0 && reader_is_gone()) throw CLI::RuntimeError(128 + SIGPIPE);  // as any program
  if (result.interrupted && interrupts == 0 && nobody_reads())
    throw Error(fmt::format("stdout takes no more results: the run ended after step {}{}", result.last.step,
                            options.save.empty() ? "" : ", saved to " + options.save));
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
