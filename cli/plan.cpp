// ppengine plan: makes, checks, lowers, simulates and draws plans.
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/results.hpp>
#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/registry.hpp>
#include <ppengine/schedules/report.hpp>
#include <ppengine/schedules/search/auto.hpp>

#include "commands.hpp"
#include "output/plural.hpp"
#include "output/prediction.hpp"
#include "output/results.hpp"
#include "output/terminal.hpp"

namespace ppengine::cli {
namespace {

using namespace schedules;

struct PlanFlags {
  std::string schedule, check, placement, costs, stage_costs, out, format, color = "auto", labels = "auto", send = "overlapped";
  int ranks = 0, stages = 0, microbatches = 0, memory_limit = 0, width = 0;
  bool lower = false, no_unshard = false, no_reduce_grad = false, rendezvous = false, json = false, summary = false;
  double overlap_factor = 1;
  LowerOptions lowering;
  PredictionFlags prediction;
};

// What was asked for, with everything that can be said about it.
struct Result {
  Plan plan;
  Costs costs;
  Simulation simulation;
  std::string title, limit;
  std::optional<PredictedStep> predicted;
};

std::vector<int> read_placement(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw FileError(fmt::format("{}: cannot be opened; give a file with the rank of every stage: 0,1,1,0", path));
  std::vector<int> ranks;
  std::string word;
  for (char c = 0; file.get(c) || !word.empty(); c = ',') {
    if (file && c >= '0' && c <= '9' && word.size() < 6) {
      word += c;
    } else if (!file || c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t') {
      if (!word.empty()) ranks.push_back(std::stoi(word));
      word.clear();
    } else {
      throw FileError(fmt::format("{}: \"{}{}\" is not a rank; give the rank of every stage: 0,1,1,0", path, word, c));
    }
    if (ranks.size() > static_cast<std::size_t>(max_stages)) throw FileError(fmt::format("{}: too many stages", path));
  }
  if (ranks.empty()) throw FileError(fmt::format("{}: no ranks in it; give the rank of every stage: 0,1,1,0", path));
  return ranks;
}

Costs read_costs(const PlanFlags& flags) {
  Costs costs;
  if (!flags.stage_costs.empty()) load_stage_costs(flags.stage_costs, costs);
  if (!flags.costs.empty()) parse_costs(flags.costs, costs);
  costs.overlap_factor = flags.overlap_factor;
  return costs;
}

SendMode send_mode(const PlanFlags& flags) {
  if (flags.rendezvous || flags.send == "rendezvous") return SendMode::rendezvous;
  if (flags.send == "rendezvous-unbatched") return SendMode::rendezvous_unbatched;
  return flags.send == "blocking" ? SendMode::blocking : SendMode::overlapped;
}

void load(const PlanFlags& flags, Result& result) {
  if (flags.microbatches < 0) throw ConfigError(fmt::format("microbatches must be 1 or more, not {}", flags.microbatches));
  result.plan = load_plan(flags.check, flags.microbatches);
  if (flags.ranks != 0 && flags.ranks != result.plan.ranks)
    throw FileError(fmt::format("{}: has {}, but --ranks says {}; give a row for every rank", flags.check, plural(result.plan.ranks, "row"),
                                flags.ranks));
  if (flags.stages != 0 && flags.stages != result.plan.stages)
    throw FileError(fmt::format("{}: has {}, but --stages says {}", flags.check, plural(result.plan.stages, "stage"), flags.stages));
  result.title = flags.check;
}

void make(const PlanFlags& flags, Result& result) {
  if (flags.schedule.empty()) throw ConfigError("plan needs --schedule NAME to make a plan, or --check FILE to check one");
  if (flags.ranks == 0) throw ConfigError("--ranks is required: how many ranks the pipeline has");
  if (flags.microbatches == 0) throw ConfigError("--microbatches is required: how many microbatches a step has");
  PlanRequest request{.ranks = flags.ranks,
                      .stages = flags.stages,
                      .microbatches = flags.microbatches,
                      .costs = result.costs,
                      .memory_limit = flags.memory_limit};
  if (!flags.placement.empty()) request.stage_rank = read_placement(flags.placement);
  const Schedule& schedule = builtin_schedules().find(flags.schedule);
  result.title = schedule.title;
  if (schedule.name != "auto") {
    result.plan = builtin_schedules().make(flags.schedule, request);
    return;
  }
  AutoPlan found = make_auto_plan(request);
  result.plan = std::move(found.plan);
  result.limit = found.limit;
  result.title = fmt::format("Auto ({})", found.origin);
}

Result compute(const PlanFlags& flags) {
  Result result;
  result.costs = read_costs(flags);
  // 1. A plan: made or loaded.
  if (!flags.check.empty())
    load(flags, result);
  else
    make(flags, result);
  check_costs(result.costs, result.plan.stages);
  result.title = fmt::format("{}: {}, {}, {}", result.title, plural(result.plan.ranks, "rank"), plural(result.plan.stages, "stage"),
                             plural(result.plan.microbatches, "microbatch", "microbatches"));
  // 2. With communication where asked for. The passes change a valid plan into a valid one; checked all the same.
  LowerOptions lowering = flags.lowering;
  lowering.unshard = !flags.no_unshard;
  lowering.reduce_grad = !flags.no_reduce_grad;
  if (flags.lower || lowering.defer_recv) {
    result.plan = schedules::lower(std::move(result.plan), lowering);
    validate(result.plan);
  } else if (lowering.merge) {
    result.plan = merge_backward(std::move(result.plan));
  }
  // 3. In time: that of the device, in milliseconds, where one is named.
  if (flags.prediction.wanted()) {
    result.predicted = flags.prediction.predict(result.plan);
    result.costs = result.predicted->prediction.costs_in_milliseconds();
    result.costs.overlap_factor = flags.overlap_factor;
  }
  result.simulation = simulate(result.plan, result.costs, {.send = send_mode(flags)});
  return result;
}

CellLabels cell_labels(const PlanFlags& flags) {
  return flags.labels == "stage" ? CellLabels::stage : flags.labels == "microbatch" ? CellLabels::microbatch : CellLabels::automatic;
}

bool to_results(const PlanFlags& flags) { return flags.out.empty() || flags.out == "-"; }

TextChart text_options(const PlanFlags& flags) {
  TextChart options;
  const bool shown = to_results(flags);
  options.color = flags.color == "always" || (flags.color == "auto" && shown && shows_colors(results::descriptor()));
  if (shown) options.width = terminal_width(results::descriptor(), options.width);
  if (flags.width > 0) options.width = flags.width;
  options.labels = cell_labels(flags);
  return options;
}

std::string summary_text(const Result& r) {
  int peak = 0;
  for (const auto& rank : r.simulation.ranks) peak = std::max(peak, rank.peak_live_microbatches);
  std::string out = fmt::format(
      "{}\nmakespan           {:.10g}\nidle share         {:.4f} %\nidle of the span   {:.4f} %\n"
      "live microbatches  {} on rank 0, {} at most\n",
      r.title, r.simulation.makespan, 100 * r.simulation.idle_share(), 100 * r.simulation.idle_share_of_span(),
      r.simulation.ranks[0].peak_live_microbatches, peak);
  if (!r.limit.empty()) out += fmt::format("limited by         {}\n", r.limit);
  if (r.predicted) out += r.predicted->text();
  return out;
}

// As told, or as the file's name says: plan.csv is a table, zbv.html a page.
std::string format_of(const PlanFlags& flags) {
  if (flags.json) return "json";
  if (!flags.format.empty()) return flags.format;
  for (const char* format : {"csv", "json", "svg", "html"})
    if (flags.out.ends_with(std::string(".") + format)) return format;
  const std::string ending = std::filesystem::path(flags.out).extension().string();
  if (!ending.empty() && ending != ".txt")
    throw ConfigError(
        fmt::format("--out {}: a plan is written as .csv, .json, .svg, .html or .txt; name one of these, or give --format", flags.out));
  return "text";
}

std::string render(const PlanFlags& flags, const Result& r) {
  const std::string format = format_of(flags);
  if (format == "csv") return to_csv(r.plan);
  if (format == "json") {
    std::string text = to_json(r.plan, r.simulation, r.costs, {.actions = !flags.summary, .limit = r.limit});
    if (r.predicted) text.insert(text.rfind('}'), ",\"prediction\":" + r.predicted->json().dump());
    return text;
  }
  const bool checked_only = !flags.check.empty() && flags.format.empty();
  if (format == "text" && (flags.summary || checked_only))
    return (checked_only ? fmt::format("valid ({})\n", r.plan.lowered() ? "compute_comms" : "compute_only") : "") + summary_text(r);
  Timeline timeline = make_timeline(r.plan, r.simulation, r.costs, r.title);
  if (!r.limit.empty()) timeline.subtitle += "; limited by " + r.limit;
  if (format == "svg") return chart_svg(timeline, cell_labels(flags));
  if (format == "html") return chart_html({timeline}, "ppengine plan", cell_labels(flags));
  return chart_text(timeline, text_options(flags)) + (r.predicted ? "\n" + r.predicted->text() : "");
}

void write(const PlanFlags& flags, const std::string& text) {
  if (to_results(flags)) {
    std::fwrite(text.data(), 1, text.size(), results_file());
    return;
  }
  write_file_atomically(flags.out, text);
}

}  // namespace

void add_plan(CLI::App& app) {
  auto* command = app.add_subcommand("plan", "Make, check, lower, simulate and draw a pipeline plan");
  auto flags = std::make_shared<PlanFlags>();
  PlanFlags& f = *flags;
  auto* schedule =
      command->add_option("--schedule", f.schedule, "Schedule by name: " + CLI::detail::join(builtin_schedules().names(), ", "))
          ->group("Plan");
  command->add_option("--check", f.check, "Validate and simulate this CSV plan, of either format")
      ->type_name("FILE")
      ->excludes(schedule)
      ->group("Plan");
  command->add_option("--ranks", f.ranks, "Ranks of the pipeline; required to make a plan")->group("Plan");
  command->add_option("--stages", f.stages, "Stages (default: one per rank, two for interleaved1f1b, loopedbfs and V-shaped schedules)")
      ->group("Plan");
  command->add_option("--microbatches", f.microbatches, "Microbatches of a step; required to make a plan")->group("Plan");
  command->add_option("--placement", f.placement, "File with the rank of every stage: 0,1,1,0")->type_name("FILE")->group("Plan");
  command->add_option("--memory-limit", f.memory_limit, "For auto: live microbatches a rank may hold")->group("Plan");

  command->add_flag("--lower", f.lower, "Add communication: unshard, reshard, reduce_grad, send and receive")->group("Lowering");
  command
      ->add_flag("--defer-recv", f.lowering.defer_recv, "Receive as late as is safe where a send waits for its receive (implies --lower)")
      ->group("Lowering");
  command->add_flag("--merge", f.lowering.merge, "Merge I and W that stand together into B")->group("Lowering");
  command->add_flag("--no-unshard", f.no_unshard, "Leave out unshard and reshard")->group("Lowering");
  command->add_flag("--no-reduce-grad", f.no_reduce_grad, "Leave out reduce_grad")->group("Lowering");
  command->add_option("--max-active-stages", f.lowering.max_active_stages, "Stages of a rank that may be unsharded at once (3)")
      ->group("Lowering");

  command->add_option("--costs", f.costs, "F=1,I=1,W=1,comm=0; also latency, bandwidth, bytes, activation, unshard, reduce")
      ->group("Simulation");
  command->add_option("--stage-costs", f.stage_costs, "File with a line F,I,W[,activation_bytes] per stage")
      ->type_name("FILE")
      ->group("Simulation");
  command->add_option("--send", f.send, "How sends behave: overlapped, blocking, rendezvous, rendezvous-unbatched")
      ->check(CLI::IsMember({"overlapped", "blocking", "rendezvous", "rendezvous-unbatched"}))
      ->group("Simulation");
  command->add_flag("--rendezvous", f.rendezvous, "The same as --send rendezvous: a send waits for its receive")->group("Simulation");
  command->add_option("--overlap-factor", f.overlap_factor, "Share of F + B that an OVERLAP_F_B takes (1)")->group("Simulation");

  f.prediction.add(*command);

  command->add_option("--format", f.format, "csv, text, json, svg or html (default: what the name in --out ends with, or text)")
      ->check(CLI::IsMember({"csv", "text", "json", "svg", "html"}))
      ->group("Output");
  command->add_flag("--json", f.json, "The same as --format json")->group("Output");
  command->add_flag("--summary", f.summary, "Only the numbers, no actions (text and json)")->group("Output");
  command->add_option("--out", f.out, "Write to this file instead of stdout (-)")->type_name("FILE")->group("Output");
  command->add_option("--color", f.color, "Colours in text: auto, always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
  command
      ->add_option("--labels", f.labels,
                   "What a cell of a chart says: its microbatch, or stage and microbatch (auto: what tells them apart)")
      ->check(CLI::IsMember({"auto", "microbatch", "stage"}))
      ->group("Output");
  command->add_option("--width", f.width, "Columns of the text chart (default: the window's, 100 elsewhere)")
      ->check(CLI::Range(20, 100000))
      ->group("Output");
  command->footer(
      "Examples:\n"
      "  ppengine plan --schedule 1f1b --ranks 4 --microbatches 8\n"
      "  ppengine plan --schedule zbvzerobubble --ranks 8 --stages 16 --microbatches 32 --format html --out zbv.html\n"
      "  ppengine plan --schedule interleaved1f1b --ranks 4 --stages 8 --microbatches 8 --lower --format csv\n"
      "  ppengine plan --check plan.csv --microbatches 8\n"
      "  ppengine plan --schedule 1f1b --ranks 4 --microbatches 32 --model gpt2 --on h100 --summary");
  command->callback([flags] {
    if (flags->prediction.device == "list") return write(*flags, engine::known_devices_text());
    static_cast<void>(format_of(*flags));  // refuses a file's name before a plan of any size is made
    write(*flags, render(*flags, compute(*flags)));
  });
}

}  // namespace ppengine::cli
