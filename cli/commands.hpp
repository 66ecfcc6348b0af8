// The commands: each registers its flags under the application and runs when it was chosen. One file per command.
// Flags have a long name, which also is their name in the environment and in TOML files; headings by Option::group().
#pragma once

#include <CLI/CLI.hpp>

namespace ppengine::cli {

void add_bench(CLI::App& app);
void add_cache(CLI::App& app);
void add_devices(CLI::App& app);
void add_eval(CLI::App& app);
void add_inspect(CLI::App& app);
void add_generate(CLI::App& app);
void add_merge(CLI::App& app);
void add_plan(CLI::App& app);
void add_serve(CLI::App& app);
void add_train(CLI::App& app);

// Below `ppengine bench`.
void add_bench_comm(CLI::App& bench);  // p2p and allreduce
void add_bench_generate(CLI::App& bench);
void add_bench_ops(CLI::App& bench);
void add_bench_train(CLI::App& bench);

}  // namespace ppengine::cli
