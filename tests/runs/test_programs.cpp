// Programs exported by torch.export against PyTorch: losses, norms, weights and outputs of ten AdamW steps, whole and split over ranks. The
// files and values come from reference/make_program_reference.py (torch 2.13).
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/models/files/safetensors.hpp>
#include <ppengine/ops/device/kernel_library.hpp>
#include <ppengine/runs/program.hpp>

#include "../models/helpers.hpp"
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

std::filesystem::path folder_of(const std::string& name) { return data_folder() / "programs" / name; }
nlohmann::json figures_of(const std::string& name) { return nlohmann::json::parse(std::ifstream(folder_of(name) / "expected.json")); }

// As a share of the largest expected value; what is not f32 is equal or infinitely far away.
double apart(const models::StoredTensor& found, const models::StoredTensor& expected) {
  BOOST_REQUIRE_EQUAL(found.elements, expected.elements);
  if (expected.type != models::StoredType::f32) return std::equal(found.data, found.data + found.bytes, expected.data) ? 0.0 : INFINITY;
  return largest_share(values(found), values(expected), 1e-3);
}

struct Layout {
  const char* schedule;
  int pipeline, data, stages;
  bool sync_batchnorm = false;
  bool patterns = true;
  int microbatches = 2;  // without batch norm any number gives the same
  bool onednn = true;
};

engine::ParallelOptions parallel_options(const Layout& layout) {
  engine::ParallelOptions options;
  options.schedule = layout.schedule, options.pipeline = layout.pipeline, options.data = layout.data, options.stages = layout.stages;
  options.microbatches = layout.microbatches / layout.data;
  static const auto device = ops::Device::open(), plain = ops::Device::open("cpu", false);
  options.device = layout.onednn ? device : plain;
  return options;
}

TrainingOptions training_options(const std::string& name, const Layout& layout) {
  const auto figures = figures_of(name);
  TrainingOptions options;
  options.model = (folder_of(name) / "net.pt2").string();
  options.data.data = (folder_of(name) / "data.safetensors").string();
  options.data.batch_size = 8;
  options.program.loss = figures["loss"].get<std::string>();
  options.program.class_dim = figures["class_dim"].get<int>();
  options.trainer.parallel = parallel_options(layout);
  options.trainer.optimizer.weight_decay = 0.01;
  options.lr.peak = 1e-3;
  options.steps = 10;
  options.program.sync_batchnorm = layout.sync_batchnorm;
  options.program.patterns = layout.patterns;
  return options;
}

void check_training(const std::string& name, const Layout& layout, const std::string& save) {
  BOOST_TEST_CONTEXT(name << " " << layout.schedule << " " << layout.pipeline << " x " << layout.data) {
    const auto figures = figures_of(name);
    TrainingOptions options = training_options(name, layout);
    options.save = save;
    Steps steps;
    on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
    BOOST_REQUIRE_EQUAL(steps.losses.size(), 10u);
    const char *losses = layout.sync_batchnorm ? "whole_losses" : "losses", *norms = layout.sync_batchnorm ? "whole_norms" : "norms";
    for (std::size_t i = 0; i < 10; ++i) {
      BOOST_TEST(steps.losses[i] == figures[losses][i].get<double>(), boost::test_tools::tolerance(1e-4));
      BOOST_TEST(steps.norms[i] == figures[norms][i].get<double>(), boost::test_tools::tolerance(2e-4));
    }
    if (layout.sync_batchnorm) return;
    const auto found = models::WeightFiles::open(save), expected = models::WeightFiles::open(folder_of(name) / "expected.safetensors");
    for (const models::StoredTensor& weight : expected.tensors()) {
      // Running statistics follow the first data-parallel rank's microbatches alone.
      if (weight.name == "expected.output" ||
          (layout.data > 1 && (weight.name.find("running_") != std::string::npos || weight.name.find("num_batches") != std::string::npos)))
        continue;
      // The gradient of the keys' part is zero but for rounding, of which AdamW makes whole steps, in PyTorch as here.
      if (weight.name.ends_with("in_proj_bias")) continue;
      const double off = apart(found.at(weight.name), weight);
      BOOST_TEST(off < 2e-4, weight.name << " is " << off << " apart");
    }
    for (const nlohmann::json& one : figures.value("frozen", nlohmann::json::array())) {  // no gradient: no weight decay either
      const auto now = values(found.at(one.get<std::string>())),
                 before = values(models::load_program(options.model)->tensor(one.get<std::string>()));
      BOOST_TEST(now == before, one << " has changed");
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(programs)

BOOST_AUTO_TEST_CASE(ten_steps_on_one_rank) {
  const TemporaryFolder folder;
  for (const char* name :
       {"mlp", "cnn", "unet", "tail", "gru", "tied", "shapes", "segmenter", "gpt2", "llama", "encoder", "state", "twins"})
    check_training(name, {"1f1b", 1, 1, 0}, (folder.path / name).string());
}

BOOST_AUTO_TEST_CASE(ten_steps_split_into_stages) {
  const TemporaryFolder folder;
  check_training("mlp", {"zbvzerobubble", 2, 1, 4}, (folder.path / "a").string());
  check_training("cnn", {"interleavedzerobubble", 2, 1, 4}, (folder.path / "b").string());
  check_training("unet", {"gpipe", 3, 1, 3}, (folder.path / "c").string());  // a skip connection over stages
  check_training("cnn", {"1f1b", 1, 2, 0}, (folder.path / "d").string());
  check_training("tied", {"dualpipev", 2, 1, 4, false, true, 4}, (folder.path / "e").string());  // a weight on two ranks
  check_training("gru", {"1f1b", 2, 2, 2}, (folder.path / "f").string());
  check_training("gpt2", {"zbvzerobubble", 2, 1, 4}, (folder.path / "g").string());
  check_training("state", {"1f1b", 2, 1, 2}, (folder.path / "h").string());
  check_training("twins", {"zbvzerobubble", 2, 1, 4}, (folder.path / "i").string());
}

// What devices without oneDNN run: our own kernels and generated ones.
BOOST_AUTO_TEST_CASE(ten_steps_without_onednn) {
  const TemporaryFolder folder;
  for (const char* name : {"cnn", "unet", "statistics"})
    check_training(name, {.schedule = "1f1b", .pipeline = 1, .data = 1, .stages = 0, .onednn = false}, (folder.path / name).string());
}

// Masks that turn out causal or empty, GELU and RMS norm written out, sums behind linear layers: the ops of built-in models. Without them
// the same losses and weights come out of generated kernels.
BOOST_AUTO_TEST_CASE(layers_that_programs_spell_out_are_recognised) {
  const TemporaryFolder folder;
  const auto kinds = [](const std::string& name, bool patterns) {
    models::ProgramOptions options;
    options.patterns = patterns;
    std::map<std::string, int> found;
    const auto graph = models::load_program((folder_of(name) / "net.pt2").string())->build(options).graph;
    for (const engine::Node& node : graph->nodes()) ++found[node.op->kind()];
    return found;
  };
  const auto gpt2 = kinds("gpt2", true), llama = kinds("llama", true), encoder = kinds("encoder", true);
  BOOST_TEST(gpt2.at("causal_attention") == 2);
  BOOST_TEST(gpt2.at("activation") == 2);  // GELU by tanh
  BOOST_TEST(gpt2.at("add") == 4);
  BOOST_TEST(llama.at("causal_attention") == 2);
  BOOST_TEST(llama.at("rms_norm") == 5);
  BOOST_TEST(llama.at("rotary") == 4);
  BOOST_TEST(encoder.at("attention") == 2);
  BOOST_TEST(kinds("unet", true).at("group_norm") > 0);
  for (const char* name : {"gpt2", "llama", "encoder", "unet"}) {
    const auto plain = kinds(name, false);
    for (const char* kind : {"causal_attention", "attention", "activation", "add", "rms_norm", "rotary", "group_norm"})
      BOOST_TEST(!plain.contains(kind), name << " has " << kind);
    check_training(name, {"1f1b", 1, 1, 0, false, false}, (folder.path / name).string());
  }
}

// Memory and kernels are there after the first steps.
BOOST_AUTO_TEST_CASE(a_steady_step_allocates_nothing_and_looks_up_no_kernel) {
  struct Counts final : TrainingListener {
    std::shared_ptr<ops::Device> device;
    std::vector<std::pair<std::size_t, std::size_t>> steps;  // allocations and lookups until then
    void stepped(const engine::StepResult&, std::size_t) override {
      steps.emplace_back(device->memory().allocations(), device->kernels().lookups());
    }
  };
  for (const auto& [name, layout] : {std::pair("cnn", Layout{"1f1b", 1, 1, 0}), std::pair("state", Layout{"1f1b", 1, 1, 0}),
                                     std::pair("unet", Layout{"gpipe", 2, 1, 2}), std::pair("llama", Layout{"zbvzerobubble", 2, 1, 4})})
    BOOST_TEST_CONTEXT(name) {
      TrainingOptions options = training_options(name, layout);
      Counts counts;
      counts.device = options.trainer.parallel.device;
      on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, counts); });
      BOOST_REQUIRE_EQUAL(counts.steps.size(), 10u);
      BOOST_TEST(counts.steps[0].second > 0u);
      BOOST_TEST(counts.steps[9].first == counts.steps[4].first);
      BOOST_TEST(counts.steps[9].second == counts.steps[4].second);
    }
}

BOOST_AUTO_TEST_CASE(batch_norm_over_data_parallel_ranks) {
  const TemporaryFolder folder;
  check_training("cnn", {"1f1b", 1, 2, 0, true}, (folder.path / "a").string());
  check_training("cnn", {"1f1b", 2, 2, 2, true}, (folder.path / "b").string());
}

BOOST_AUTO_TEST_CASE(outputs_of_a_saved_folder) {
  const TemporaryFolder folder;
  for (const char* name : {"cnn", "unet", "statistics"}) {
    const std::string save = (folder.path / name).string();
    check_training(name, {"1f1b", 1, 1, 0}, save);
    EvaluationOptions options;
    options.model = save;
    options.data.data = (folder_of(name) / "data.safetensors").string();
    options.data.batch_size = 5;  // the last batch is a smaller one
    options.parallel = parallel_options({"1f1b", 2, 1, 2});
    options.outputs = (folder.path / "outputs.safetensors").string();
    on_ranks(options.parallel, [&](comm::Communicator& world) { run_evaluation(options, world); });
    const auto found = models::WeightFiles::open(options.outputs),
               expected = models::WeightFiles::open(folder_of(name) / "expected.safetensors");
    BOOST_TEST(apart(found.at("output"), expected.at("expected.output")) < 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(data_of_another_shape_is_refused) {
  const auto program = models::load_program((folder_of("mlp") / "net.pt2").string());
  const auto build = [&](std::vector<std::int64_t> input, std::vector<std::int64_t> targets) {
    models::ProgramOptions options;
    options.loss = models::ProgramLoss::mse;
    options.sizes = {{"input", std::move(input)}, {"targets", std::move(targets)}};
    return program->build(options).unsupported.empty();
  };
  BOOST_TEST(build({10}, {3}));
  BOOST_TEST(build({1, 10}, {3, 1}));
  BOOST_CHECK_THROW(build({5, 2}, {3}), ConfigError);  // as many elements
  BOOST_CHECK_THROW(build({9}, {3}), ConfigError);
  BOOST_CHECK_THROW(build({10}, {}), ConfigError);
}

BOOST_AUTO_TEST_CASE(files_that_are_no_programs_are_refused) {
  const TemporaryFolder folder;
  const auto file = folder.path / "broken.pt2";
  const auto whole = [&] {
    std::ifstream in(folder_of("mlp") / "net.pt2", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  for (std::size_t keep : {std::size_t{0}, std::size_t{10}, whole.size() / 3, whole.size() / 2, whole.size() - 30}) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, keep);
    BOOST_CHECK_THROW(models::load_program(file.string()), FileError);
  }
  // Any byte may be wrong: an error, or a program, never a crash.
  for (std::size_t at = 0; at < whole.size(); at += 997) {
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ 0x55);
    std::ofstream(file, std::ios::binary) << text;
    try {
      models::load_program(file.string())->build({});
    } catch (const Error&) {
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
