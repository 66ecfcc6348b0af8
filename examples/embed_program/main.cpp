// A PyTorch model, exported once by torch.export, trained over two pipeline ranks and evaluated, with no Python:
//   embed_program net.pt2 data.safetensors mse
#include <cmath>
#include <filesystem>
#include <iostream>
#include <random>

#include <ppengine/ppengine.hpp>

using namespace ppengine;

struct Print final : runs::TrainingListener {
  double first = 0, last = 0;
  void stepped(const engine::StepResult& step, std::size_t) override {
    if (step.step == 1) first = step.loss;
    last = step.loss;
    std::cout << "step " << step.step << "  loss " << step.loss << "\n";
  }
};

int main(int count, char** arguments) try {
  std::cout << "ppengine " << version() << " (" << commit() << ")\n";
  if (count != 4) {
    std::cerr << "usage: embed_program FILE.pt2 DATA.safetensors cross_entropy|mse|bce|output\n";
    return 2;
  }
  const auto program = models::load_program(arguments[1]);
  const models::ProgramGraph built = program->build({});  // inputs, outputs, and all that is not supported
  models::Program::check(built, arguments[1]);
  for (const models::ProgramInput& input : built.inputs) std::cout << "input " << input.name << " " << input.shape << "\n";

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("ppengine-example-" + std::to_string(std::random_device{}()));
  runs::TrainingOptions training;
  training.model = arguments[1];
  training.data.data = arguments[2];
  training.data.batch_size = 8;
  training.program.loss = arguments[3];
  training.trainer.parallel.pipeline = 2;
  training.trainer.parallel.microbatches = 4;
  training.trainer.parallel.device = ops::Device::open();
  training.lr.peak = 1e-2;
  training.steps = 30;
  training.save = folder.string();

  runs::EvaluationOptions evaluation;
  evaluation.model = training.save;  // the folder holds the program and its weights
  evaluation.data = training.data;
  evaluation.program = training.program;
  evaluation.parallel = training.trainer.parallel;
  evaluation.outputs = (folder / "outputs.safetensors").string();

  Print print;
  runs::EvaluationResult result;
  comm::LocalOptions local;
  local.devices.assign(2, training.trainer.parallel.device);
  comm::run_threads(2, local, [&](comm::Communicator& world) {
    runs::run_training(training, world, print);
    const runs::EvaluationResult found = runs::run_evaluation(evaluation, world);
    if (world.rank() == 0) result = found;
  });
  const bool written = std::filesystem::exists(evaluation.outputs);
  std::filesystem::remove_all(folder);
  std::cout << "evaluation loss " << result.loss() << "\n";
  return written && print.last < print.first && std::isfinite(result.loss()) ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
