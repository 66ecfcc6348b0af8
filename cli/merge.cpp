// ppengine merge: adds a LoRA adapter to the weights of a model.
#include <fmt/core.h>

#include <ppengine/models/files/adapter.hpp>

#include "commands.hpp"
#include "output/results.hpp"

namespace ppengine::cli {

void add_merge(CLI::App& app) {
  struct Flags {
    std::string model, adapter, out;
  };
  auto* command = app.add_subcommand("merge", "Add a LoRA adapter to a model's weights, for a folder without an adapter");
  auto flags = std::make_shared<Flags>();
  command->add_option("--model", flags->model, "Model folder (Hugging Face's layout)")->type_name("DIR")->required();
  command->add_option("--adapter", flags->adapter, "Adapter: a folder that peft or 'train --save' has written")
      ->type_name("DIR")
      ->required();
  command->add_option("--out", flags->out, "Folder for the merged model")->type_name("DIR")->required();
  command->footer(
      "Weights keep their names and types.\n"
      "Example:\n"
      "  ppengine merge --model my-llama/ --adapter adapter/ --out merged/");
  command->callback([flags] {
    models::merge_adapter(flags->model, flags->adapter, flags->out);
    print_note("merged {} into {}: {}\n", flags->adapter, flags->model, flags->out);
  });
}

}  // namespace ppengine::cli
