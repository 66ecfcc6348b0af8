// Inputs of a model that are activations: cut into microbatches, shared by all of them, narrower than the batch holds them.
#include <ppengine/base/error.hpp>

#include "support.hpp"

namespace ppengine::engine::test {
namespace {

constexpr std::int64_t width = 6, classes = 5, length = 4;

// Many values cross the cut in the middle: each branch's output is used only behind it.
std::shared_ptr<const Graph> branches(int count) {
  auto graph = std::make_shared<Graph>();
  const Value x = graph->add(graph->input("x", width), graph->input("shift", width));
  std::vector<Value> parts;
  for (int i = 0; i < count; ++i) parts.push_back(graph->linear(x, "branch." + std::to_string(i), {.out = width, .init_scale = 0.3f}));
  Value sum = graph->linear(x, "middle", {.out = width, .init_scale = 0.3f});
  for (const Value& part : parts) sum = graph->add(graph->activation(part, ops::ActivationKind::silu), sum);
  graph->loss(graph->cross_entropy(graph->linear(sum, "head", {.out = classes, .init_scale = 0.3f}), graph->tokens("targets")));
  return graph;
}

Batch batch_of(std::int64_t sequences, bool shared) {
  Batch batch{sequences, length, {{"x", {}, {}}, {"shift", {}, {}, shared}, {"targets", {}, {}}}};
  const auto value = [](std::int64_t seed) { return float(mix(static_cast<std::uint64_t>(seed)) % 1000) / 500.0f - 1.0f; };
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    batch.inputs[2].tokens.push_back(static_cast<std::int32_t>(mix(static_cast<std::uint64_t>(i)) % classes));
    for (std::int64_t k = 0; k < width; ++k) batch.inputs[0].values.push_back(value(i * width + k));
  }
  for (std::int64_t s = 0; s < (shared ? 1 : sequences); ++s)
    for (std::int64_t k = 0; k < length * width; ++k) batch.inputs[1].values.push_back(value(100000 + k));
  return batch;
}

TrainerOptions on_ranks(int ranks, int microbatches) {
  TrainerOptions options;
  options.parallel.pipeline = ranks;
  options.parallel.microbatches = microbatches;
  if (ranks > 1) options.parallel.split = {"middle"};
  return options;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(inputs)

BOOST_AUTO_TEST_CASE(twenty_values_cross_a_cut_and_a_shared_input_reaches_every_microbatch) {
  const auto graph = branches(20);
  const Outcome expected = train(graph, on_ranks(1, 1), {batch_of(5, false), batch_of(5, false)});
  check_same(train(graph, on_ranks(2, 3), {batch_of(5, true), batch_of(5, true)}), expected);
}

BOOST_AUTO_TEST_CASE(inputs_are_rounded_where_the_model_computes_in_bf16) {
  const auto graph = branches(2);
  TrainerOptions narrow = on_ranks(2, 2);
  narrow.parallel.type = ops::Type::bf16;
  const Outcome expected = train(graph, on_ranks(1, 1), {batch_of(4, true)});
  const Outcome got = train(graph, narrow, {batch_of(4, true)});
  BOOST_TEST(std::abs(got.losses[0] - expected.losses[0]) < 1e-2 * expected.losses[0]);
  BOOST_TEST(difference(got.gradients, expected.gradients) < 3e-2);
}

BOOST_AUTO_TEST_CASE(a_shared_input_of_the_wrong_size_is_refused) {
  Batch batch = batch_of(3, false);
  batch.inputs[1].shared = true;
  BOOST_CHECK_EXCEPTION(check_batch(*branches(1), batch), ConfigError,
                        [](const Error& error) { return std::string(error.what()).find("shift: expected [1,4,6]") == 0; });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace ppengine::engine::test
