// Data-parallel and sharded training: the losses, norms and weights of one rank on the same batches, whatever the layout; what ranks with
// different models or without data are told.
#include <ppengine/base/error.hpp>
#include <ppengine/engine/gradients/reducer.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/ops/elementwise.hpp>

#include "layouts.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

std::vector<Batch> batches(int steps, std::int64_t sequences, bool masked = true) {
  std::vector<Batch> list;
  for (int i = 0; i < steps; ++i) list.push_back(make_batch(sequences, 9, 17, static_cast<std::uint64_t>(i + 1) * 1000, masked));
  return list;
}

// A key's bias adds the same to all scores of a query, which softmax takes away again: its gradient is zero but for rounding, and AdamW
// makes whole steps of what rounding leaves, on one rank with other microbatches too. Set to zero, all the rest can be compared with
// AdamW's usual epsilon.
Outcome without_key_biases(Outcome outcome) {
  for (auto& [name, values] : outcome.weights)
    if (name.ends_with("attn.c_attn.bias"))
      std::fill(values.begin() + static_cast<long>(values.size() / 3), values.begin() + static_cast<long>(2 * values.size() / 3), 0.0f);
  return outcome;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "not refused";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_parallel)

// Every combination of pp, dp, tp and shard in {1, 2}, and every family of schedules with each of the axes.
BOOST_AUTO_TEST_CASE(every_layout_gives_the_losses_norms_and_weights_of_one_rank) {
  std::vector<Setup> layouts;
  for (int pipeline : {1, 2})
    for (int data : {1, 2})
      for (int tensor : {1, 2})
        for (auto shard : {Setup::none, Setup::least, Setup::parts})
          if (pipeline * data * tensor > 1 && (shard == Setup::none || data > 1))
            layouts.push_back({"1f1b", pipeline, data, tensor, 0, 2, shard});
  for (const char* schedule : {"gpipe", "interleaved1f1b", "loopedbfs", "interleavedzerobubble", "zbvzerobubble", "dualpipev"})
    for (auto shard : {Setup::none, Setup::least, Setup::parts})
      layouts.push_back({schedule, 2, 2, 1, std::string(schedule) == "gpipe" ? 2 : 4, 4, shard});
  layouts.push_back({"loopedbfs", 1, 2, 1, 4, 2, Setup::least});  // more stages than may be gathered at a time
  layouts.push_back({"interleavedzerobubble", 1, 3, 1, 4, 2, Setup::parts});
  for (bool rms : {false, true}) {
    const auto graph = make_model({.heads = 2, .tied = !rms, .rms = rms});
    const auto data = batches(10, 24);
    const double lr = 3e-3;  // what rounding makes of ten steps grows with it
    TrainerOptions one = options({});
    one.grad_clip = 0.5;
    one.optimizer.epsilon = 1e-8;
    const Outcome expected = without_key_biases(train(graph, one, data, lr));
    for (const Setup& layout : layouts) {
      if (rms && layout.pipeline * layout.data * layout.tensor == 8) continue;  // one family is enough there
      BOOST_TEST_CONTEXT((rms ? "llama's parts, " : "gpt2's parts, ") << layout) {
        TrainerOptions how = options(layout);
        how.grad_clip = 0.5;
        how.optimizer.epsilon = 1e-8;
        how.parallel.active_stages = 2;
        check_same(without_key_biases(train(graph, how, data, lr)), expected);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(updates_in_the_backward_give_the_same_weights_and_norms) {
  const auto graph = make_model({.layers = 2, .tied = true});
  const auto data = batches(4, 8);
  const Outcome expected = train(graph, options({}), data);
  for (const Setup& layout : {Setup{}, Setup{"1f1b", 2, 2}, Setup{"interleavedzerobubble", 2, 2, 1, 2, 4, Setup::parts},
                              Setup{"1f1b", 1, 2, 1, 0, 2, Setup::parts}, Setup{"1f1b", 1, 2, 1, 0, 2, Setup::least}})
    BOOST_TEST_CONTEXT(layout) {
      TrainerOptions how = options(layout);
      how.optimizer_in_backward = true;
      check_same(train(graph, how, data), expected);
    }
  TrainerOptions how = options({"1f1b", 1, 2});
  how.optimizer_in_backward = true;
  how.grad_clip = 1;
  BOOST_TEST(refusal([&] { train(graph, how, data); }).find("--grad-clip 0") != std::string::npos);
}

// Two batches of four make the update of one of eight, with tokens weighted alike; only the second one communicates.
BOOST_AUTO_TEST_CASE(accumulated_batches_make_one_update) {
  const auto graph = make_model({.layers = 2});
  const Batch whole = make_batch(8, 9, 17, 7, true);
  Batch halves[2];
  for (std::int64_t h = 0; h < 2; ++h) {
    halves[h] = {4, 9, whole.inputs};
    for (BatchInput& input : halves[h].inputs) input.tokens = {input.tokens.begin() + h * 36, input.tokens.begin() + (h + 1) * 36};
  }
  const Outcome expected = train(graph, options({}), {whole});
  for (const auto shard : {Setup::none, Setup::least, Setup::parts})
    for (const bool by_calls : {false, true}) {
      const Setup layout{"1f1b", 1, 2, 1, 0, 2, shard};
      BOOST_TEST_CONTEXT(layout << (by_calls ? ", accumulate() and step()" : ", step() of two")) {
        const TrainerOptions how = options(layout);
        Outcome got;
        on_ranks(how, [&](comm::Communicator& world) {
          Trainer trainer(graph, how, world, 4, 9);
          if (by_calls) trainer.accumulate(halves[0]);
          const bool reduced_early = !trainer.reductions().empty();
          const StepResult result = by_calls ? trainer.step(halves[1], 1e-2) : trainer.step(halves, 1e-2);
          if (world.rank() == 0) got.losses.push_back(result.loss), got.norms.push_back(result.grad_norm);
          collect(trainer, got);
          const std::lock_guard lock(checking());
          if (by_calls && shard != Setup::parts) BOOST_CHECK(!reduced_early);
          BOOST_CHECK(!trainer.reductions().empty());
          BOOST_CHECK_EQUAL(result.tokens, 72);
        });
        check_same(got, expected);
      }
    }
}

// Rank 0 has one batch more than rank 1. What the step without rank 1 must give is a step of one rank on that batch.
BOOST_AUTO_TEST_CASE(ranks_without_data_shadow_the_others) {
  const auto graph = make_model({.layers = 2});
  const Batch first = make_batch(8, 9, 17, 1, true), last = make_batch(3, 9, 17, 2);
  const auto half = [&](std::int64_t h) {
    Batch part{4, 9, first.inputs};
    for (BatchInput& input : part.inputs) input.tokens = {input.tokens.begin() + h * 36, input.tokens.begin() + (h + 1) * 36};
    return part;
  };
  Outcome expected;
  on_ranks(options({}), [&](comm::Communicator& world) {
    Trainer trainer(graph, options({}), world, 8, 9);
    for (const Batch* batch : {&first, &last}) {
      const StepResult result = trainer.step(*batch, 1e-2);
      expected.losses.push_back(result.loss), expected.norms.push_back(result.grad_norm);
    }
    collect(trainer, expected);
  });
  for (const Setup& layout : {Setup{"1f1b", 1, 2}, Setup{"1f1b", 2, 2, 1, 0, 2, Setup::least}, Setup{"1f1b", 2, 2, 1, 0, 2, Setup::parts},
                              Setup{"interleavedzerobubble", 2, 2, 1, 4, 2}})
    BOOST_TEST_CONTEXT(layout) {
      const TrainerOptions how = options(layout);
      Outcome got;
      on_ranks(how, [&](comm::Communicator& world) {
        Trainer trainer(graph, how, world, 8, 9);
        const int copy = trainer.mesh().place().data;
        const Batch mine = half(copy);
        for (const Batch* batch : {&mine, copy == 0 ? &last : nullptr}) {
          const StepResult result = trainer.step_own(batch, 1e-2).value();
          if (world.rank() == 0) got.losses.push_back(result.loss), got.norms.push_back(result.grad_norm);
        }
        const bool over = !trainer.step_own(nullptr, 1e-2);
        collect(trainer, got);
        const std::lock_guard lock(checking());
        BOOST_CHECK(over);
      });
      check_same(got, expected);
    }
  const TrainerOptions how = options({"1f1b", 1, 2});
  on_ranks(how, [&](comm::Communicator& world) {  // averaged over both ranks: half of the gradient
    Trainer trainer(graph, how, world, 8, 9);
    const Batch mine = half(world.rank());
    trainer.step_own(&mine, 1e-2);
    const StepResult result = trainer.step_own(world.rank() == 0 ? &last : nullptr, 1e-2, Uneven::average_all).value();
    const std::lock_guard lock(checking());
    BOOST_CHECK_CLOSE(result.grad_norm, 0.5 * expected.norms[1], 0.02);
  });
  const std::string stopped = refusal([&] {
    on_ranks(how, [&](comm::Communicator& world) {
      Trainer trainer(graph, how, world, 8, 9);
      trainer.step_own(world.rank() == 0 ? &last : nullptr, 1e-2, Uneven::stop);
    });
  });
  BOOST_TEST(stopped == "no more data on rank 1 at step 1, while others have some: all stop");
}

BOOST_AUTO_TEST_CASE(ranks_with_different_models_or_settings_are_told_the_first_difference) {
  const auto small = make_model({.layers = 1}), large = make_model({.layers = 2}), wide = make_model({.vocabulary = 18, .layers = 1});
  const auto told = [&](const std::shared_ptr<const Graph>& other, std::int64_t batch) {
    const TrainerOptions how = options({"1f1b", 1, 2, 1, 0, 1});
    return refusal([&] {
      on_ranks(how, [&](comm::Communicator& world) {
        Trainer(world.rank() == 0 ? small : other, how, world, world.rank() == 0 ? 8 : batch, 9);
      });
    });
  };
  BOOST_TEST(told(large, 8).find("rank 0 has 17 parameters, rank 1 has 29 parameters") != std::string::npos, told(large, 8));
  BOOST_TEST(told(wide, 8).find("rank 0 has transformer.wte.weight f32 [17,12], rank 1 has transformer.wte.weight f32 [18,12]") !=
                 std::string::npos,
             told(wide, 8));
  BOOST_TEST(told(small, 4).find("rank 0 has batch size 8, rank 1 has batch size 4") != std::string::npos, told(small, 4));
  BOOST_TEST(told(small, 8) == "not refused");
}

BOOST_AUTO_TEST_CASE(the_first_data_parallel_rank_s_weights_go_to_the_others_unless_told_not_to) {
  const auto graph = make_model({.layers = 1});
  for (const bool broadcast : {true, false}) {
    TrainerOptions how = options({"1f1b", 1, 2});
    how.broadcast = broadcast;
    how.verify = false;
    Outcome seen[2];
    on_ranks(how, [&](comm::Communicator& world) {
      TrainerOptions mine = how;
      mine.seed = static_cast<std::uint64_t>(world.rank());
      Trainer trainer(graph, mine, world, 8, 9);
      const ParameterStore& store = trainer.model().parameters(StageId(0));
      auto& into = seen[world.rank()].weights["all"];
      into.resize(store.count());
      trainer.pipeline().stream().copy(into.data(), store.values(), into.size() * sizeof(float));
      trainer.pipeline().stream().wait();
    });
    BOOST_TEST((seen[0].weights["all"] == seen[1].weights["all"]) == broadcast);
  }
}

// A second head that the loss does not use: its parameters keep their value, and have no gradient.
BOOST_AUTO_TEST_CASE(parameters_that_the_loss_does_not_depend_on_are_left_alone_or_refused_by_name) {
  Graph graph;
  const Value x = graph.embedding(graph.tokens("input_ids"), "wte", {.vocabulary = 17, .width = 8});
  graph.linear(x, "other", {.out = 8});
  graph.loss(graph.cross_entropy(graph.linear(x, "head", {.out = 17}), graph.tokens("targets")));
  const auto shared = std::make_shared<const Graph>(graph);
  for (const auto shard : {Setup::none, Setup::least, Setup::parts}) {
    TrainerOptions how = options({"1f1b", 1, 2, 1, 0, 2, shard});
    on_ranks(how, [&](comm::Communicator& world) {
      Trainer trainer(shared, how, world, 4, 9);
      Outcome before, after;
      collect(trainer, before);
      trainer.step(make_batch(4, 9, 17, 1), 1e-1);
      collect(trainer, after);
      if (world.rank() != 0) return;
      BOOST_CHECK(after.weights["other.weight"] == before.weights["other.weight"]);
      const ParameterStore& store = trainer.model().parameters(StageId(0));
      const auto elements =
          shared->parameters()[ParameterId(0)].shape.count() + shared->parameters()[ParameterId(3)].shape.count() + 17;  // wte, head
      BOOST_TEST(static_cast<std::int64_t>(store.trained_count()) >= elements);
      BOOST_TEST(static_cast<std::int64_t>(store.trained_count()) <
                 static_cast<std::int64_t>(store.count()));  // no memory for other's gradients
      BOOST_CHECK(after.weights["head.weight"] != before.weights["head.weight"]);
    });
    how.allow_unused = false;
    const std::string told = refusal([&] { on_ranks(how, [&](comm::Communicator& world) { Trainer(shared, how, world, 4, 9); }); });
    BOOST_TEST(told.find("does not depend on other.weight, other.bias") != std::string::npos, told);
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_that_comes_twice_or_not_at_all_is_named) {
  const auto graph = make_model({.layers = 1});
  const TrainerOptions how = options({});
  on_ranks(how, [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, 4, 9);
    ModelRank& model = trainer.model();
    GradientNorm norm(model, 0);
    Reducer reducer(model, norm, {});
    ops::Stream stream(shared_device());
    const auto& ranges = model.parameters(StageId(0)).ranges();
    const auto name = [&](std::size_t i) { return graph->parameters()[ranges[i].id].name; };
    reducer.begin(false, true);
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i) reducer.final_gradients(StageId(0), std::span(&ranges[i].id, 1), stream);
    BOOST_CHECK_EQUAL(refusal([&] { reducer.stage_done(StageId(0)); }),
                      name(ranges.size() - 1) + " got no gradient in this step's backward");
    BOOST_CHECK_EQUAL(refusal([&] { reducer.final_gradients(StageId(0), std::span(&ranges[2].id, 1), stream); }),
                      name(2) + " gets its gradient twice in one backward");
    reducer.finish();
    BOOST_CHECK_EQUAL(reducer.timings().size() + 1, model.parameters(StageId(0)).buckets().size());
  });
}

BOOST_AUTO_TEST_CASE(a_steady_step_allocates_nothing) {
  const auto graph = make_model({.layers = 2, .tied = true});
  for (const char* hook : {"allreduce", "bf16", "fp16", "powersgd"})
    for (const auto shard : {Setup::none, Setup::least, Setup::parts}) {
      if (shard != Setup::none && std::string(hook) == "powersgd") continue;
      TrainerOptions how = options({"1f1b", 2, 2, 1, 0, 2, shard});
      how.hook.name = hook;
      on_ranks(how, [&](comm::Communicator& world) {
        Trainer trainer(graph, how, world, 8, 9);
        const Batch batch = make_batch(8, 9, 17, 1);
        for (int i = 0; i < 4; ++i) trainer.step(batch, 1e-3);
        world.barrier();
        const std::size_t allocations = shared_device()->memory().allocations();
        world.barrier();
        for (int i = 0; i < 2; ++i) trainer.step(batch, 1e-3);
        world.barrier();
        const std::lock_guard lock(checking());
        BOOST_CHECK_EQUAL(shared_device()->memory().allocations(), allocations);
      });
    }
}

BOOST_AUTO_TEST_SUITE_END()
