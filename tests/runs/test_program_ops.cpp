// Every op of imported programs: outputs and gradients against PyTorch's, and gradients against finite differences of the outputs. A
// program holds many ops side by side, each with a weight and a bias of its own (reference/make_op_reference.py, torch 2.13).
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <set>

#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/runs/program.hpp>

#include "../models/helpers.hpp"
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

std::filesystem::path folder_of(const std::string& name) { return data_folder() / "ops" / name; }

engine::ParallelOptions parallel_options(int pipeline, int stages, const char* schedule) {
  engine::ParallelOptions options;
  options.pipeline = pipeline, options.stages = stages, options.schedule = schedule, options.microbatches = 1;
  static const auto device = ops::Device::open();
  options.device = device;
  return options;
}

// One step of plain gradient descent with a rate of 1: what the weights lose is the gradient.
void step(const std::string& model, const std::string& data, const std::string& save, const engine::ParallelOptions& parallel) {
  TrainingOptions options;
  options.model = model, options.data.data = data, options.save = save;
  options.data.batch_size = 4;
  options.program.loss = "output";
  options.trainer.parallel = parallel;
  options.trainer.optimizer.kind = engine::OptimizerKind::sgd;
  options.trainer.optimizer.weight_decay = 0.0;
  options.lr.peak = 1.0;
  options.steps = 1;
  Steps steps;
  on_ranks(parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
}

models::WeightFiles outputs(const std::string& model, const std::string& data, const std::string& file) {
  EvaluationOptions options;
  options.model = model, options.data.data = data, options.outputs = file;
  options.data.batch_size = 4;
  options.program.loss = "output";
  options.parallel = parallel_options(1, 1, "1f1b");
  on_ranks(options.parallel, [&](comm::Communicator& world) { run_evaluation(options, world); });
  return models::WeightFiles::open(file);
}

// A saved folder with other weights.
void write_weights(const std::filesystem::path& file, const models::WeightFiles& like,
                   const std::function<std::vector<float>(const models::StoredTensor&)>& weights) {
  nlohmann::json header;
  std::string bytes;
  for (const models::StoredTensor& one : like.tensors()) {
    const auto made = weights(one);
    header[one.name] = {
        {"dtype", "F32"}, {"shape", one.shape}, {"data_offsets", {bytes.size(), bytes.size() + made.size() * sizeof(float)}}};
    bytes.append(reinterpret_cast<const char*>(made.data()), made.size() * sizeof(float));
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length) << text << bytes;
}

// What the weight's elements are moved along.
float direction(std::size_t i) { return std::sin(1.7f * static_cast<float>(i) + 0.3f); }

// Outputs that jump, or bend within the distance, have no finite differences.
bool jumps(const std::string& name) {
  static const std::set<std::string> some{
      "threshold", "hardshrink",   "floor",       "round",   "round2",     "trunc",   "frac",     "fmod",          "remainder",
      "div_floor", "div_trunc",    "norm0",       "argmax",  "argmin_all", "any",     "all",      "count_nonzero", "to_int",
      "bucketize", "searchsorted", "scatter_src", "logical", "logical2",   "signbit", "copysign", "sign",          "bounds"};
  return some.contains(name);
}

std::vector<std::string> ops_of(const models::WeightFiles& expected) {
  std::vector<std::string> names;
  for (const models::StoredTensor& one : expected.tensors())
    if (!one.name.starts_with("gradient.")) names.push_back(one.name);
  return names;
}

// The order of the outputs is that of the modules in the program: of the ops, as the outputs' file numbers them.
std::vector<std::string> in_order(const std::string& file) {
  std::vector<std::string> names;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) names.push_back(line);
  return names;
}

void check_program(const std::string& name, const engine::ParallelOptions& parallel, bool differences) {
  const TemporaryFolder folder;
  const std::string model = (folder_of(name) / "net.pt2").string(), data = (folder_of(name) / "data.safetensors").string(),
                    save = (folder.path / "saved").string();
  const auto expected = models::WeightFiles::open(folder_of(name) / "expected.safetensors");
  const auto names = in_order((folder_of(name) / "names.txt").string());
  BOOST_REQUIRE_EQUAL(names.size(), ops_of(expected).size());
  const auto program = models::load_program(model);
  step(model, data, save, parallel);
  const auto after = models::WeightFiles::open(save);
  std::map<std::string, std::vector<float>> gradients;
  for (const models::StoredTensor& one : after.tensors()) {
    const auto before = values(program->tensor(one.name)), now = values(one);
    auto& gradient = gradients[one.name];
    for (std::size_t i = 0; i < now.size(); ++i) gradient.push_back(before[i] - now[i]);
    const double off = largest_share(gradient, values(expected.at("gradient." + one.name)), 1e-2);
    BOOST_TEST(off < 2e-4, "the gradient of " << one.name << " is " << off << " apart from PyTorch's");
  }
  if (!differences) return;
  const auto found = outputs(model, data, (folder.path / "outputs.safetensors").string());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto* const output = found.find("output." + std::to_string(i + 1));
    if (!output) continue;  // the op's result has no batch
    const double off = largest_share(values(*output), values(expected.at(names[i])), 1e-3);
    BOOST_TEST(off < 1e-4, "the output of " << names[i] << " is " << off << " apart from PyTorch's");
  }
  // Every op has its own weight: two evaluations give the differences of all.
  constexpr float distance = 1e-3f;
  std::vector<models::WeightFiles> moved;
  for (float sign : {1.0f, -1.0f}) {
    write_weights(std::filesystem::path(save) / "model.safetensors", after, [&](const models::StoredTensor& one) {
      auto weights = values(program->tensor(one.name));
      for (std::size_t i = 0; one.name.starts_with("op.") && one.name.ends_with(".w") && i < weights.size(); ++i)
        weights[i] += sign * distance * direction(i);
      return weights;
    });
    moved.push_back(outputs(save, data, (folder.path / (sign > 0 ? "more.safetensors" : "less.safetensors")).string()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string key = "output." + std::to_string(i + 1);
    if (!moved[0].find(key) || jumps(names[i])) continue;
    const auto more = values(moved[0].at(key)), less = values(moved[1].at(key));
    const std::size_t width = more.size() / 4;
    double difference = 0, slope = 0, size = 1e-2;
    for (std::size_t k = 0; k < more.size(); ++k)
      difference += (double(more[k]) - double(less[k])) * std::cos(double(k % width)) / 4.0 / (2.0 * distance);
    const auto& gradient = gradients.at("op._" + names[i] + ".w");
    for (std::size_t k = 0; k < gradient.size(); ++k)
      slope += double(gradient[k]) * direction(k), size += std::abs(double(gradient[k]) * direction(k));
    BOOST_TEST(test::distance(slope, difference) / size < 0.04,
               names[i] << ": the gradient gives " << slope << ", differences give " << difference);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(program_ops)

BOOST_AUTO_TEST_CASE(outputs_and_gradients_of_every_op) {
  for (const char* name : {"0", "1", "2", "3", "4", "5", "6"}) BOOST_TEST_CONTEXT("program " << name) {
      check_program(name, parallel_options(1, 1, "1f1b"), true);
    }
}

BOOST_AUTO_TEST_CASE(gradients_of_every_op_over_stages) { check_program("5", parallel_options(2, 4, "zbvzerobubble"), false); }

BOOST_AUTO_TEST_SUITE_END()
