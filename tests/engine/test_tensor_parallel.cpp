// Tensor-parallel ranks train like one rank; their parts of the parameters make up the whole; what cannot be divided is
// refused.
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/tensor_parallel.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

constexpr SmallModel gpt2{.width = 16, .layers = 2, .heads = 4};

TrainerOptions options(int tensor, const std::string& schedule = "1f1b", int pipeline = 1, int stages = 0,
                       int microbatches = 1, int data = 1) {
  TrainerOptions result;
  result.parallel.tensor = tensor;
  result.parallel.schedule = schedule;
  result.parallel.pipeline = pipeline;
  result.parallel.stages = stages;
  result.parallel.microbatches = microbatches;
  result.parallel.data = data;
  result.grad_clip = 1.0;
  result.seed = 3;
  result.optimizer.epsilon = 1e-3;  // as in test_training.cpp
  return result;
}

std::vector<Batch> batches(int steps) {
  std::vector<Batch> list;
  for (int i = 0; i < steps; ++i) list.push_back(make_batch(4, 9, 17, static_cast<uint64_t>(i + 1) * 1000, true));
  return list;
}

void check_same(const Outcome& got, const Outcome& expected) {
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    BOOST_TEST(got.losses.at(i) == expected.losses[i], boost::test_tools::tolerance(2e-4));
    BOOST_TEST(got.norms.at(i) == expected.norms[i], boost::test_tools::tolerance(2e-4));
  }
  std::string worst;
  const double weights = difference(got.weights, expected.weights, &worst);
  BOOST_TEST(weights < 2e-4, worst << " is " << weights << " apart");
}

std::string refusal(const std::shared_ptr<const Graph>& graph, int ranks) {
  try {
    shard_graph(graph, 0, ranks);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "not refused";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor_parallel)

BOOST_AUTO_TEST_CASE(parts_of_a_packed_tensor_are_taken_section_by_section_and_make_up_the_whole) {
  std::vector<float> whole(2 * 12), again(whole.size()), part(whole.size() / 2);
  std::iota(whole.begin(), whole.end(), 0.0f);
  Placement placement{1, 0, 2, {4, 4, 4}, {2, 12}};
  const std::vector<float> expected[2] = {{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21},
                                          {2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23}};
  for (placement.rank = 0; placement.rank < 2; ++placement.rank) {
    take_part(placement, whole, part);
    BOOST_TEST(part == expected[placement.rank], boost::test_tools::per_element());
    put_part(placement, part, again);
  }
  BOOST_TEST(again == whole, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tensor_parallel_ranks_give_the_losses_norms_and_weights_of_one_rank) {
  const auto data = batches(5);
  SmallModel tied = gpt2, rms = gpt2, dropped = gpt2;
  tied.tied = true;
  rms.rms = true;
  dropped.dropout = 0.2f;
  for (const SmallModel& model : {gpt2, tied, rms, dropped}) {
    const auto graph = make_model(model);
    const Outcome expected = train(graph, options(1), data);
    for (const auto& how : {options(2), options(4), options(2, "1f1b", 2, 2, 4), options(2, "zbvzerobubble", 2, 4, 4),
                            options(2, "dualpipev", 1, 2, 4), options(2, "1f1b", 1, 0, 2, 2)})
      BOOST_TEST_CONTEXT("tied " << model.tied << ", rms " << model.rms << ", dropout " << model.dropout << ", tp "
                                 << how.parallel.tensor << ", pp " << how.parallel.pipeline << ", dp "
                                 << how.parallel.data << ", " << how.parallel.schedule)
    check_same(train(graph, how, data), expected);
  }
}

BOOST_AUTO_TEST_CASE(recomputed_blocks_and_measured_stages_train_alike) {
  const auto graph = make_model(gpt2);
  const auto data = batches(3);
  const Outcome expected = train(graph, options(1), data);
  TrainerOptions recomputed = options(2, "1f1b", 2, 2, 4), measured = recomputed;
  recomputed.recompute = true;
  check_same(train(graph, recomputed, data), expected);
  measured.parallel.measure = true;
  check_same(train(graph, measured, data), expected);
}

BOOST_AUTO_TEST_CASE(what_every_rank_has_stays_equal_bit_for_bit) {
  const auto graph = make_model(gpt2);
  const auto data = batches(4);
  Outcome ranks[2];
  TrainerOptions how = options(2);
  how.parallel.device = shared_device();
  comm::LocalOptions local;
  local.devices.assign(2, shared_device());
  comm::run_threads(2, local, [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, 4, 9);
    for (const Batch& batch : data) trainer.step(batch, 1e-2);
    collect(trainer, ranks[world.rank()]);
  });
  const auto sharded = shard_graph(graph, 1, 2);
  int compared = 0;
  for (const auto& [name, values] : ranks[1].weights) {
    if (sharded->parameters()[static_cast<size_t>(sharded->find_parameter(name))].placement.is_split()) continue;
    BOOST_TEST(values == ranks[0].weights.at(name), name << " differs");
    ++compared;
  }
  BOOST_TEST(compared == 2 + 4 * 2 + 2 + 1);  // embeddings, norms of two blocks and the last one, head
}

BOOST_AUTO_TEST_CASE(what_cannot_be_divided_is_refused_with_the_reason) {
  BOOST_TEST(refusal(make_model({.width = 12, .heads = 3}), 2) ==
             "--tp 2 does not divide the 3 heads of transformer.h.0.attn");
  BOOST_TEST(refusal(make_model({.width = 16, .heads = 4}), 3) ==
             "--tp 3 does not divide the output width of transformer.h.0.attn.c_attn, which is 16");
  Graph plain;
  plain.linear(plain.input("x", 4), "only", {.out = 4});
  BOOST_TEST(
      refusal(std::make_shared<const Graph>(plain), 2).starts_with("--tp 2: the model does not say how to divide it"));
  Graph open = plain;
  open.output({1});
  open.tensor_plan({{"only", TensorSplit::outputs}});
  BOOST_TEST(
      refusal(std::make_shared<const Graph>(open), 2).starts_with("the output is divided over tensor-parallel ranks"));
  open.tensor_plan({{"other", TensorSplit::outputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(open), 2) ==
             "the tensor plan names other, and the model has no such linear");
  Graph shared = plain;
  shared.linear({1}, "again", {.out = 4, .weight = "only.weight"});
  shared.tensor_plan({{"only", TensorSplit::outputs}, {"again", TensorSplit::inputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(shared), 2) ==
             "only: its weight only.weight is used elsewhere too and cannot be divided by the tensor plan");
  Graph through = plain;
  through.linear(through.norm({1}, "norm", {}), "last", {.out = 4});
  through.tensor_plan({{"only", TensorSplit::outputs}, {"last", TensorSplit::inputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(through), 2) ==
             "--tp 2: norm (layernorm) cannot work on a part of its input; the tensor plan must keep it whole");
}

BOOST_AUTO_TEST_SUITE_END()
