// Sharded training: the memory that it saves, and evaluation between its steps. That it trains as one rank does: test_data_parallel.cpp.
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/stage/plan_memory.hpp>

#include "layouts.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

BOOST_AUTO_TEST_SUITE(sharding)

// With n elements in a rank's stages and dp ranks, values, gradients and AdamW's two states take 16n/dp bytes in place of 16n; the largest
// stage's parameters and gradients are there whole as often as the plan has them at the same time. Where that is more than all stages' 4n,
// these are there.
BOOST_AUTO_TEST_CASE(memory_falls_as_computed) {
  const auto graph = make_model({.vocabulary = 400, .width = 48, .layers = 6});
  for (const Setup& plain :
       {Setup{"1f1b", 1, 2}, Setup{"loopedbfs", 1, 2, 1, 6, 2}, Setup{"loopedbfs", 2, 2, 1, 6, 2}, Setup{"1f1b", 1, 4}}) {
    double bytes[2] = {}, expected = 0;
    for (const bool shard : {false, true}) {
      Setup layout = plain;
      layout.shard = shard ? Setup::least : Setup::none;
      TrainerOptions how = options(layout);
      how.parallel.active_stages = 2;
      how.parallel.balance = Balance::estimated;  // the same stages for both
      on_ranks(how, [&](comm::Communicator& world) {
        Trainer trainer(graph, how, world, 8, 9);
        trainer.step(make_batch(8, 9, 17, 1), 1e-2);
        if (world.rank() != 0) return;
        bytes[shard] = double(trainer.model().memory().peak());
        std::size_t all = 0, largest = 0, part = 0;
        for (engine::StageId stage : trainer.model().stages()) {
          const ParameterStore& store = trainer.model().parameters(stage);
          all += store.count();
          largest = std::max(largest, store.count());
          for (const Bucket& bucket : store.buckets()) part = std::max(part, store.local_count(bucket));
        }
        if (!shard) {
          expected += 16.0 * double(all);
          return;
        }
        const ActiveCount active = count_active(trainer.plan(), 0);
        const std::size_t share = all / static_cast<std::size_t>(layout.data);
        const auto beside = [&](int blocks) { return share + largest * static_cast<std::size_t>(blocks); };
        const std::size_t weights = std::min(all, beside(active.gathered)), gradients = std::min(all, beside(active.gradients));
        expected -= 4.0 * double(2 * share + weights + gradients + (gradients < all ? part : 0));  // part: one bucket on its way
        BOOST_TEST(bytes[1] < bytes[0]);
      });
    }
    // What alignment adds to a bucket depends on the number of parts.
    BOOST_TEST_CONTEXT(plain << ": " << bytes[0] << " and " << bytes[1]) { BOOST_TEST(std::abs(bytes[0] - bytes[1] - expected) < 4096.0); }
  }
}

BOOST_AUTO_TEST_CASE(evaluation_between_sharded_steps_gives_the_loss_of_one_rank) {
  const auto graph = make_model({.layers = 4});
  const Batch batch = make_batch(8, 9, 17, 1, true), few = make_batch(1, 9, 17, 2);
  std::vector<double> losses;
  for (const Setup& layout : {Setup{}, Setup{"1f1b", 1, 2, 1, 0, 2, Setup::least}, Setup{"interleaved1f1b", 2, 2, 1, 4, 4, Setup::least},
                              Setup{"interleaved1f1b", 2, 2, 1, 4, 4, Setup::parts}}) {
    const TrainerOptions how = options(layout);
    on_ranks(how, [&](comm::Communicator& world) {
      Trainer trainer(graph, how, world, 8, 9);
      for (int i = 0; i < 2; ++i) {
        const double loss = trainer.evaluator().run(batch).loss(),
                     of_few = trainer.evaluator().run(few).loss();  // one rank has none of these
        if (world.rank() == 0) losses.push_back(loss), losses.push_back(of_few);
        trainer.step(batch, 1e-2);
      }
    });
  }
  BOOST_REQUIRE_EQUAL(losses.size(), 16u);
  for (std::size_t i = 4; i < 16; ++i) BOOST_TEST(losses[i] == losses[i % 4], boost::test_tools::tolerance(2e-5));
}

BOOST_AUTO_TEST_SUITE_END()
