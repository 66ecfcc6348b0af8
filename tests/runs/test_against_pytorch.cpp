// Real model folders against transformers and torch.optim.AdamW: logits, and losses, norms and weights of ten steps, for every schedule and
// for splits over ranks. The values come from reference/make_training_reference.py.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/threads.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/training.hpp>

#include "../compare.hpp"
#include "../device.hpp"
#include "../models/helpers.hpp"
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

const char* const folders[] = {"gpt2_tied", "gpt2_untied", "llama_grouped", "llama_tied"};

std::filesystem::path folder_of(const std::string& name) { return data_folder() / "pytorch" / name; }
std::string tokens() { return (data_folder() / "pytorch" / "tokens.npy").string(); }

nlohmann::json expected_figures(const std::string& name) { return nlohmann::json::parse(std::ifstream(folder_of(name) / "expected.json")); }

struct Layout {
  const char* schedule;
  int pipeline = 1, data = 1, stages = 0, microbatches = 1, tensor = 1;
  bool sequence_parallel = false;
  bool shard = false;
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << l.schedule << ", " << l.pipeline << " x " << l.data << " x " << l.tensor << " ranks, " << l.stages << " stages, "
             << l.microbatches << " microbatches" << (l.sequence_parallel ? ", tokens divided" : "") << (l.shard ? ", sharded" : "");
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
                          {"interleavedzerobubble", 2, 2, 2, 2},
                          {"1f1b", 1, 2, 0, 2, 1, false, true},
                          {"zbvzerobubble", 2, 2, 4, 2, 1, false, true}};

// Ranks take turns on these: one CPU, or several GPUs of a kind.
const std::vector<std::shared_ptr<ops::Device>>& test_devices() {
  static const auto& devices = *new auto([] {
    std::vector<std::shared_ptr<ops::Device>> opened;
    for (const std::string& one : ops::find_devices(device_name())) opened.push_back(ops::Device::open(one));
    return opened;
  }());
  return devices;
}

engine::ParallelOptions parallel_options(const Layout& layout) {
  engine::ParallelOptions options;
  options.pipeline = layout.pipeline;
  options.data = layout.data;
  options.tensor = layout.tensor;
  options.sequence_parallel = layout.sequence_parallel;
  options.shard = layout.shard;
  options.stages = layout.stages;
  options.microbatches = layout.microbatches;
  options.schedule = layout.schedule;
  options.devices = test_devices();
  options.device = options.devices.front();
  return options;
}

TrainingOptions training_options(const std::string& name, const Layout& layout) {
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
  return options;
}

void check_logits(const std::string& name, const Layout& layout, const std::string& file) {
  EvaluationOptions options;
  options.model = folder_of(name).string();
  options.data.data = tokens();
  options.data.batch_size = 5;  // 12 sequences: the last batch is a smaller one
  options.parallel = parallel_options(layout);
  options.logits = file;
  EvaluationResult result;
  on_ranks(options.parallel, [&](comm::Communicator& world) {
    const auto mine = run_evaluation(options, world);
    if (world.rank() == 0) result = mine;
  });
  BOOST_TEST(result.loss() == expected_figures(name)["loss"].get<double>(), boost::test_tools::tolerance(2e-6));
  const auto found = WeightFiles::open(options.logits), expected = WeightFiles::open(folder_of(name) / "expected.safetensors");
  BOOST_TEST(difference(found.at("logits"), expected.at("logits")) < 5e-6);
}

// Figures of ten steps and the weights after them.
void check_trained(const std::string& name, const Steps& steps, const std::string& save) {
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

void check_ten_steps(const std::string& name, const Layout& layout, const std::string& save) {
  TrainingOptions options = training_options(name, layout);
  options.save = save;
  Steps steps;
  on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });

  check_trained(name, steps, save);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(against_pytorch)

BOOST_AUTO_TEST_CASE(logits_whole_and_split) {
  const TemporaryFolder temporary;
  for (const std::string name : folders)
    for (const Layout layout : {Layout{"1f1b"}, Layout{"gpipe", 3, 1, 3, 3}, Layout{"zbvzerobubble", 2, 1, 4, 4}})
      BOOST_TEST_CONTEXT(name << ", " << layout) check_logits(name, layout, (temporary.path / "logits.safetensors").string());
}

// Against torch.autocast on CPUs, which keeps weights, sums and the residual stream in f32; ours is bf16. One step of bf16 is 0.4 %.
BOOST_AUTO_TEST_CASE(ten_steps_in_bf16_with_weights_in_f32) {
  for (const std::string name : folders)
    for (const Layout layout : {Layout{"1f1b"}, Layout{"zbvzerobubble", 2, 1, 4, 4}}) BOOST_TEST_CONTEXT(name << ", " << layout) {
        TrainingOptions options = training_options(name, layout);
        options.trainer.parallel.type = ops::Type::bf16;
        Steps steps;
        on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
        const auto figures = nlohmann::json::parse(std::ifstream(folder_of(name) / "expected_bf16.json"));
        BOOST_REQUIRE_EQUAL(steps.losses.size(), 10u);
        for (std::size_t i = 0; i < 10; ++i) {
          BOOST_TEST(steps.losses[i] == figures["losses"][i].get<double>(), boost::test_tools::tolerance(1e-3));
          BOOST_TEST(steps.norms[i] == figures["norms"][i].get<double>(), boost::test_tools::tolerance(2e-2));
        }
      }
}

BOOST_AUTO_TEST_CASE(ten_steps_for_every_schedule_and_split) {
  const TemporaryFolder temporary;
  for (const std::string name : folders)
    for (const Layout& layout : layouts)
      BOOST_TEST_CONTEXT(name << ", " << layout) check_ten_steps(name, layout, (temporary.path / "model").string());
}

// Tensor-parallel ranks: 2, beside others. They have uneven parts of the vocabulary of 37.
const char* const divisible[] = {"gpt2_tied", "gpt2_even", "llama_even"};
const Layout tensor_layouts[] = {{"1f1b", 1, 1, 0, 1, 2},
                                 {"1f1b", 1, 1, 0, 2, 2},
                                 {"1f1b", 2, 1, 0, 4, 2},
                                 {"1f1b", 1, 2, 0, 2, 2},
                                 {"zbvzerobubble", 2, 1, 4, 4, 2},
                                 {"dualpipev", 2, 1, 4, 4, 2},
                                 {"interleavedzerobubble", 2, 2, 4, 2, 2},
                                 {"1f1b", 1, 1, 0, 1, 2, true},
                                 {"zbvzerobubble", 2, 1, 4, 4, 2, true},
                                 {"1f1b", 2, 2, 0, 2, 2, true},
                                 {"1f1b", 1, 2, 0, 2, 2, false, true}};

BOOST_AUTO_TEST_CASE(logits_of_tensor_parallel_ranks) {
  const TemporaryFolder temporary;
  for (const std::string name : divisible)
    for (const Layout layout :
         {Layout{"1f1b", 1, 1, 0, 1, 2}, Layout{"1f1b", 2, 1, 0, 2, 2}, Layout{"1f1b", 1, 2, 0, 2, 2}, Layout{"1f1b", 2, 1, 0, 2, 2, true}})
      BOOST_TEST_CONTEXT(name << ", " << layout) check_logits(name, layout, (temporary.path / "logits.safetensors").string());
}

BOOST_AUTO_TEST_CASE(ten_steps_of_tensor_parallel_ranks) {
  const TemporaryFolder temporary;
  for (const std::string name : divisible) {
    BOOST_TEST_CONTEXT(name << ", one rank") check_ten_steps(name, {"1f1b"}, (temporary.path / "model").string());
    for (const Layout& layout : tensor_layouts)
      BOOST_TEST_CONTEXT(name << ", " << layout) check_ten_steps(name, layout, (temporary.path / "model").string());
  }
}

// Four steps with one layout, the others with another.
void check_resumed(const std::string& name, const Layout& before, const Layout& after, const std::string& save) {
  BOOST_TEST_CONTEXT(name << ", " << before << ", then " << after) {
    Steps steps;
    for (const Layout& layout : {before, after}) {
      TrainingOptions options = training_options(name, layout);
      options.save = save;
      if (steps.losses.empty())
        options.steps = 4;
      else
        options.resume = save;
      on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
    }
    check_trained(name, steps, save);
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_tensor_parallel_ranks_is_resumed_with_other_layouts) {
  const TemporaryFolder temporary;
  const std::string save = (temporary.path / "model").string();
  const Layout tensor{"1f1b", 1, 1, 0, 2, 2}, pipeline{"1f1b", 2, 1, 0, 2}, both{"1f1b", 2, 1, 0, 4, 2};
  for (const std::string name : divisible)
    for (const auto& [before, after] : {std::pair(tensor, pipeline), std::pair(pipeline, tensor), std::pair(tensor, both)})
      check_resumed(name, before, after, save);
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_sharded_ranks_is_resumed_with_other_layouts_and_the_reverse) {
  const TemporaryFolder temporary;
  const std::string save = (temporary.path / "model").string();
  const Layout sharded{"1f1b", 1, 2, 0, 2, 1, false, true}, pipeline{"1f1b", 2, 1, 0, 2},
      all{"interleavedzerobubble", 2, 2, 4, 2, 2, false, true};
  for (const std::string name : {"gpt2_tied", "llama_even"})
    for (const auto& [before, after] : {std::pair(sharded, pipeline), std::pair(pipeline, sharded), std::pair(all, sharded)})
      check_resumed(name, before, after, save);
}

BOOST_AUTO_TEST_CASE(logits_of_sharded_ranks) {
  const TemporaryFolder temporary;
  for (const Layout layout : {Layout{"1f1b", 1, 2, 0, 2, 1, false, true}, Layout{"loopedbfs", 1, 2, 3, 2, 1, false, true}})
    BOOST_TEST_CONTEXT(layout) check_logits("gpt2_untied", layout, (temporary.path / "logits.safetensors").string());
}

BOOST_AUTO_TEST_CASE(models_that_tensor_parallel_ranks_cannot_divide_are_refused_with_the_reason) {
  const auto reason = [](const std::string& name, int ranks) {
    const TrainingOptions options = training_options(name, {"1f1b", 1, 1, 0, 1, ranks});
    Steps steps;
    try {
      on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("not refused");
  };
  BOOST_TEST(reason("gpt2_untied", 2) == "--tp 2 does not divide the 3 heads of transformer.h.0.attn");
  BOOST_TEST(reason("llama_tied", 5) == "--tp 5 does not divide the output width of model.layers.0.mlp.gate_proj, which is 27");
  BOOST_TEST(reason("llama_grouped", 2) == "--tp 2 does not divide the output width of model.layers.0.mlp.gate_proj, which is 27");
  BOOST_TEST(reason("llama_tied", 2) == "--tp 2 does not divide the 5 heads of model.layers.0.self_attn");
  BOOST_TEST(reason("llama_even", 4) == "--tp 4 does not divide the 2 heads of model.layers.0.self_attn");
}

BOOST_AUTO_TEST_SUITE_END()
