// Every family against transformers and torch.optim.AdamW: logits, greedy continuations, and losses, norms and weights of ten steps, whole,
// over pipeline stages and over tensor-parallel ranks. The values come from ../models/reference/make_families_reference.py; weights are
// made from a formula on both sides.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>

#include <ppengine/comm/threads.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/training.hpp>

#include "../models/helpers.hpp"
#include "../ranks.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

const nlohmann::json& reference() {
  static const auto all = nlohmann::json::parse(std::ifstream(data_folder() / "families.json"));
  return all;
}

// In [-0.5, 0.5): splitmix64 of the name's FNV-1a hash.
std::vector<double> formula_values(const std::string& name, std::int64_t count) {
  std::uint64_t seed = 0xCBF29CE484222325;
  for (const unsigned char byte : name) seed = (seed ^ byte) * 0x100000001B3;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    values[i] = static_cast<double>(z >> 40) / 16777216.0 - 0.5;
  }
  return values;
}

struct Folder : TemporaryFolder {
  explicit Folder(const nlohmann::json& config) {
    write("config.json", config.dump());
    nlohmann::json tokens = reference()["tokens"];
    const ModelConfig model = load_config(path);
    const double around = std::string_view(model.family_name()).starts_with("gemma") ? 0.0 : 1.0;  // of norms
    std::vector<TensorSpec> tensors;
    for (const Parameter& one : list_parameters(model)) tensors.push_back({one.name, StoredType::f32, one.shape});
    SafetensorsWriter writer = SafetensorsWriter::create(path, SafetensorsLayout(tensors));
    for (const Parameter& one : list_parameters(model)) {
      const bool norm = one.name.find("norm") != std::string::npos && one.name.ends_with("weight");
      std::vector<float> values;
      for (const double u : formula_values(one.name, one.elements()))
        values.push_back(static_cast<float>(norm ? around + 0.4 * u : (one.name.ends_with("bias") ? 0.4 : 0.8) * u));
      writer.write(one.name, 0, values.data(), values.size() * sizeof(float));
    }
    writer.sync();
    writer.commit();
    write_tokens(tokens);
  }
  // A .npy file of i64 [sequences, length].
  void write_tokens(const nlohmann::json& tokens) const {
    std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (" + std::to_string(tokens.size()) + ", " +
                         std::to_string(tokens[0].size()) + "), }";
    header.resize(118 - 1, ' ');
    header += '\n';
    std::string text("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(header.size());
    text += '\0';
    text += header;
    for (const auto& sequence : tokens)
      for (const std::int64_t token : sequence) text.append(reinterpret_cast<const char*>(&token), sizeof(token));
    write("tokens.npy", text);
  }
  std::string tokens() const { return (path / "tokens.npy").string(); }
};

engine::ParallelOptions layout(int pipeline, int tensor) {
  engine::ParallelOptions options;
  options.pipeline = pipeline;
  options.tensor = tensor;
  options.microbatches = pipeline;
  static const auto device = ops::Device::open("cpu");
  options.device = device;
  return options;
}

void on_ranks(const engine::ParallelOptions& options, const std::function<void(comm::Communicator&)>& rank) {
  test::on_ranks(options.mesh().size(), options.device, rank);
}

std::vector<float> tensor(const WeightFiles& files, const std::string& name) {
  const StoredTensor& stored = files.at(name);
  std::vector<float> values(stored.elements);
  read_f32(stored, 0, stored.elements, values.data());
  return values;
}

void check_logits(const Folder& folder, const nlohmann::json& expected, const engine::ParallelOptions& parallel) {
  EvaluationOptions options;
  options.model = folder.path.string();
  options.data.data = folder.tokens();
  options.data.batch_size = 4;
  options.parallel = parallel;
  options.logits = (folder.path / "logits.safetensors").string();
  double loss = 0;
  on_ranks(parallel, [&](comm::Communicator& world) {
    const auto mine = run_evaluation(options, world);
    if (world.rank() == 0) loss = mine.loss();
  });
  BOOST_TEST(loss == expected["loss"].get<double>(), boost::test_tools::tolerance(5e-6));
  const auto got = tensor(WeightFiles::open(options.logits), "logits");
  const auto wanted = expected["logits"].get<std::vector<double>>();  // of the first sequence
  BOOST_REQUIRE(got.size() >= wanted.size());
  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < wanted.size(); ++i) BOOST_REQUIRE(std::abs(double(got[i]) - wanted[i]) <= 2e-5 * largest);
}

void check_greedy(const Folder& folder, const nlohmann::json& expected, const engine::ParallelOptions& parallel,
                  const ops::WeightStorage& weights = {}) {
  GenerationOptions options;
  options.model = folder.path.string();
  const auto tokens = reference()["tokens"][0].get<std::vector<std::int32_t>>();
  options.ids = {{tokens.begin(), tokens.begin() + 5}};
  options.max_new_tokens = 12;
  options.ignore_eos = true;
  options.parallel = parallel;
  options.weights = weights;
  std::vector<std::int32_t> got;
  options.on_finished = [&](std::size_t, const GeneratedText& result) { got = result.generated.ids; };
  const GenerationRun run(options);
  on_ranks(parallel, [&](comm::Communicator& world) { run.run(world); });
  if (weights.format == ops::WeightFormat::f32)
    BOOST_TEST(got == expected["greedy"].get<std::vector<std::int32_t>>(), boost::test_tools::per_element());
  else
    BOOST_TEST(got.size() == 12u);  // rounded weights choose their own tokens
}

struct Steps final : TrainingListener {
  std::vector<double> losses, norms;
  void stepped(const engine::StepResult& step, std::size_t) override {
    losses.push_back(step.loss);
    norms.push_back(step.grad_norm);
  }
};

void check_ten_steps(const Folder& folder, const nlohmann::json& expected, const engine::ParallelOptions& parallel) {
  TrainingOptions options;
  options.model = folder.path.string();
  options.data.data = folder.tokens();
  options.data.batch_size = 4;
  options.trainer.parallel = parallel;
  options.trainer.optimizer.beta2 = 0.95;
  options.trainer.optimizer.epsilon = 1e-4;
  options.trainer.grad_clip = 1.0;
  options.lr.peak = 3e-3;
  options.steps = 10;
  options.save = (folder.path / "saved").string();
  Steps steps;
  on_ranks(parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
  BOOST_REQUIRE_EQUAL(steps.losses.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    BOOST_TEST(steps.losses[i] == expected["losses"][i].get<double>(), boost::test_tools::tolerance(2e-4));
    BOOST_TEST(steps.norms[i] == expected["norms"][i].get<double>(), boost::test_tools::tolerance(1e-3));
  }
  const auto saved = WeightFiles::open(options.save);
  BOOST_TEST(saved.tensors().size() == expected["products"].size());
  for (const auto& [name, product] : expected["products"].items()) {
    const auto values = tensor(saved, name);
    const auto factors = formula_values("check " + name, static_cast<std::int64_t>(values.size()));
    double got = 0, size = 1e-2;
    for (std::size_t i = 0; i < values.size(); ++i) {
      got += double(values[i]) * factors[i];
      size += std::abs(double(values[i]) * factors[i]);
    }
    BOOST_TEST(std::abs(got - product.get<double>()) <= 2e-4 * size, name << ": " << got << " and " << product);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(families)

BOOST_AUTO_TEST_CASE(every_family_equals_transformers_in_every_layout) {
  for (const auto& [name, expected] : reference()["cases"].items()) {
    const Folder folder(expected["config"]);
    for (const auto& [pipeline, tensor_ranks] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)})
      BOOST_TEST_CONTEXT(name << ", " << pipeline << " stages, " << tensor_ranks << " tensor-parallel ranks") {
        const auto parallel = layout(pipeline, tensor_ranks);
        check_logits(folder, expected, parallel);
        check_greedy(folder, expected, parallel);
        check_ten_steps(folder, expected, parallel);
      }
  }
}

BOOST_AUTO_TEST_CASE(narrow_weights_and_divided_tokens_work_for_every_family) {
  for (const auto& [name, expected] : reference()["cases"].items()) {
    const Folder folder(expected["config"]);
    BOOST_TEST_CONTEXT(name) {
      for (const auto format : {ops::WeightFormat::bf16, ops::WeightFormat::int8}) check_greedy(folder, expected, layout(1, 1), {format});
      auto divided = layout(1, 2);
      divided.sequence_parallel = true;
      check_logits(folder, expected, divided);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
