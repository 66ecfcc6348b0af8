// ppengine generate: text or tokens that continue a prompt.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <cstdio>
#include <map>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/runs/generation.hpp>

#include "commands.hpp"
#include "flags/run_flags.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view word(text.data() + begin, end - begin);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size())
      throw ConfigError(fmt::format("--ids: '{}' is not a token number; give numbers as 1,2,3", word));
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

std::vector<std::string> read_prompts(const std::string& file) {
  constexpr std::uint64_t most_bytes = 256 << 20;
  const std::string text = read_file(file, most_bytes);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) throw FileError(fmt::format("{}: line {} is empty; every line is a prompt", file, lines.size() + 1));
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  if (lines.empty()) throw FileError(fmt::format("{}: there is no prompt in it; every line is one", file));
  return lines;
}

struct GenerateFlags {
  runs::GenerationOptions options;
  ParallelFlags parallel;
  WeightFlags weights;
  CacheFlags cache;
  std::string prompt, ids, prompts;
  bool json = false;

  void run(const CLI::App& command) {
    if (command.count("--prompt") > 0) options.texts = {prompt};
    if (command.count("--ids") > 0) options.ids = {parse_ids(ids)};
    if (command.count("--prompts") > 0) {
      options.texts = read_prompts(prompts);
      json = true;
    }
    options.weight_seed = options.sampling.seed;
    options.on_token = [&](std::size_t, std::int32_t id, std::string_view text) { show(id, text); };
    options.on_finished = [&](std::size_t index, const runs::GeneratedText& result) { finish(index, result); };
    options.parallel = parallel.options();
    options.weights = weights.chosen();
    options.cache_memory = cache.memory();
    options.cache_in_bytes = cache.in_bytes();
    const runs::GenerationRun generation(options);
    with_text_ = generation.has_tokenizer();
    json |= generation.requests() > 1;  // texts that come side by side
    if (const auto room = generation.shortened_to(); room && command.count("--max-new-tokens") > 0)
      log::warning(fmt::format("the model's context leaves room for {} new tokens of {}", *room, options.max_new_tokens));
    // What there is to print was printed by rank 0 as it came.
    static_cast<void>(parallel.run(options.parallel, [&](comm::Communicator& world) { generation.run(world); }));
  }

 private:
  // Without a tokenizer the token numbers are what there is to show.
  void show(std::int32_t id, std::string_view text) {
    if (json) return;
    if (with_text_)
      std::fwrite(text.data(), 1, text.size(), results_file());
    else if (id >= 0)
      print_result("{}{}", std::exchange(begun_, true) ? " " : "", id);
    std::fflush(results_file());
  }

  void finish(std::size_t index, const runs::GeneratedText& result) {
    if (!json) return print_result("\n");
    nlohmann::json line{{"prompt_ids", result.prompt_ids},
                        {"ids", result.generated.ids},
                        {"text", nullptr},
                        {"prefill_tokens_per_second", result.generated.prefill_tokens_per_second()},
                        {"decode_tokens_per_second", result.generated.decode_tokens_per_second()}};
    if (result.text) line["text"] = *result.text;
    if (!result.adapter.empty()) line["adapter"] = result.adapter;
    // In the order of the prompts, whichever is finished first.
    finished_[index] = line.dump();
    for (; !finished_.empty() && finished_.begin()->first == printed_; ++printed_) {
      print_result("{}\n", finished_.begin()->second);
      finished_.erase(finished_.begin());
    }
    std::fflush(results_file());
  }

  std::map<std::size_t, std::string> finished_;  // that wait for one before them
  std::size_t printed_ = 0;
  bool with_text_ = false, begun_ = false;
};

}  // namespace

void add_generate(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "Continue a prompt, as text while it comes");
  auto flags = std::make_shared<GenerateFlags>();
  auto& options = flags->options;
  command->add_option("--model", options.model, "Model folder, or a preset with random weights")->type_name("DIR|PRESET")->required();
  command
      ->add_option(
          "--adapter", options.adapters,
          "LoRA adapter for the model: a folder that peft or 'train --save' has written; several, each with a name: every prompt is "
          "continued with each of them")
      ->type_name("[NAME=]DIR")
      ->expected(1)
      ->take_all();
  auto* prompt = command->add_option("--prompt", flags->prompt, "The text to continue")->type_name("TEXT");
  auto* ids = command->add_option("--ids", flags->ids, "The tokens to continue, by number")->type_name("1,2,3")->excludes(prompt);
  command->add_option("--prompts", flags->prompts, "A prompt per line; prints one JSON object per line, in their order")
      ->type_name("FILE")
      ->excludes(prompt)
      ->excludes(ids);
  command->add_option("--batch-size", options.batch_size, "Prompts that run at once (default: 8 per rank of the pipeline)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--max-new-tokens", options.max_new_tokens, "New tokens at most (default 128)")->check(CLI::Range(1L, 1L << 30));
  command->add_option("--stop", options.stops, "Text that ends the generation and is not shown; may be given again")
      ->type_name("STRING")
      ->expected(1)
      ->take_all();
  command->add_flag("--ignore-eos", options.ignore_eos, "Go on after the model's end token");
  const char* group = "Choosing tokens";
  auto& sampling = options.sampling;
  command->add_option("--temperature", sampling.temperature, "0: always the likeliest token (default)")->group(group);
  command->add_option("--top-k", sampling.top_k, "Among the K likeliest only (default 0: all)")->group(group);
  command->add_option("--top-p", sampling.top_p, "Among the likeliest that have this probability together (default 1)")->group(group);
  command->add_option("--min-p", sampling.min_p, "Among those with this share of the likeliest one's probability (default 0)")
      ->group(group);
  command->add_option("--repetition-penalty", sampling.repetition_penalty, "Above 1: tokens that were there become less likely (default 1)")
      ->group(group);
  command->add_option("--seed", sampling.seed, "Seed of the choice, and of a preset's weights (default 0)")->group(group);
  flags->weights.add(*command, WeightFlags::as_stored);
  flags->cache.add(*command, "Keys and values");
  flags->parallel.add(*command, Use::inference);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  ppengine generate --model my-gpt2/ --prompt 'Once upon a time' --max-new-tokens 40\n"
      "  ppengine generate --model my-llama/ --prompt 'The sea' --temperature 0.8 --top-p 0.95 --seed 1 --pp 2\n"
      "  ppengine generate --model my-gpt2/ --prompts questions.txt --pp 2 > answers.jsonl\n"
      "  ppengine generate --model tiny --ids 1,2,3 --json");
  command->callback([flags, command] { flags->run(*command); });
}

}  // namespace ppengine::cli
