// ppengine serve: a model behind HTTP, for OpenAI's clients.
#include <fmt/core.h>

#include <csignal>
#include <cstdio>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/launch/stop_signals.hpp>
#include <ppengine/runs/serving.hpp>

#include "commands.hpp"
#include "flags/run_flags.hpp"
#include "flags/within.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

struct ServeFlags {
  runs::ServingOptions options;
  ParallelFlags parallel;
  WeightFlags weights;
  CacheFlags cache;
  std::int64_t body_mebibytes = 16;

  void run() {
    // Before any thread is started: the run waits for them. A process that only starts ranks passes them on.
    if (!parallel.starts_processes()) {
      const sigset_t signals = comm::stop_signals();
      pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    }
    options.parallel = parallel.options();
    comm::on_stop_signals(SIG_DFL);  // not what the device's runtime does with them
    options.weights = weights.chosen();
    options.cache_memory = cache.memory();
    options.cache_in_bytes = cache.in_bytes();
    options.max_body = body_mebibytes << 20;
    options.on_listening = [](const std::string& address) {
      print_result("ppengine serves on {}\n", address);
      std::fflush(results_file());
    };
    const runs::ServingRun serving(options);
    static_cast<void>(parallel.run(options.parallel, [&](comm::Communicator& world) { serving.run(world); }));
  }
};

}  // namespace

void add_serve(CLI::App& app) {
  auto* command = app.add_subcommand("serve", "Answer requests over HTTP, as OpenAI's clients send them");
  auto flags = std::make_shared<ServeFlags>();
  auto& options = flags->options;
  command->add_option("--model", options.model, "Model folder, or a preset with random weights")->type_name("DIR|PRESET")->required();
  command
      ->add_option(
          "--adapter", options.adapters,
          "LoRA adapter for the model: a folder that peft or 'train --save' has written; several, each with a name, by which clients ask "
          "for them as MODEL:NAME")
      ->type_name("[NAME=]DIR")
      ->expected(1)
      ->take_all();
  command->add_option("--model-name", options.name, "The model's name for clients (default: the folder's)")->type_name("NAME");
  command->add_option("--host", options.host, "Address to listen on (default 127.0.0.1: this machine only)");
  command->add_option("--port", options.port, "Port to listen on (default 8000; 0: a free one, which is printed)");
  command->add_flag(
      "--lookup", options.lookup,
      "Guess from a sequence's own text what follows and check several tokens at once: the same answers, faster where text repeats");
  command
      ->add_option(
          "--draft", options.draft,
          "A small model with the same tokenizer that guesses what follows; several tokens are checked at once: the same answers, faster")
      ->type_name("DIR|PRESET");
  command->add_option("--api-key", options.api_key, "Clients must send this key (default: none is asked for)")->type_name("KEY");
  const char* limits = "Limits";
  command
      ->add_option("--max-sequences", options.max_sequences, "Sequences that are generated at once (default: 8 per rank of the pipeline)")
      ->check(CLI::Range(1, 4096))
      ->group(limits);
  command->add_option("--max-queue", options.max_queue, "Sequences that wait; more are refused with status 429 (default 256)")
      ->check(CLI::Range(1, 1000000))
      ->group(limits);
  command
      ->add_option("--max-per-client", options.max_per_client,
                   "Sequences that one address may have waiting or running; more are refused with status 429 (default: no limit)")
      ->check(CLI::Range(1, 1000000))
      ->group(limits);
  command->add_option("--context", options.context, "Tokens that a sequence can reach (default: the model's context, 4096 at most)")
      ->check(CLI::Range(2L, 1L << 24))
      ->group(limits);
  command->add_option("--max-body", flags->body_mebibytes, "MiB that a request may have (default 16)")
      ->check(CLI::Range(1L, 1024L))
      ->group(limits);
  command->add_option("--max-connections", options.max_connections, "Connections at once (default 4096)")
      ->check(CLI::Range(1, 1000000))
      ->group(limits);
  command->add_option("--grace", options.grace, "Seconds that requests under way have after SIGTERM (default 30)")
      ->check(within(0, 1e6))
      ->group(limits);
  command->add_option("--seed", options.weight_seed, "Seed of a preset's weights (default 0)");
  flags->weights.add(*command, WeightFlags::as_stored);
  flags->cache.add(*command, "Keys and values");
  flags->parallel.add(*command, Use::inference);
  command->footer(
      "Examples:\n"
      "  ppengine serve --model my-llama/\n"
      "  ppengine serve --model my-llama/ --weights int8 --pp 2 --port 0 --api-key secret\n"
      "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 20}'");
  command->callback([flags] { flags->run(); });
}

}  // namespace ppengine::cli
