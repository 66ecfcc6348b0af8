// Tensor-parallel ranks train like one rank; their parts of the parameters make up the whole; what cannot be divided is
// refused.
#include <numeric>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/graph/tensor_parallel.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

constexpr SmallModel gpt2{.width = 16, .layers = 2, .heads = 4};

TrainerOptions options(int tensor, const std::string& schedule = "1f1b", int pipeline = 1, int stages = 0, int microbatches = 1,
                       int data = 1) {
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
  for (int i = 0; i < steps; ++i) list.push_back(make_batch(4, 9, 17, static_cast<std::uint64_t>(i + 1) * 1000, true));
  return list;
}

void check_alike(const Outcome& got, const Outcome& expected) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
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
  const std::vector<float> expected[2] = {{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21}, {2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23}};
  for (placement.rank = 0; placement.rank < 2; ++placement.rank) {
    take_part(placement, whole, part);
    BOOST_TEST(part == expected[placement.rank], boost::test_tools::per_element());
    put_part(placement, part, again);
  }
  BOOST_TEST(again == whole, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(uneven_stretches_come_in_order_and_make_up_the_whole) {
  const auto counts = [](std::int64_t size, int ranks) {
    std::vector<std::int64_t> list;
    std::int64_t end = 0;
    for (int r = 0; r < ranks; ++r) {
      const Stretch one = stretch_of(size, r, ranks);
      BOOST_TEST(one.begin == end);
      end += one.count;
      list.push_back(one.count);
    }
    BOOST_TEST(end == size);
    return list;
  };
  BOOST_TEST(counts(17, 2) == (std::vector<std::int64_t>{9, 8}), boost::test_tools::per_element());
  BOOST_TEST(counts(50257, 4) == (std::vector<std::int64_t>{12565, 12564, 12564, 12564}), boost::test_tools::per_element());
  BOOST_TEST(counts(8, 4) == (std::vector<std::int64_t>{2, 2, 2, 2}), boost::test_tools::per_element());
  std::vector<float> whole(5 * 3), again(whole.size());
  std::iota(whole.begin(), whole.end(), 0.0f);
  Placement placement{0, 0, 2, {5}, {5, 3}};
  for (placement.rank = 0; placement.rank < 2; ++placement.rank) {
    BOOST_TEST((placement.part() == ops::Shape{placement.rank == 0 ? 3 : 2, 3}));
    std::vector<float> part(static_cast<std::size_t>(placement.part().count()));
    take_part(placement, whole, part);
    BOOST_TEST(part.front() == (placement.rank == 0 ? 0.0f : 9.0f));
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
      BOOST_TEST_CONTEXT("tied " << model.tied << ", rms " << model.rms << ", dropout " << model.dropout << ", tp " << how.parallel.tensor
                                 << ", pp " << how.parallel.pipeline << ", dp " << how.parallel.data << ", " << how.parallel.schedule)
    check_alike(train(graph, how, data), expected);
  }
}

// A vocabulary of 17 is uneven for 2 and 4 ranks, and so are sequences of 5 tokens, one or two at a time; with one, the last of 4 has none.
BOOST_AUTO_TEST_CASE(ranks_that_divide_tokens_too_give_the_losses_norms_and_weights_of_one_rank) {
  std::vector<Batch> data;
  for (int i = 0; i < 5; ++i) data.push_back(make_batch(4, 5, 17, static_cast<std::uint64_t>(i + 1) * 1000, true));
  SmallModel tied = gpt2, rms = gpt2;
  tied.tied = true;
  tied.dropout = 0.2f;
  rms.rms = true;
  for (const SmallModel& model : {tied, rms}) {
    const auto graph = make_model(model);
    const Outcome expected = train(graph, options(1), data);
    for (auto how : {options(2), options(4, "1f1b", 1, 0, 4), options(2, "1f1b", 2, 2, 4), options(2, "zbvzerobubble", 2, 4, 4),
                     options(2, "dualpipev", 1, 2, 4), options(2, "1f1b", 1, 0, 2, 2)}) {
      how.parallel.sequence_parallel = true;
      how.recompute = how.parallel.pipeline == 2 && how.parallel.schedule == "1f1b";
      BOOST_TEST_CONTEXT("rms " << model.rms << ", tp " << how.parallel.tensor << ", pp " << how.parallel.pipeline << ", dp "
                                << how.parallel.data << ", " << how.parallel.schedule)
      check_alike(train(graph, how, data), expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(no_rank_holds_the_whole_vocabulary) {
  SmallModel tied = gpt2;
  tied.tied = true;
  for (const bool sequence_parallel : {false, true})
    for (const SmallModel& model : {gpt2, tied})
      for (int rank = 0; rank < 2; ++rank) {
        const auto graph = shard_graph(make_model(model), rank, 2, sequence_parallel);
        for (const ParameterInfo& info : graph->parameters())
          if (info.whole_shape()[0] == 17) BOOST_TEST((info.shape == ops::Shape{rank == 0 ? 9 : 8, 16}), info.name);
        const NodeId output_node = graph->values()[graph->output_value()].producer;
        BOOST_TEST(output_node + 1 == graph->nodes().end_id());  // logits are put together last, for those who ask
        for (const Node& node : graph->nodes())
          if (node.output != graph->output_value()) BOOST_TEST(graph->values()[node.output].width != 17);
        for (const Node& node : graph->nodes())
          if (node.module.ends_with("ln_1") && node.op->kind() == std::string("layernorm"))
            BOOST_TEST(graph->values()[node.output].row_parts == (sequence_parallel ? 2 : 1));
      }
}

BOOST_AUTO_TEST_CASE(logits_that_ranks_put_together_are_those_of_one_rank) {
  const auto graph = make_model(gpt2);
  const Batch batch = make_batch(3, 8, 17, 5, true);
  const auto logits_of = [&](int tensor, bool sequence_parallel, double& loss) {
    std::vector<float> logits(3 * 8 * 17);
    ParallelOptions how;
    how.tensor = tensor;
    how.microbatches = 2;
    on_ranks(tensor, [&](comm::Communicator& world) {
      const comm::Mesh mesh(world, how.mesh());
      const auto mine = shard_graph(graph, mesh.place().tensor, tensor, sequence_parallel);
      ModelRank model(mine, make_cuts(*mine, how, 1, 1, 8), {0}, 0, shared_device(), {ops::Type::f32, false});
      ops::Stream stream(shared_device());
      model.parameters(StageId(0)).initialize(stream, 3);
      Evaluator evaluator(model, how, mesh, true);
      evaluator.on_output = [&](std::int64_t first, std::int64_t, std::span<const float> part) {
        std::ranges::copy(part, logits.begin() + first * 8 * 17);
      };
      const auto result = evaluator.run(batch);
      if (world.rank() == 0) loss = result.loss();
    });
    return logits;
  };
  double expected_loss = 0, loss = 0;
  const auto expected = logits_of(1, false, expected_loss);
  for (const auto& [tensor, sequence_parallel] : {std::pair(2, false), std::pair(4, false), std::pair(2, true)}) {
    const auto got = logits_of(tensor, sequence_parallel, loss);
    BOOST_TEST(loss == expected_loss, boost::test_tools::tolerance(1e-6));
    for (std::size_t i = 0; i < expected.size(); ++i) BOOST_REQUIRE_SMALL(got[i] - expected[i], 1e-5f);
  }
}

BOOST_AUTO_TEST_CASE(recomputed_blocks_and_measured_stages_train_alike) {
  const auto graph = make_model(gpt2);
  const auto data = batches(3);
  const Outcome expected = train(graph, options(1), data);
  TrainerOptions recomputed = options(2, "1f1b", 2, 2, 4), measured = recomputed;
  recomputed.recompute = true;
  check_alike(train(graph, recomputed, data), expected);
  measured.parallel.balance = Balance::measured;
  check_alike(train(graph, measured, data), expected);
}

BOOST_AUTO_TEST_CASE(what_every_rank_has_stays_equal_bit_for_bit) {
  const auto graph = make_model(gpt2);
  for (const bool sequence_parallel : {false, true}) {
    std::vector<Batch> data;
    for (int i = 0; i < 4; ++i) data.push_back(make_batch(4, 8, 17, static_cast<std::uint64_t>(i + 1) * 1000, true));
    Outcome ranks[2];
    TrainerOptions how = options(2);
    how.parallel.sequence_parallel = sequence_parallel;
    how.parallel.device = shared_device();
    on_ranks(2, [&](comm::Communicator& world) {
      Trainer trainer(graph, how, world, 4, 8);
      for (const Batch& batch : data) trainer.step(batch, 1e-2);
      collect(trainer, ranks[world.rank()]);
    });
    const auto sharded = shard_graph(graph, 1, 2);
    int compared = 0;
    for (const auto& [name, values] : ranks[1].weights) {
      if (sharded->parameters()[sharded->find_parameter(name)].placement.is_split()) continue;
      BOOST_TEST(values == ranks[0].weights.at(name), name << " differs");
      ++compared;
    }
    BOOST_TEST(compared == 1 + 4 * 2 + 2);  // positions, norms of two blocks and the last one
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_divided_is_refused_with_the_reason) {
  BOOST_TEST(refusal(make_model({.width = 12, .heads = 3}), 2) == "--tp 2 does not divide the 3 heads of transformer.h.0.attn");
  BOOST_TEST(refusal(make_model({.width = 16, .heads = 4}), 3) ==
             "--tp 3 does not divide the 16 outputs of a section of transformer.h.0.attn.c_attn, which has 48 in 3 sections");
  Graph plain;
  plain.linear(plain.input("x", 4), "only", {.out = 4});
  BOOST_TEST(refusal(std::make_shared<const Graph>(plain), 2).starts_with("--tp 2: the model does not say how to divide it"));
  Graph open = plain;
  open.output(Value(1));
  open.tensor_plan({{"only", TensorSplit::outputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(open), 2).starts_with("the output is divided over tensor-parallel ranks"));
  open.tensor_plan({{"other", TensorSplit::outputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(open), 2) ==
             "the tensor plan names other, and the model has no such linear or embedding");
  Graph shared = plain;
  shared.linear(Value(1), "again", {.out = 4, .weight = "only.weight"});
  shared.tensor_plan({{"only", TensorSplit::outputs}, {"again", TensorSplit::inputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(shared), 2) ==
             "only: its weight only.weight is used elsewhere too and cannot be divided by the tensor plan");
  BOOST_TEST(refusal(make_model({.vocabulary = 3, .width = 16, .heads = 4}), 4) ==
             "--tp 4: transformer.wte has a vocabulary of 3, which is not enough for so many ranks");
  Graph through = plain;
  through.linear(through.norm(Value(1), "norm", {}), "last", {.out = 4});
  through.tensor_plan({{"only", TensorSplit::outputs}, {"last", TensorSplit::inputs}});
  BOOST_TEST(refusal(std::make_shared<const Graph>(through), 2) ==
             "--tp 2: norm (layernorm) cannot work on a part of its input; the tensor plan must keep it whole");
}

BOOST_AUTO_TEST_SUITE_END()
