// ppengine eval: the loss of a model over a data set, and its logits.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/runs/evaluation.hpp>

#include "commands.hpp"
#include "flags/run_flags.hpp"
#include "output/plural.hpp"
#include "output/progress.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

struct EvalFlags {
  runs::EvaluationOptions options;
  ParallelFlags parallel;
  DataFlags data;
  WeightFlags weights;
  ProgramFlags program;
  std::string cache_type = "f32";
  bool json = false;

  void run() {
    options.data = data.get();
    options.parallel = parallel.options(options.data.batch_size);
    options.weights = weights.get();
    options.program = program.choice;
    options.cache_in_bytes = cache_type == "int8";
    const bool compares = options.weights.format != ops::WeightFormat::f32 || options.cache_in_bytes;
    if (compares) options.parallel.prefer_f32();
    Progress progress;
    options.progress = [&](std::int64_t done, std::int64_t of) { progress.show(fmt::format("{} of {}", done, plural(of, "sequence"))); };
    runs::EvaluationResult result, exact;
    const bool prints = parallel.run(options.parallel, [&](comm::Communicator& world) {
      const runs::EvaluationResult mine = runs::run_evaluation(options, world);
      if (world.rank() == 0) result = mine;
      if (!compares) return;
      runs::EvaluationOptions plain = options;  // the same with f32 weights, for the difference
      plain.weights = {};
      plain.cache_in_bytes = false;
      plain.logits.clear();
      plain.ask.clear();
      const runs::EvaluationResult its = runs::run_evaluation(plain, world);
      if (world.rank() == 0) exact = its;
    });
    if (!prints) return;
    const double accuracy = result.sums > 0 ? double(result.right_sums) / double(result.sums) : 0.0;
    if (json) {
      nlohmann::json line{{"loss", result.loss()}, {"perplexity", result.perplexity()}, {"tokens", result.valid_tokens}};
      if (result.valid_tokens == 0) line["loss"] = line["perplexity"] = nullptr;  // nothing to compare with: outputs alone were asked for
      if (result.sums > 0) line.update({{"accuracy", accuracy}, {"sums", result.sums}});
      if (compares)
        line.update({{"weights", ops::name_of(options.weights.format)},
                     {"cache", cache_type},
                     {"f32_perplexity", exact.perplexity()},
                     {"perplexity_difference", result.perplexity() - exact.perplexity()}});
      if (!result.answer.empty()) line["answer"] = result.answer;
      print_result("{}\n", line.dump());
      return expect_finite(result);
    }
    print_result("loss {:.6f}  perplexity {:.4f}  over {}\n", result.loss(), result.perplexity(), plural(result.valid_tokens, "token"));
    if (compares)
      print_result("{} weights{}: perplexity {:+.4f} ({:+.3f} %) against {:.4f} with f32\n", ops::name_of(options.weights.format),
                   options.cache_in_bytes ? ", int8 keys and values" : "", result.perplexity() - exact.perplexity(),
                   100 * (result.perplexity() / exact.perplexity() - 1), exact.perplexity());
    if (result.sums > 0)
      print_result("accuracy {:.1f} %: {} of {} sums that training never showed\n", 100 * accuracy, result.right_sums, result.sums);
    if (!result.answer.empty()) print_result("{}\n", result.answer);
    expect_finite(result);
  }

  void expect_finite(const runs::EvaluationResult& result) const {
    if (result.valid_tokens > 0 && !std::isfinite(result.loss()))
      throw Error(fmt::format(
          "{}: the loss is not finite: weights of the model, or numbers computed with them, are not; 'ppengine inspect --verify' tells "
          "whether the files are damaged",
          options.model));
  }
};

}  // namespace

void add_eval(CLI::App& app) {
  auto* command = app.add_subcommand("eval", "Loss and perplexity of a model over a data set");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("--model", flags->options.model, "Model folder, PyTorch program, or preset with random weights")
      ->type_name("DIR|FILE.pt2|PRESET")
      ->required();
  command->add_option("--adapter", flags->options.adapter, "LoRA adapter for the model: a folder that peft or 'train --save' has written")
      ->type_name("DIR");
  flags->data.add(*command, true);
  flags->weights.add(*command);
  command
      ->add_option(
          "--cache-type", flags->cache_type,
          "int8: over a cache of keys and values as bytes, as generate and serve have it, with the perplexity that it costs (default f32)")
      ->check(CLI::IsMember({"f32", "int8"}))
      ->group("Weights");
  flags->parallel.add(*command, Use::evaluation);
  command->add_option("--sequences", flags->options.sequences, "Sequences to read (default: all of a file, 64 of made-up data)")
      ->check(CLI::Range(1L, 1L << 40));
  flags->program.add(*command, false);
  command->add_option("--outputs", flags->options.outputs, "Write a program's outputs for all samples as f32")
      ->type_name("FILE.safetensors")
      ->group("Programs (FILE.pt2)");
  command->add_option("--logits", flags->options.logits, "Write the logits [sequences, length, vocabulary] as f32")
      ->type_name("FILE.safetensors");
  command->add_option("--ask", flags->options.ask, "With task:addition: a sum for the model to answer, as 23+58")->type_name("SUM");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  ppengine eval --model my-gpt2/ --data valid.npy --json\n"
      "  ppengine eval --model my-llama/ --data text.txt --seq-len 512 --pp 2 --logits logits.safetensors\n"
      "  ppengine eval --model my-llama/ --data text.txt --weights int8 --weight-group 64\n"
      "  ppengine eval --model trained/ --data task:addition --ask 23+58");
  command->callback([flags] { flags->run(); });
}

}  // namespace ppengine::cli
