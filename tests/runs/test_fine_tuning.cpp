// LoRA against peft (values from tests/models/reference/make_lora_reference.py), and runs on .jsonl data: padded, of variable length and
// packed ones against each other. What such data becomes is in test_examples.cpp.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>

#include <ppengine/comm/threads.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/runs/checkpoint.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/training.hpp>
#include <ppengine/runs/training/tensorboard.hpp>

#include "../models/helpers.hpp"
#include "support.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;
using namespace ppengine::test;

namespace {

std::filesystem::path folder_of(const std::string& name) { return data_folder() / "pytorch" / name; }

struct Layout {
  const char* schedule = "1f1b";
  int pipeline = 1, data = 1, tensor = 1, stages = 0, microbatches = 1;
  bool shard = false;
};

engine::ParallelOptions parallel(const Layout& layout) {
  static const auto device = ops::Device::open();
  engine::ParallelOptions options;
  options.schedule = layout.schedule;
  options.pipeline = layout.pipeline;
  options.data = layout.data;
  options.tensor = layout.tensor;
  options.stages = layout.stages;
  options.microbatches = layout.microbatches;
  options.shard = layout.shard;
  options.device = device;
  return options;
}

Steps train(const TrainingOptions& options) {
  Steps steps;
  on_ranks(options.trainer.parallel, [&](comm::Communicator& world) { run_training(options, world, steps); });
  return steps;
}

TrainingOptions ten_steps(const std::string& name, const Layout& layout) {
  TrainingOptions options;
  options.model = folder_of(name).string();
  options.data.data = (data_folder() / "pytorch" / "tokens.npy").string();
  options.data.batch_size = 4;
  options.trainer.parallel = parallel(layout);
  options.trainer.optimizer.beta2 = 0.95;
  options.trainer.optimizer.epsilon = 1e-4;
  options.trainer.grad_clip = 1.0;
  options.lr.peak = 3e-3;
  options.steps = 10;
  return options;
}

void check_logits(const std::string& model, const std::string& adapter, const StoredTensor& expected, const Layout& layout = {}) {
  const TemporaryFolder temporary;
  EvaluationOptions options;
  options.model = model;
  options.adapter = adapter;
  options.data.data = (data_folder() / "pytorch" / "tokens.npy").string();
  options.parallel = parallel(layout);
  options.logits = (temporary.path / "logits.safetensors").string();
  on_ranks(options.parallel, [&](comm::Communicator& world) { run_evaluation(options, world); });
  BOOST_TEST(difference(WeightFiles::open(options.logits).at("logits"), expected) < 2e-4);
}

const char* const adapted[] = {"gpt2_even", "llama_even"};

std::string examples() {
  std::string text;
  for (int i = 0; i < 9; ++i) {
    const std::string word(static_cast<std::size_t>(1 + 3 * i % 11), static_cast<char>('a' + i));
    text +=
        i % 3 == 0 ? nlohmann::json{{"prompt", word}, {"completion", word + word}}.dump() : nlohmann::json{{"text", word + "xyz"}}.dump();
    text += i % 4 == 0 ? "\n\n" : "\n";
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fine_tuning)

BOOST_AUTO_TEST_CASE(ten_steps_of_lora_as_peft) {
  const TemporaryFolder temporary;
  const std::string save = (temporary.path / "adapter").string();
  const Layout layouts[] = {{},
                            {"interleavedzerobubble", 2, 1, 1, 2, 2},
                            {"1f1b", 1, 2, 1, 0, 2},
                            {"1f1b", 1, 1, 2, 0, 2},
                            {"1f1b", 2, 2, 1, 0, 2, true},
                            {"zbvzerobubble", 2, 1, 2, 4, 4}};
  for (const std::string name : adapted) {
    const auto folder = folder_of(name) / "lora";
    const auto figures = nlohmann::json::parse(std::ifstream(folder / "expected.json"));
    const auto expected = WeightFiles::open(folder / "expected.safetensors");
    check_logits(folder_of(name).string(), folder.string(), expected.at("logits"));
    for (const Layout& layout : layouts)
      BOOST_TEST_CONTEXT(name << ", " << layout.schedule << ", " << layout.pipeline << " x " << layout.data << " x " << layout.tensor) {
        TrainingOptions options = ten_steps(name, layout);
        options.adapter = folder.string();
        options.save = save;
        const Steps steps = train(options);
        BOOST_REQUIRE_EQUAL(steps.losses.size(), 10u);
        for (std::size_t i = 0; i < 10; ++i) {
          BOOST_TEST(steps.losses[i] == figures["losses"][i].get<double>(), boost::test_tools::tolerance(2e-5));
          BOOST_TEST(steps.norms[i] == figures["norms"][i].get<double>(), boost::test_tools::tolerance(2e-4));
        }
        const auto found = WeightFiles::open(std::filesystem::path(save) / "adapter_model.safetensors");
        BOOST_TEST(found.tensors().size() + 2 == expected.tensors().size());
        for (const StoredTensor& tensor : found.tensors()) BOOST_TEST(difference(tensor, expected.at(tensor.name)) < 2e-4, tensor.name);
      }
    check_logits(folder_of(name).string(), save, expected.at("logits_after"), {"1f1b", 1, 1, 2});
    merge_adapter(folder_of(name), save, temporary.path / "merged");
    check_logits((temporary.path / "merged").string(), "", expected.at("logits_after"), {"1f1b", 2, 1, 1, 0, 2});
  }
}

BOOST_AUTO_TEST_CASE(an_adapter_is_resumed_as_if_it_had_gone_on) {
  const TemporaryFolder temporary;
  TrainingOptions options = ten_steps("gpt2_even", {});
  options.lora = {.rank = 2, .targets = {}};
  options.save = (temporary.path / "whole").string();
  const Steps whole = train(options);
  options.save = (temporary.path / "parts").string();
  options.steps = 4;
  options.keep = 2;
  options.save_every = 2;
  train(options);
  BOOST_TEST(std::filesystem::exists(options.save + ".step-2"));
  options.steps = 10;
  options.resume = options.save;
  options.save_async = true;
  options.trainer.parallel = parallel({"1f1b", 2, 1, 1, 0, 2});
  const Steps rest = train(options);
  BOOST_REQUIRE_EQUAL(rest.losses.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) BOOST_TEST(rest.losses[i] == whole.losses[i + 4], boost::test_tools::tolerance(2e-5));
  BOOST_TEST(std::filesystem::exists(options.save + ".step-8"));
  BOOST_TEST(!std::filesystem::exists(options.save + ".step-2"));
  BOOST_TEST(find_checkpoint(options.save)->step == 10);
}

BOOST_AUTO_TEST_CASE(adapters_that_do_not_fit_are_refused_by_name) {
  const auto error = [](const std::string& model, const std::string& adapter) {
    return error_of([&] { Adapter::open(folder_of(adapter) / "lora").check(*build_graph(load_config(folder_of(model)))); });
  };
  BOOST_TEST(contains(error("gpt2_even", "llama_even"), "the model has no linear model.layers.0"));
  BOOST_TEST(error("llama_even", "llama_even") == "no error");
  BOOST_TEST(contains(error_of([] { Adapter::open(folder_of("gpt2_even")); }), "adapter_config.json is missing"));
  BOOST_TEST(contains(error_of([] { open_model((folder_of("llama_even") / "lora").string()); }), "is an adapter and no model"));

  // One rank in the configuration, another in the tensors, as after a mix-up of two adapters: peft refuses that too.
  const TemporaryFolder temporary;
  const auto lora = folder_of("gpt2_even") / "lora";
  std::filesystem::copy_file(lora / "adapter_model.safetensors", temporary.path / "adapter_model.safetensors");
  auto json = nlohmann::json::parse(std::ifstream(lora / "adapter_config.json"));
  json["r"] = json["r"].get<int>() + 1;
  temporary.write("adapter_config.json", json.dump());
  BOOST_TEST(contains(error_of([&] { Adapter::open(temporary.path); }), "adapter_config.json says"));
}

// As peft 0.21 takes them: the first pattern of the file that fits counts.
BOOST_AUTO_TEST_CASE(an_adapter_is_read_as_its_configuration_says_or_refused) {
  struct Changed : TemporaryFolder {
    Changed(const char* key, const std::string& value) {
      const auto from = folder_of("llama_even") / "lora";
      auto json = nlohmann::ordered_json::parse(std::ifstream(from / "adapter_config.json"));
      json[key] = nlohmann::ordered_json::parse(value);
      write("adapter_config.json", json.dump());
      std::filesystem::copy_file(from / "adapter_model.safetensors", path / "adapter_model.safetensors");
    }
  };
  const Changed alphas("alpha_pattern", R"({"self_attn.v_proj": 2, "layers.0.*": 7})");
  const Adapter adapter = Adapter::open(alphas.path);
  BOOST_TEST(adapter.options().alphas.at("model.layers.0.self_attn.v_proj") == 2);
  BOOST_TEST(adapter.options().alphas.at("model.layers.0.self_attn.q_proj") == 7);
  BOOST_TEST(!adapter.options().alphas.contains("model.layers.1.self_attn.q_proj"));
  for (const auto& [key, value] :
       {std::pair("init_lora_weights", "\"pissa_niter_4\""), std::pair("init_lora_weights", "\"olora\""), std::pair("use_dora", "true"),
        std::pair("lora_bias", "true"), std::pair("alora_invocation_tokens", "[1, 2]"), std::pair("modules_to_save", "[\"lm_head\"]")}) {
    const Changed folder(key, value);
    BOOST_TEST(contains(error_of([&] { Adapter::open(folder.path); }), std::string("adapter_config.json: ") + key), key);
  }
  const Changed gaussian("init_lora_weights", "\"gaussian\"");
  BOOST_TEST(error_of([&] { Adapter::open(gaussian.path); }) == "no error");
}

// Batches of one example: of four, one has anything to learn.
BOOST_AUTO_TEST_CASE(a_batch_with_nothing_to_learn_is_left_out) {
  const TemporaryFolder temporary;
  const auto file = temporary.write("data.jsonl",
                                    "{\"text\": \"\"}\n{\"text\": \"x\"}\n{\"text\": \"abc\"}\n"
                                    "{\"prompt\": \"abcdefg\", \"completion\": \"h\"}\n");
  TrainingOptions options;
  options.model = "demo";
  options.data.data = file.string();
  options.data.sequence_length = 4;
  options.data.batch_size = 1;
  options.steps = 3;
  options.trainer.parallel = parallel({});
  const Steps mixed = train(options);
  options.data.data = temporary.write("one.jsonl", "{\"text\": \"abc\"}\n").string();
  const Steps alone = train(options);
  BOOST_TEST(mixed.losses == alone.losses, boost::test_tools::per_element());
  options.data.data = temporary.write("none.jsonl", "{\"text\": \"\"}\n{\"text\": \"\"}\n").string();
  BOOST_TEST(contains(error_of([&] { train(options); }), "no example has anything to learn"));
}

// Each run sees every example once: eight bytes' examples in sequences of their own, or packed.
BOOST_AUTO_TEST_CASE(packed_and_variable_runs_equal_padded_ones) {
  const TemporaryFolder temporary;
  TrainingOptions options;
  options.model = "demo";
  options.data.data = temporary.write("data.jsonl", examples()).string();
  options.data.sequence_length = 24;
  options.data.batch_size = 9;
  options.trainer.parallel = parallel({});
  options.lr.peak = 1e-3;
  options.steps = 1;
  const Steps padded = train(options);
  options.steps = 2;
  const Steps twice = train(options);
  options.data.variable_lengths = true;
  options.trainer.parallel = parallel({"1f1b", 2, 1, 1, 0, 3});
  const Steps variable = train(options);
  for (std::size_t i = 0; i < 2; ++i) {
    BOOST_TEST(variable.losses[i] == twice.losses[i], boost::test_tools::tolerance(1e-5));
    BOOST_TEST(variable.norms[i] == twice.norms[i], boost::test_tools::tolerance(1e-5));
  }
  options.data.pack = true;
  options.data.variable_lengths = false;
  options.steps = 1;
  const auto source = open_source(open_model("demo"), options.data);
  options.data.batch_size = static_cast<std::int64_t>(source->sequences());
  BOOST_TEST(options.data.batch_size < 9);
  options.trainer.parallel = parallel({"zbvzerobubble", 2, 1, 1, 4, 2});
  const Steps packed = train(options);
  BOOST_TEST(packed.losses[0] == padded.losses[0], boost::test_tools::tolerance(1e-5));
  BOOST_TEST(packed.norms[0] == padded.norms[0], boost::test_tools::tolerance(1e-5));
}

// The checksum of the first record is that of TensorFlow's own files with the same bytes: CRC-32C of "123456789" is 0xe3069283.
BOOST_AUTO_TEST_CASE(event_files_have_records_of_the_right_form) {
  const TemporaryFolder temporary;
  TensorBoardFile file(temporary.path / "events");
  file.write(7, {{"loss", 0.5}});
  std::ifstream stream(file.path(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  BOOST_TEST(contains(bytes, "brain.Event:2"));
  const std::string scalar = std::string("\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 13);
  BOOST_TEST(contains(bytes, scalar));
}

// The base in 8 bits: near the run in f32, and the same however it is divided.
BOOST_AUTO_TEST_CASE(lora_over_a_packed_base) {
  TrainingOptions options = ten_steps("llama_even", {});
  options.adapter = (folder_of("llama_even") / "lora").string();
  options.steps = 3;
  const Steps wide = train(options);
  options.weights.format = ops::WeightFormat::int8;
  const Steps narrow = train(options);
  for (const Layout& layout : {Layout{"1f1b", 2, 1, 1, 0, 2}, Layout{"1f1b", 1, 1, 2, 0, 2}, Layout{"1f1b", 1, 2, 1, 0, 2}}) {
    options.trainer.parallel = parallel(layout);
    const Steps divided = train(options);
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST(narrow.losses[i] != wide.losses[i]);
      BOOST_TEST(narrow.losses[i] == wide.losses[i], boost::test_tools::tolerance(1e-2));
      BOOST_TEST(divided.losses[i] == narrow.losses[i], boost::test_tools::tolerance(2e-5));
      BOOST_TEST(divided.norms[i] == narrow.norms[i], boost::test_tools::tolerance(2e-4));
    }
  }
  options.adapter.clear();
  BOOST_TEST(contains(error_of([&] { train(options); }), "it goes with --lora-rank or --adapter"));
}

// Stages are balanced by measuring modules one by one: a linear without bias has packed weights and nothing else.
BOOST_AUTO_TEST_CASE(a_packed_base_without_biases_is_balanced_over_stages) {
  TrainingOptions options = ten_steps("llama_tied", {});
  options.lora.rank = 2;
  options.lora.targets = {"q_proj"};
  options.steps = 2;
  options.weights.format = ops::WeightFormat::int8;
  const Steps one = train(options);
  options.trainer.parallel = parallel({"1f1b", 2, 1, 1, 0, 2});
  options.trainer.parallel.balance = engine::Balance::measured;
  const Steps two = train(options);
  BOOST_REQUIRE_EQUAL(two.losses.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) BOOST_TEST(two.losses[i] == one.losses[i], boost::test_tools::tolerance(2e-5));
  options.lora.targets = {"lm_head"};
  BOOST_TEST(contains(error_of([&] { train(options); }), "lm_head has its weight from elsewhere"));
}

// Ranks that have a parameter in common (norms of tensor-parallel ranks, a tied embedding) round its moments alike: a checkpoint, which
// holds one of them, goes on bit for bit.
BOOST_AUTO_TEST_CASE(narrow_moments_go_on_bit_for_bit_where_ranks_share_a_parameter) {
  for (const auto& [name, layout] :
       {std::pair("llama_even", Layout{"1f1b", 1, 1, 2, 0, 2}), std::pair("gpt2_tied", Layout{"1f1b", 2, 1, 1, 0, 2})}) {
    const TemporaryFolder temporary;
    TrainingOptions options = ten_steps(name, layout);
    options.trainer.optimizer.state_type = ops::Type::bf16;
    const Steps whole = train(options);
    options.steps = 6;
    options.save = (temporary.path / "half").string();
    train(options);
    options.steps = 10;
    options.resume = options.save;
    const Steps rest = train(options);
    BOOST_REQUIRE_EQUAL(rest.losses.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) BOOST_TEST(rest.losses[i] == whole.losses[i + 6], name << ", step " << i + 7);
  }
}

// optimizers.json: tests/models/reference/make_optimizer_reference.py. Muon iterates in bf16: where sums are added in another order, a
// number may be rounded otherwise.
BOOST_AUTO_TEST_CASE(ten_steps_of_other_optimizers_as_pytorch) {
  const auto expected = nlohmann::json::parse(std::ifstream(data_folder() / "pytorch" / "optimizers.json"));
  for (const char* name : {"gpt2_even", "llama_even"})
    for (const char* kind : {"muon", "adafactor", "sgd"})
      for (const Layout& layout : {Layout{}, Layout{"zbvzerobubble", 2, 1, 1, 4, 4}, Layout{"1f1b", 1, 2, 1, 0, 2, true}}) {
        TrainingOptions options = ten_steps(name, layout);
        options.trainer.optimizer.kind = engine::parse_optimizer(kind);
        options.trainer.optimizer.beta2 = 0.999;
        options.trainer.optimizer.momentum = 0.9;
        options.trainer.grad_clip = 0;
        options.lr.peak = 1e-2;
        const Steps steps = train(options);
        const auto& reference = expected.at(name).at(kind);
        BOOST_REQUIRE_EQUAL(steps.losses.size(), 10u);
        for (std::size_t i = 0; i < 10; ++i) {
          BOOST_TEST(steps.losses[i] == reference.at("losses")[i].get<double>(), boost::test_tools::tolerance(2e-4));
          BOOST_TEST(steps.norms[i] == reference.at("norms")[i].get<double>(), boost::test_tools::tolerance(5e-3));
        }
      }
}

BOOST_AUTO_TEST_CASE(adafactor_is_resumed_as_if_it_had_gone_on) {
  const TemporaryFolder temporary;
  TrainingOptions options = ten_steps("gpt2_even", {});
  options.trainer.optimizer.kind = engine::OptimizerKind::adafactor;
  options.steps = 4;
  const Steps whole = train(options);
  options.steps = 2;
  options.save = (temporary.path / "half").string();
  train(options);
  options.steps = 4;
  options.resume = options.save;
  options.trainer.parallel = parallel({"1f1b", 2, 2, 1, 0, 2});
  const Steps rest = train(options);
  BOOST_REQUIRE_EQUAL(rest.losses.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) BOOST_TEST(rest.losses[i] == whole.losses[i + 2], boost::test_tools::tolerance(2e-5));
}

BOOST_AUTO_TEST_SUITE_END()
