// ppengine bench: one subcommand per thing measured.
#include "commands.hpp"

namespace ppengine::cli {

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure: warm-up, repeated runs, median and spread");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  ppengine bench train --model gpt2 --pp 2 --microbatches 8\n"
      "  ppengine bench generate --model gpt2 --weights int8\n"
      "  ppengine bench ops --preset tiny\n"
      "  ppengine bench p2p --launch processes");
  add_bench_comm(*command);
  add_bench_generate(*command);
  add_bench_ops(*command);
  add_bench_train(*command);
}

}  // namespace ppengine::cli
