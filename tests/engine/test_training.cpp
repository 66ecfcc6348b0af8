// One truth: every schedule, split and number of ranks trains like one rank; nothing is allocated in a steady step.
#include "support.hpp"

#include <ppengine/base/error.hpp>
#include <ppengine/ops/kernel_library.hpp>

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

std::vector<Batch> batches(int steps, int64_t sequences, bool masked = false) {
  std::vector<Batch> list;
  for (int i = 0; i < steps; ++i) list.push_back(make_batch(sequences, 9, 17, static_cast<uint64_t>(i + 1) * 1000, masked));
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

void check_same(const Outcome& got, const Outcome& expected, double tolerance = 2e-4) {
  BOOST_REQUIRE_EQUAL(got.losses.size(), expected.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i) {
    BOOST_TEST(std::abs(got.losses[i] - expected.losses[i]) < tolerance * expected.losses[i]);
    BOOST_TEST(std::abs(got.norms[i] - expected.norms[i]) < tolerance * expected.norms[i]);
  }
  std::string worst;
  const double weights = difference(got.weights, expected.weights, &worst);
  BOOST_TEST_CONTEXT("weights of " << worst) { BOOST_TEST(weights < tolerance); }
}

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

BOOST_AUTO_TEST_CASE(a_run_repeated_gives_the_same_bits) {
  const auto graph = make_model({.layers = 2, .dropout = 0.1f});
  const auto data = batches(4, 6);
  const Outcome first = train(graph, options("zbvzerobubble", 2, 4, 3), data), second = train(graph, options("zbvzerobubble", 2, 4, 3), data);
  BOOST_TEST(first.losses == second.losses, boost::test_tools::per_element());
  BOOST_TEST(difference(first.weights, second.weights) == 0.0);
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
  const auto graph = make_model({.layers = 2});
  comm::LocalOptions local;
  local.devices.assign(2, shared_device());
  TrainerOptions how = options("1f1b", 2, 2, 4);
  how.parallel.device = shared_device();
  comm::run_threads(2, local, [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, 4, 9);
    const Batch batch = make_batch(4, 9, 17, 1);
    trainer.step(batch, 1e-3);
    trainer.step(batch, 1e-3);
    world.barrier();
    const size_t allocations = shared_device()->memory().allocations(), lookups = shared_device()->kernels().lookups();
    world.barrier();
    trainer.step(batch, 1e-3);
    trainer.step(batch, 1e-3);
    world.barrier();
    BOOST_CHECK_EQUAL(shared_device()->memory().allocations(), allocations);
    BOOST_CHECK_EQUAL(shared_device()->kernels().lookups(), lookups);
  });
}

BOOST_AUTO_TEST_CASE(activation_memory_follows_the_plan_and_not_the_number_of_microbatches) {
  const auto graph = make_model({.layers = 4});
  const auto blocks = [&](const char* schedule, int microbatches) {
    size_t bytes = 0;
    comm::LocalOptions local;
    local.devices.assign(4, shared_device());
    TrainerOptions how = options(schedule, 4, 4, microbatches);
    how.parallel.device = shared_device();
    comm::run_threads(4, local, [&](comm::Communicator& world) {
      Trainer trainer(graph, how, world, microbatches, 9);
      if (world.rank() == 0) bytes = trainer.pipeline().block_bytes();
    });
    return bytes;
  };
  BOOST_TEST(blocks("1f1b", 16) == blocks("1f1b", 4));          // p microbatches, whatever m is
  BOOST_TEST(blocks("gpipe", 16) > 3 * blocks("gpipe", 4));     // m of them
}

BOOST_AUTO_TEST_CASE(impossible_requests_are_refused_before_training_starts) {
  const auto graph = make_model({.layers = 2});
  const auto data = batches(1, 4);
  BOOST_CHECK_THROW(train(graph, options("1f1b", 2, 2, 8), data), ConfigError);                  // fewer sequences than microbatches
  BOOST_CHECK_THROW(train(graph, options("1f1b", 1, 1, 1, 3), data), ConfigError);               // dp does not divide the batch
  BOOST_CHECK_THROW(train(graph, options("zbvzerobubble", 2, 6, 4), data), ConfigError);         // three stages a rank
  TrainerOptions how = options("1f1b", 2, 2, 4);
  how.parallel.split = {"transformer.h.7"};
  BOOST_CHECK_THROW(train(graph, how, data), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
