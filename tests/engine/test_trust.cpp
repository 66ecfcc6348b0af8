// What a run must not pass over in silence: tokens out of range, values that are not finite, copies that have drifted, memory that grows.
#include <unistd.h>

#include <fstream>
#include <limits>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/weights/optimizer.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

constexpr std::int64_t vocabulary = 11, sequences = 4, length = 6;

std::shared_ptr<const Graph> small_graph() {
  auto graph = std::make_shared<Graph>();
  Value x = graph->embedding(graph->tokens("input_ids"), "embed", {.vocabulary = vocabulary, .width = 8});
  for (int i = 0; i < 4; ++i) {
    auto scope = graph->module("h." + std::to_string(i));
    x = graph->add(x, graph->activation(graph->linear(graph->norm(x, "norm", {}), "proj", {.out = 8}), ops::ActivationKind::silu));
  }
  x = graph->linear(x, "head", {.out = vocabulary, .bias = false});
  graph->output(x);
  graph->loss(graph->cross_entropy(x, graph->tokens("targets")));
  return graph;
}

Batch small_batch(int shift = 0) {
  Batch batch{sequences, length, {{"input_ids", {}, {}}, {"targets", {}, {}}}};
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    batch.inputs[0].tokens.push_back(static_cast<std::int32_t>((i * 5 + shift) % vocabulary));
    batch.inputs[1].tokens.push_back(static_cast<std::int32_t>((i * 5 + shift + 3) % vocabulary));
  }
  return batch;
}

// Sets all values of one parameter, on the ranks that have it.
void fill(Trainer& trainer, const std::string& name, float value) {
  const ParameterId id = trainer.model().graph().find_parameter(name);
  for (engine::StageId stage : trainer.model().stages())
    if (const ParameterRange* range = trainer.model().parameters(stage).find(id)) {
      trainer.model().parameters(stage).load(trainer.pipeline().stream(), *range, std::vector<float>(range->count, value));
      trainer.model().parameters(stage).refresh(trainer.pipeline().stream());
      trainer.pipeline().stream().wait();
    }
}

std::string text_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trust)

BOOST_AUTO_TEST_CASE(a_token_out_of_range_is_an_error_with_index_and_value) {
  on_ranks(1, [&](comm::Communicator& world) {
    Trainer trainer(small_graph(), {}, world, sequences, length);
    for (const auto& [input, index, token] :
         {std::tuple<std::size_t, std::size_t, std::int32_t>{0, 7, 11}, {0, 3, -1}, {1, 9, 11}, {1, 0, 1 << 30}}) {
      Batch batch = small_batch();
      batch.inputs[input].tokens[index] = token;
      for (const std::string& text : {text_of([&] { trainer.step(batch, 1e-3); }), text_of([&] { trainer.accumulate(batch); }),
                                      text_of([&] { trainer.evaluator().run(batch); })}) {
        BOOST_TEST(contains(text, std::to_string(token)), text);
        BOOST_TEST(contains(text, "index " + std::to_string(index)), text);
        BOOST_TEST(contains(text, batch.inputs[input].name), text);
      }
    }
    Batch masked = small_batch();
    masked.inputs[1].tokens[2] = -100;  // no target here
    BOOST_TEST(std::isfinite(trainer.step(masked, 1e-3).loss));
  });
}

BOOST_AUTO_TEST_CASE(targets_are_compared_with_all_classes_where_ranks_divide_them) {
  on_ranks(2, [&](comm::Communicator& world) {
    auto graph = std::make_shared<Graph>(*small_graph());
    graph->tensor_plan({{"embed", TensorSplit::vocabulary, {}}, {"head", TensorSplit::vocabulary, {}}});
    TrainerOptions options;
    options.parallel.tensor = 2;
    Trainer trainer(graph, options, world, sequences, length);
    const double loss = trainer.step(small_batch(), 1e-3).loss;  // all eleven tokens occur
    Batch batch = small_batch();
    batch.inputs[1].tokens[4] = vocabulary;
    const std::string text = text_of([&] { trainer.step(batch, 1e-3); });
    const std::lock_guard lock(checking());
    BOOST_TEST(std::isfinite(loss));
    BOOST_TEST(contains(text, "index 4"), text);
  });
}

BOOST_AUTO_TEST_CASE(the_module_and_the_rank_that_made_a_nan_are_named_on_all_ranks) {
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, [&](comm::Communicator& world) {
      TrainerOptions options;
      options.parallel.pipeline = ranks;
      options.parallel.microbatches = 2;
      if (ranks == 2) options.parallel.split = {"h.2"};
      Trainer trainer(small_graph(), options, world, sequences, length);
      trainer.step(small_batch(), 1e-3);
      fill(trainer, "h.3.proj.weight", std::numeric_limits<float>::quiet_NaN());
      const std::string text = text_of([&] { trainer.step(small_batch(1), 1e-3); });
      const std::lock_guard lock(checking());
      BOOST_TEST(contains(text, "step 2: the loss is"), text);
      BOOST_TEST(contains(text, "h.3.proj on rank " + std::to_string(ranks - 1)), text);
    });
  }
}

BOOST_AUTO_TEST_CASE(a_skipped_update_leaves_the_weights_as_they_are) {
  for (const int copies : {1, 2}) {
    on_ranks(copies, [&](comm::Communicator& world) {
      TrainerOptions options;
      options.parallel.data = copies;
      options.on_nan = OnNan::skip;
      Trainer trainer(small_graph(), options, world, sequences, length);
      const double loss = trainer.evaluator().run(small_batch()).loss();
      fill(trainer, "h.1.norm.bias", std::numeric_limits<float>::infinity());
      const StepResult skipped = trainer.step(small_batch(1), 1e-2);
      fill(trainer, "h.1.norm.bias", 0.0f);  // as it began
      const double again = trainer.evaluator().run(small_batch()).loss();
      const StepResult next = trainer.step(small_batch(), 1e-2);
      const std::lock_guard lock(checking());
      BOOST_TEST(skipped.skipped);
      BOOST_TEST(again == loss);  // bit for bit
      BOOST_TEST(!next.skipped);
      BOOST_TEST(std::isfinite(next.loss));
      BOOST_TEST(trainer.optimizer().steps() == 1);
    });
  }
}

BOOST_AUTO_TEST_CASE(a_copy_that_has_drifted_is_named) {
  on_ranks(3, [&](comm::Communicator& world) {
    TrainerOptions options;
    options.parallel.data = 3;
    options.parallel.microbatches = 1;
    Trainer trainer(small_graph(), options, world, 3 * sequences, length);
    Batch batch = small_batch();
    for (auto& input : batch.inputs) {
      const auto once = input.tokens;
      for (int i = 0; i < 2; ++i) input.tokens.insert(input.tokens.end(), once.begin(), once.end());
    }
    batch.sequences *= 3;
    trainer.step(batch, 1e-3);
    const std::string before = text_of([&] { trainer.check_replicas(); });
    if (world.rank() == 1) fill(trainer, "h.0.proj.bias", 0.25f);
    const std::string text = text_of([&] { trainer.check_replicas(); });
    const std::lock_guard lock(checking());
    BOOST_TEST(before == "no error");
    BOOST_TEST(contains(text, "rank 1 have drifted"), text);
  });
}

// Every step once kept the events of its host tasks, 2 to 70 KB: in 1200 steps of this model several MB.
BOOST_AUTO_TEST_CASE(memory_does_not_grow_with_the_steps) {
  on_ranks(1, [&](comm::Communicator& world) {
    TrainerOptions options;
    options.parallel.microbatches = 4;
    Trainer trainer(small_graph(), options, world, sequences, length);
    const Batch batch = small_batch();
    for (int i = 0; i < 300; ++i) trainer.step(batch, 1e-4);
    const std::int64_t before = resident_bytes();
    for (int i = 0; i < 1200; ++i) trainer.step(batch, 1e-4);
    const std::int64_t grown = resident_bytes() - before;
    BOOST_TEST(grown < (1 << 20), "grown by " << grown << " bytes");
  });
}

BOOST_AUTO_TEST_SUITE_END()
