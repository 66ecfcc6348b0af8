// Real model folders against transformers and torch.optim.AdamW: logits, and losses, norms and weights of ten steps, for every schedule and
// for splits over ranks. The values come from reference/make_training_reference.py.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include <ppengine/comm/threads.hpp>
#include <ppengine/models/evaluation.hpp>
#include <ppengine/models/safetensors.hpp>
#include <ppengine/models/training.hpp>

#include "helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;

namespace {

const char* const folders[] = {"gpt2_tied", "gpt2_untied", "llama_grouped", "llama_tied"};

std::filesystem::path folder_of(const std::string& name) { return data_folder() / "pytorch" / name; }
std::string tokens() { return (data_folder() / "pytorch" / "tokens.npy").string(); }

nlohmann::json expected_figures(const std::string& name) { return nlohmann::json::parse(std::ifstream(folder_of(name) / "expected.json")); }

std::vector<float> values(const StoredTensor& tensor) {
  std::vector<float> result(tensor.elements);
  read_f32(tensor, 0, tensor.elements, result.data());
  return result;
}

// The largest difference as a share of the largest expected value.
double difference(const StoredTensor& found, const StoredTensor& expected) {
  const auto a = values(found), b = values(expected);
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  double most = 0, largest = 1e-2;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double(a[i]) - double(b[i])));
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return most / largest;
}

struct Layout {
  const char* schedule;
  int pipeline = 1, data = 1, stages = 0, microbatches = 1;
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << l.schedule << ", " << l.pipeline << " x " << l.data << " ranks, " << l.stages << " stages, " << l.microbatches << " microbatches";
}

const Layout layouts[] = {{"1f1b"},
                          {"gpipe", 2, 1, 0, 4},
                          {"1f1b", 4, 1, 0, 3},
                          {"interleaved1f1b", 2, 1, 4, 4},
                          {"loopedbfs", 2, 1, 4, 2},
                          {"interleavedzerobubble", 2, 1, 4, 4},
                          {"interleavedzerobubble", 3, 1, 3, 3},
                          {"zbvzerobubble", 2, 1, 4, 4},
                          {"dualpipev", 2, 1, 4, 4},
                          {"1f1b", 1, 2, 0, 2},
                          {"interleavedzerobubble", 2, 2, 2, 2}};

engine::ParallelOptions parallel_options(const Layout& layout) {
  engine::ParallelOptions options;
  options.pipeline = layout.pipeline;
  options.data = layout.data;
  options.stages = layout.stages;
  options.microbatches = layout.microbatches;
  options.schedule = layout.schedule;
  static const auto device = ops::Device::open();
  options.device = device;
  return options;
}

void on_ranks(const engine::ParallelOptions& options, const std::function<void(comm::Communicator&)>& rank) {
  comm::LocalOptions local;
  local.devices.assign(static_cast<std::size_t>(options.pipeline * options.data), options.device);
  comm::run_threads(options.pipeline * options.data, local, rank);
}

// Hears the figures of every step.
struct Steps final : TrainingListener {
  std::vector<double> losses, norms;
  void stepped(const engine::StepResult& step, std::size_t) override {
    losses.push_back(step.loss);
    norms.push_back(step.grad_norm);
  }
};

void check_ten_steps(const std::string& name, const Layout& layout, const std::string& save) {
  TrainingOptions options;
  options.model = folder_of(name).string();
  options.data.data = tokens();
  options.data.batch_size = 4;
  options.trainer.parallel = parallel_options(layout);
  options.trainer.optimizer.beta2 = 0.95;
  options.trainer.optimizer.epsilon = 1e-4;
  options.trainer.grad_clip = 1.0;
  options.lr.peak = 3e-3;
  options.steps = 10;
  options.save = save;
  Steps steps;
  on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });

  const auto figures = expected_figures(name);
  BOOST_REQUIRE_EQUAL(steps.losses.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    BOOST_TEST(steps.losses[i] == figures["losses"][i].get<double>(), boost::test_tools::tolerance(2e-5));
    BOOST_TEST(steps.norms[i] == figures["norms"][i].get<double>(), boost::test_tools::tolerance(2e-4));
  }
  const auto found = WeightFiles::open(save), expected = WeightFiles::open(folder_of(name) / "expected.safetensors");
  for (const StoredTensor& weight : expected.tensors()) {
    if (weight.name == "logits") continue;
    const double apart = difference(found.at(weight.name), weight);
    BOOST_TEST(apart < 2e-4, weight.name << " is " << apart << " apart");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(against_pytorch)

BOOST_AUTO_TEST_CASE(logits_whole_and_split) {
  const TemporaryFolder temporary;
  for (const std::string name : folders)
    for (const Layout layout : {Layout{"1f1b"}, Layout{"gpipe", 3, 1, 3, 3}, Layout{"zbvzerobubble", 2, 1, 4, 4}}) {
      BOOST_TEST_CONTEXT(name << ", " << layout) {
        EvaluationOptions options;
        options.model = folder_of(name).string();
        options.data.data = tokens();
        options.data.batch_size = 5;  // 12 sequences: the last batch is a smaller one
        options.parallel = parallel_options(layout);
        options.logits = (temporary.path / "logits.safetensors").string();
        EvaluationResult result;
        on_ranks(options.parallel, [&](comm::Communicator& world) {
          const auto mine = run_evaluation(options, world);
          if (world.rank() == 0) result = mine;
        });
        BOOST_TEST(result.loss() == expected_figures(name)["loss"].get<double>(), boost::test_tools::tolerance(2e-6));
        const auto found = WeightFiles::open(options.logits), expected = WeightFiles::open(folder_of(name) / "expected.safetensors");
        BOOST_TEST(difference(found.at("logits"), expected.at("logits")) < 5e-6);
      }
    }
}

BOOST_AUTO_TEST_CASE(ten_steps_for_every_schedule_and_split) {
  const TemporaryFolder temporary;
  for (const std::string name : folders)
    for (const Layout& layout : layouts)
      BOOST_TEST_CONTEXT(name << ", " << layout) check_ten_steps(name, layout, (temporary.path / "model").string());
}

BOOST_AUTO_TEST_SUITE_END()
