// Predictions: counted work against the instructions of compiled stages, times by hand on a device of round numbers, known devices.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>
#include <set>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/measure/measure.hpp>
#include <ppengine/engine/predict/prediction.hpp>
#include <ppengine/engine/stage/compiled_stage.hpp>
#include <ppengine/schedules/registry.hpp>

using namespace ppengine;
using namespace ppengine::engine;

namespace {

// Two blocks of a small GPT-2, with all that one has.
Graph small_model() {
  Graph graph;
  Value x = graph.embedding(graph.tokens("input_ids"), "wte", {.vocabulary = 128, .width = 64, .positions = 32, .position_module = "wpe"});
  for (const char* name : {"h.0", "h.1"}) {
    const auto block = graph.module(name);
    Value y = graph.norm(x, "ln_1", {});
    y = graph.linear(y, "c_attn", {.out = 192});
    y = graph.attention(y, {.heads = 2, .kv_heads = 2, .head_dim = 32});
    x = graph.add(x, graph.linear(y, "c_proj", {.out = 64}));
    y = graph.linear(graph.norm(x, "ln_2", {}), "c_fc", {.out = 256});
    y = graph.activation(y, ops::ActivationKind::gelu_tanh);
    x = graph.add(x, graph.linear(y, "c_out", {.out = 64}));
  }
  x = graph.linear(graph.norm(x, "ln_f", {}), "lm_head", {.out = 128, .bias = false});
  graph.loss(graph.cross_entropy(x, graph.tokens("targets")));
  return graph;
}

DeviceModel round_device() {
  DeviceModel device;
  device.name = device.title = "round";
  device.peak["f32"] = 1e12;
  device.bandwidth = 1e11;
  device.link = 1e10;
  device.launch = 1e-6;
  device.latency = 1e-5;
  return device;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(prediction)

BOOST_AUTO_TEST_CASE(counted_work_is_that_of_the_compiled_stage) {
  const Graph graph = small_model();
  const StageCut whole = split_everywhere(graph).empty() ? StageCut{} : split_evenly(graph, 1, estimated_costs(graph, 2, 32)).front();
  const StageWork counted = count_work(graph, whole, {.batch = 2, .length = 32});

  const auto device = ops::Device::open("cpu");
  ParameterStore parameters(device, graph, plain_layout(graph, whole.parameters), ops::Type::f32, true);
  CompileOptions options;
  options.batch = 2;
  options.length = 32;
  const CompiledStage stage(device, graph, whole, parameters, options);
  struct Sum {
    int instructions = 0;
    double bytes = 0;
  };
  std::map<std::string, Sum> compiled, expected;
  const auto add = [&](const Program& program) {
    for (const Instruction& one : program) {
      std::set<BufferId> touched(one.reads.begin(), one.reads.end());
      touched.insert(one.writes.begin(), one.writes.end());
      Sum& sum = compiled[one.kind];
      ++sum.instructions;
      for (BufferId id : touched)
        if (id != no_buffer) sum.bytes += double(stage.bytes(id));
    }
  };
  add(stage.forward_program());
  add(stage.backward_program());
  for (const auto* half : {&counted.forward, &counted.backward_input, &counted.backward_weight})
    for (const Work& one : *half) {
      Sum& sum = expected[one.kind];
      ++sum.instructions;
      sum.bytes += one.bytes;
    }
  // The products, where the time goes: as many instructions, and the same bytes but for what ops keep beside (statistics, workspaces).
  for (const char* kind : {"linear", "linear dX", "linear dW", "attention", "attention dX", "layernorm", "activation", "activation dX"}) {
    BOOST_TEST_CONTEXT(kind) {
      BOOST_TEST(expected[kind].instructions == compiled[kind].instructions);
      BOOST_TEST(std::abs(expected[kind].bytes / compiled[kind].bytes - 1) < 0.25,
                 expected[kind].bytes << " counted, " << compiled[kind].bytes << " compiled");
    }
  }
  // All arithmetic of products: forward once, backward twice; attention computes its scores again.
  double flops = 0, attention = 0;
  for (const auto* half : {&counted.forward, &counted.backward_input, &counted.backward_weight})
    for (const Work& one : *half) flops += one.flops;
  for (const Work& one : counted.forward)
    if (one.attention) attention += one.flops;
  BOOST_TEST(attention > 0);
  BOOST_TEST(std::abs(flops - 0.5 * attention - training_flops(graph, 2, 32)) < 1e-6 * flops);
  BOOST_TEST(counted.parameters == double(graph.parameter_count()));
}

BOOST_AUTO_TEST_CASE(work_takes_what_its_arithmetic_or_its_bytes_take) {
  DeviceModel device = round_device();
  BOOST_TEST(device.seconds({.flops = 1e9, .bytes = 1e6}, "f32", 1) == 1e-6 + 1e-3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(device.seconds({.flops = 1e6, .bytes = 1e9}, "f32", 1) == 1e-6 + 1e-2, boost::test_tools::tolerance(1e-12));
  device.products = 0.5;
  device.attention = 0.25;
  BOOST_TEST(device.seconds({.flops = 1e9}, "f32", 1) == 1e-6 + 2e-3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(device.seconds({.flops = 1e9, .attention = true}, "f32", 1) == 1e-6 + 4e-3, boost::test_tools::tolerance(1e-12));
  // 9 tiles on 8 units take two rounds.
  device.units = 8;
  BOOST_TEST(device.seconds({.flops = 9e8, .rows = 384, .columns = 384}, "f32", 1) == 1e-6 + 2 * 9e-4 * 16 / 9,
             boost::test_tools::tolerance(1e-12));
  // A sum over 4 ranks moves three quarters of the value twice.
  BOOST_TEST(device.seconds({.exchanged = 2e8}, "f32", 4) == 1e-6 + 3e-5 + 1.5e-2, boost::test_tools::tolerance(1e-12));
  BOOST_CHECK_THROW(device.seconds({.flops = 1}, "bf16", 1), ConfigError);
}

BOOST_AUTO_TEST_CASE(a_pipeline_is_as_long_as_its_simulation) {
  const Graph graph = small_model();
  const DeviceModel device = round_device();
  const auto predicted = [&](int ranks, int microbatches, PredictionOptions options = {}) {
    options.batch = 1;
    options.length = 32;
    const schedules::Plan plan = schedules::builtin_schedules().make("gpipe", {.ranks = ranks, .microbatches = microbatches});
    return predict(graph, split_evenly(graph, ranks, estimated_costs(graph, 1, 32)), plan, device, options);
  };
  const Prediction alone = predicted(1, 4), two = predicted(2, 4), more = predicted(2, 16);
  BOOST_TEST(alone.idle_share == 0);
  // GPipe of two even stages: one microbatch in m + 1 is idle; stages are not quite even, and messages take time.
  BOOST_TEST(two.idle_share > 1.0 / 5);
  BOOST_TEST(more.idle_share < two.idle_share);
  BOOST_TEST(alone.flops == two.flops, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(alone.optimizer == double(graph.parameter_count()) * 28 / 1e11, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(two.optimizer < alone.optimizer);
  const Prediction copies = predicted(1, 4, {.data = 2});
  BOOST_TEST(copies.reduction > 0);
  BOOST_TEST(copies.flops == 2 * alone.flops, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(predicted(1, 4, {.data = 2, .sharded = true}).optimizer == alone.optimizer / 2, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(known_devices_have_sensible_figures) {
  for (const char* name : {"a100", "h100", "b200", "mi300x", "pvc"}) {
    BOOST_TEST_CONTEXT(name) {
      const DeviceModel device = find_device_model(name);
      BOOST_TEST(!device.source.empty());
      // More from tensor cores than without, and hundreds of operations for each byte of memory.
      BOOST_TEST(device.peak_of("bf16") > device.peak_of("tf32"));
      BOOST_TEST(device.peak_of("tf32") > device.peak_of("f32"));
      BOOST_TEST(device.peak_of("bf16") / device.bandwidth > 100);
      BOOST_TEST(device.peak_of("bf16") / device.bandwidth < 400);
      BOOST_TEST(device.link < device.bandwidth);
      BOOST_TEST(device.products < 1);
    }
  }
  BOOST_CHECK_THROW(find_device_model("h1000"), ConfigError);
  BOOST_CHECK_THROW(find_device_model("/nowhere/device.json"), FileError);
}

BOOST_AUTO_TEST_SUITE_END()
