// One truth: every schedule, split and number of ranks trains like one rank; nothing is allocated in a steady step.
#include <optional>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/node.hpp>
#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/ops/device/kernel_library.hpp>
#include <ppengine/schedules/registry.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

std::vector<Batch> batches(int steps, std::int64_t sequences, bool masked = false) {
  std::vector<Batch> list;
  for (int i = 0; i < steps; ++i) list.push_back(make_batch(sequences, 9, 17, static_cast<std::uint64_t>(i + 1) * 1000, masked));
  return list;
}

TrainerOptions options(const std::string& schedule, int pipeline, int stages, int microbatches, int data = 1) {
  TrainerOptions result;
  result.parallel.schedule = schedule;
  result.parallel.pipeline = pipeline;
  result.parallel.stages = stages;
  result.parallel.microbatches = microbatches;
  result.parallel.data = data;
  result.grad_clip = 1.0;
  result.seed = 3;
  // Some gradients are zero but for rounding (the keys' bias); AdamW's usual epsilon would blow that up to whole steps.
  result.optimizer.epsilon = 1e-3;
  return result;
}

// Hands its input on, until its forward runs for the second microbatch.
class Breaking final : public NodeOp {
 public:
  const char* kind() const override { return "breaking"; }
  double flops(const Graph&, const Node&, std::int64_t, std::int64_t) const override { return 1; }
  std::unique_ptr<CompiledNode> compile(ops::Device&, const Graph&, const Node& node, const NodePlan&,
                                        const CompileOptions& how) const override {
    struct Compiled final : CompiledNode {
      std::size_t bytes;
      int runs = 0;
      explicit Compiled(std::size_t all) : bytes(all) {}
      void forward(Emitter& emit) override {
        const BufferId src = emit.input(0), dst = emit.output();
        emit.forward({src}, {dst}, [this, src, dst](const Run& run) {
          if (++runs == 2) throw std::runtime_error("the op has broken");
          run.stream.copy(run.at(dst), run.at(src), bytes);
        });
      }
      void backward(Emitter& emit) override {
        const BufferId diff_dst = emit.output_gradient();
        const GradientTarget target = emit.begin_gradient(0, false);
        emit.input_half({diff_dst}, {target.diff},
                        [=, this](const Run& run) { run.stream.copy(run.at(target.diff), run.at(diff_dst), bytes); });
        emit.finish_gradient(0, target);
      }
    };
    BOOST_REQUIRE(node.inputs.size() == 1);
    return std::make_unique<Compiled>(static_cast<std::size_t>(how.batch * how.length) * 8 * sizeof(float));
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(training)

BOOST_AUTO_TEST_CASE(every_schedule_gives_the_losses_norms_and_weights_of_one_rank) {
  const auto graph = make_model({.layers = 4});
  const auto data = batches(10, 8, true);
  const Outcome expected = train(graph, options("gpipe", 1, 1, 1), data);
  struct Case {
    const char* schedule;
    int ranks, stages, microbatches;
  };
  for (const Case& one : {Case{"gpipe", 2, 2, 4}, Case{"1f1b", 4, 4, 8}, Case{"1f1b", 4, 4, 3}, Case{"interleaved1f1b", 2, 4, 4},
                          Case{"loopedbfs", 2, 4, 4}, Case{"interleavedzerobubble", 2, 4, 4}, Case{"interleavedzerobubble", 3, 3, 6},
                          Case{"zbvzerobubble", 2, 4, 4}, Case{"dualpipev", 2, 4, 4}, Case{"dualpipev", 1, 2, 4}})
    BOOST_TEST_CONTEXT(one.schedule << " on " << one.ranks << " ranks") {
      check_same(train(graph, options(one.schedule, one.ranks, one.stages, one.microbatches), data), expected);
    }
}

// The residual goes through stages that do not use it, and is read again in the backward of the stage that sends it.
BOOST_AUTO_TEST_CASE(cuts_inside_of_blocks_train_like_one_rank) {
  const auto data = batches(4, 8, true);
  for (const bool rms : {false, true}) {
    const auto graph = make_model({.layers = 2, .rms = rms});
    const Outcome expected = train(graph, options("gpipe", 1, 1, 1), data);
    for (TrainerOptions how : {options("gpipe", 4, 4, 4), options("1f1b", 4, 4, 4), options("interleavedzerobubble", 2, 4, 4),
                               options("zbvzerobubble", 2, 4, 4), options("dualpipev", 2, 4, 4), options("loopedbfs", 1, 4, 4)})
      BOOST_TEST_CONTEXT(how.parallel.schedule << " on " << how.parallel.pipeline << " ranks, rms " << rms) {
        how.parallel.split = {"transformer.h.0.mlp", "transformer.h.0.mlp.c_proj", "transformer.h.1.attn.c_proj"};
        check_same(train(graph, how, data), expected);
      }
  }
}

BOOST_AUTO_TEST_CASE(a_stage_may_hold_nothing_but_the_loss) {
  const auto graph = make_model({.layers = 1});
  const auto data = batches(3, 4, true);
  const Outcome expected = train(graph, options("gpipe", 1, 1, 1), data);
  for (const char* schedule : {"1f1b", "interleavedzerobubble"}) {
    TrainerOptions how = options(schedule, 3, 3, 3);
    how.parallel.split = {"lm_head", "loss"};
    check_same(train(graph, how, data), expected);
  }
}

BOOST_AUTO_TEST_CASE(recomputed_blocks_train_alike_with_a_full_and_with_a_split_backward) {
  const auto graph = make_model({.layers = 4});
  const auto data = batches(3, 8, true);
  const Outcome expected = train(graph, options("gpipe", 1, 1, 1), data);
  for (TrainerOptions how : {options("1f1b", 1, 1, 2), options("interleavedzerobubble", 1, 1, 2), options("interleavedzerobubble", 2, 2, 4),
                             options("zbvzerobubble", 2, 4, 4), options("dualpipev", 1, 2, 4)})
    BOOST_TEST_CONTEXT(how.parallel.schedule << " on " << how.parallel.pipeline << " ranks") {
      how.recompute = true;
      check_same(train(graph, how, data), expected);
    }
}

BOOST_AUTO_TEST_CASE(an_overlapped_pair_that_took_longer_than_its_parts_can_be_simulated) {
  const schedules::Plan plan = schedules::make_plan("dualpipev", 1, 2, 3);
  std::vector<TimedAction> row;
  double now = 0;
  for (const schedules::Action& action : plan.of(0)) {
    const bool second = !row.empty() && row.back().overlapped;
    const double length = action.joined ? 10 : 1;
    row.push_back({action, action.joined, now, now + length});
    if (second)
      row.back().start = row[row.size() - 2].start, row.back().end = row[row.size() - 2].end;
    else
      now += length;
  }
  BOOST_REQUIRE(std::ranges::any_of(row, &TimedAction::overlapped));
  const schedules::Costs costs = measured_costs(plan, {row});
  BOOST_TEST(costs.overlap_factor == 1.0);
  BOOST_CHECK_NO_THROW(simulated_timeline(plan, costs, "a step"));
}

BOOST_AUTO_TEST_CASE(a_run_repeated_gives_the_same_bits) {
  const auto graph = make_model({.layers = 2, .dropout = 0.1f});
  const auto data = batches(4, 6);
  const Outcome first = train(graph, options("zbvzerobubble", 2, 4, 3), data),
                second = train(graph, options("zbvzerobubble", 2, 4, 3), data);
  BOOST_TEST(first.losses == second.losses, boost::test_tools::per_element());
  BOOST_TEST(difference(first.weights, second.weights) == 0.0);
}

// A split that follows from measured times is another one in every run.
BOOST_AUTO_TEST_CASE(any_split_gives_the_same_bits) {
  for (const bool tied : {false, true}) {
    const auto graph = make_model({.layers = 3, .tied = tied});
    const auto data = batches(4, 6, true);
    TrainerOptions how = options("1f1b", 2, 2, 3);
    how.grad_clip = 0.05;  // far below the norm: its bits go into every weight
    std::optional<Outcome> first;
    for (const char* cut : {"transformer.h.0", "transformer.h.1", "transformer.h.1.mlp", "transformer.h.2", "transformer.ln_f", "lm_head"})
      BOOST_TEST_CONTEXT("split at " << cut << ", tied " << tied) {
        how.parallel.split = {cut};
        const Outcome outcome = train(graph, how, data);
        if (!first) first = outcome;
        BOOST_TEST(outcome.losses == first->losses, boost::test_tools::per_element());
        BOOST_TEST(outcome.norms == first->norms, boost::test_tools::per_element());
        BOOST_TEST(difference(outcome.weights, first->weights) == 0.0);
      }
  }
}

BOOST_AUTO_TEST_CASE(dropout_does_not_depend_on_split_or_microbatches) {
  const auto graph = make_model({.layers = 2, .dropout = 0.2f});
  const auto data = batches(3, 6);
  check_same(train(graph, options("1f1b", 2, 2, 6), data), train(graph, options("gpipe", 1, 1, 1), data));
}

BOOST_AUTO_TEST_CASE(tied_weights_on_different_stages_get_one_summed_gradient) {
  const auto graph = make_model({.layers = 2, .tied = true});
  const auto data = batches(5, 4);
  const Outcome expected = train(graph, options("gpipe", 1, 1, 1), data);
  check_same(train(graph, options("1f1b", 2, 2, 4), data), expected);
  check_same(train(graph, options("zbvzerobubble", 2, 4, 4), data), expected);
}

BOOST_AUTO_TEST_CASE(uneven_microbatches_and_masked_tokens_give_the_full_batch_gradient) {
  const auto graph = make_model({.layers = 2});
  const auto data = batches(3, 7, true);
  check_same(train(graph, options("1f1b", 2, 2, 3), data), train(graph, options("gpipe", 1, 1, 1), data));
}

BOOST_AUTO_TEST_CASE(data_parallel_ranks_with_split_backward_reduce_every_gradient) {
  const auto graph = make_model({.layers = 4});
  const auto data = batches(4, 8, true);
  const Outcome expected = train(graph, options("gpipe", 1, 1, 1), data);
  check_same(train(graph, options("interleavedzerobubble", 2, 4, 4, 2), data), expected);
  check_same(train(graph, options("1f1b", 1, 1, 2, 2), data), expected);
}

BOOST_AUTO_TEST_CASE(a_steady_step_allocates_nothing_and_looks_up_no_kernel) {
  const auto graph = make_model({.layers = 2, .tied = true});
  TrainerOptions how = options("1f1b", 2, 2, 4);
  how.parallel.device = shared_device();
  on_ranks(2, [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, 4, 9);
    const Batch batch = make_batch(4, 9, 17, 1);
    trainer.step(batch, 1e-3);
    trainer.step(batch, 1e-3);
    world.barrier();
    const std::size_t allocations = shared_device()->memory().allocations(), lookups = shared_device()->kernels().lookups();
    world.barrier();
    trainer.step(batch, 1e-3);
    trainer.step(batch, 1e-3);
    world.barrier();
    const std::lock_guard lock(checking());
    BOOST_CHECK_EQUAL(shared_device()->memory().allocations(), allocations);
    BOOST_CHECK_EQUAL(shared_device()->kernels().lookups(), lookups);
  });
}

BOOST_AUTO_TEST_CASE(activation_memory_follows_the_plan_and_not_the_number_of_microbatches) {
  const auto graph = make_model({.layers = 4});
  const auto blocks = [&](const char* schedule, int microbatches) {
    std::size_t bytes = 0;
    TrainerOptions how = options(schedule, 4, 4, microbatches);
    how.parallel.balance = Balance::estimated;
    how.parallel.device = shared_device();
    on_ranks(4, [&](comm::Communicator& world) {
      Trainer trainer(graph, how, world, microbatches, 9);
      if (world.rank() == 0) bytes = trainer.pipeline().block_bytes();
    });
    return bytes;
  };
  BOOST_TEST(blocks("1f1b", 16) == blocks("1f1b", 4));       // p microbatches, whatever m is
  BOOST_TEST(blocks("gpipe", 16) > 3 * blocks("gpipe", 4));  // m of them
}

BOOST_AUTO_TEST_CASE(impossible_requests_are_refused_before_training_starts) {
  const auto graph = make_model({.layers = 2});
  const auto data = batches(1, 4);
  BOOST_CHECK_THROW(train(graph, options("1f1b", 2, 2, 8), data), ConfigError);           // fewer sequences than microbatches
  BOOST_CHECK_THROW(train(graph, options("1f1b", 1, 1, 1, 3), data), ConfigError);        // dp does not divide the batch
  BOOST_CHECK_THROW(train(graph, options("zbvzerobubble", 2, 6, 4), data), ConfigError);  // three stages a rank
  TrainerOptions how = options("1f1b", 2, 2, 4);
  how.parallel.split = {"transformer.h.7"};
  BOOST_CHECK_THROW(train(graph, how, data), ConfigError);
}

BOOST_AUTO_TEST_CASE(a_failing_stage_ends_the_run_of_all_ranks_and_says_where) {
  Graph graph;
  Value x = graph.embedding(graph.tokens("input_ids"), "wte", {.vocabulary = 17, .width = 8});
  x = graph.linear(x, "first", {.out = 8});
  {
    const auto module = graph.module("second");
    x = graph.custom(std::make_shared<Breaking>(), {x}, {}, 8);
  }
  graph.loss(graph.cross_entropy(graph.linear(x, "head", {.out = 17}), graph.tokens("targets")));
  TrainerOptions how = options("1f1b", 2, 2, 4);
  how.parallel.split = {"second"};
  std::string message;
  try {
    train(std::make_shared<const Graph>(graph), how, batches(1, 4));
  } catch (const std::exception& e) {
    message = e.what();
  }
  for (const char* part : {"rank 1", "plan position", "1F1", "second", "the op has broken"})
    BOOST_TEST(message.find(part) != std::string::npos, "'" << message << "' should contain '" << part << "'");
}

// The error leaves while oneDNN still writes logits of 160 MB: the OpenCL runtime frees memory after its kernels, and knows nothing of
// others.
BOOST_AUTO_TEST_CASE(work_of_a_run_that_failed_is_over_before_its_memory_is_gone) {
  auto graph = std::make_shared<Graph>();
  const Value x = graph->embedding(graph->tokens("input_ids"), "wte", {.vocabulary = 17, .width = 256});
  graph->output(graph->linear(x, "head", {.out = 20000}));
  ParallelOptions parallel;
  parallel.device = shared_device();
  const schedules::Plan plan = make_plan(parallel, true);
  ModelRank model(graph, make_cuts(*graph, parallel, 1, 8, 256), plan.stage_rank, 0, shared_device(), {ops::Type::f32, false, {}, {}});
  const Batch batch = make_batch(8, 256, 17, 5);
  StepInputs inputs;
  inputs.batch = &batch;
  inputs.microbatches = {{0, 8}};
  inputs.output = Output::all;
  for (int round = 0; round < 5; ++round) {
    Pipeline pipeline(model, plan, PipelineOptions{});
    model.parameters(StageId(0)).initialize(pipeline.stream(), 1);
    pipeline.on_output = [](int, const ops::Tensor&, ops::Stream&) { throw Error("the disk is full"); };
    BOOST_CHECK_THROW(pipeline.run(inputs), Error);
  }
}

// What an error leaves behind (blocks that were in use, the step's inputs) does not get in the way of the next run.
BOOST_AUTO_TEST_CASE(a_pipeline_whose_run_failed_runs_again) {
  auto graph = std::make_shared<Graph>();
  graph->output(graph->embedding(graph->tokens("input_ids"), "wte", {.vocabulary = 17, .width = 8}));
  ParallelOptions parallel;
  parallel.device = shared_device();
  parallel.microbatches = 3;
  const schedules::Plan plan = make_plan(parallel, true);
  ModelRank model(graph, make_cuts(*graph, parallel, 1, 1, 4), plan.stage_rank, 0, shared_device(), {ops::Type::f32, false, {}, {}});
  Pipeline pipeline(model, plan, PipelineOptions{});
  model.parameters(StageId(0)).initialize(pipeline.stream(), 1);
  int outputs = 0;
  for (int round = 0; round < 6; ++round) {
    const auto batch = std::make_unique<Batch>(make_batch(3, 4, 17, 5));  // of this round alone
    StepInputs inputs;
    inputs.batch = batch.get();
    inputs.microbatches = {{0, 1}, {1, 1}, {2, 1}};
    inputs.output = Output::all;
    pipeline.on_output = [&](int microbatch, const ops::Tensor&, ops::Stream&) {
      if (round % 2 == 0 && microbatch == round / 2) throw Error("the disk is full");
      ++outputs;
    };
    if (round % 2 == 0)
      BOOST_CHECK_THROW(pipeline.run(inputs), Error);
    else
      pipeline.run(inputs);
  }
  BOOST_TEST(outputs == 3 * 3 + 0 + 1 + 2);
}

BOOST_AUTO_TEST_CASE(stages_balanced_by_a_measurement_train_alike) {
  const auto graph = make_model({.layers = 4});
  const auto data = batches(3, 4);
  TrainerOptions how = options("1f1b", 3, 3, 4);
  how.parallel.balance = Balance::measured;
  check_same(train(graph, how, data), train(graph, options("gpipe", 1, 1, 1), data));
}

BOOST_AUTO_TEST_SUITE_END()
