// Embeddings whose touched rows alone are summed over the data-parallel ranks: the same bits as with all rows.
#include <ppengine/engine/gradients/row_gradients.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

// The plain sum, but of whole buckets.
class AllRows final : public GradientHook {
 public:
  const char* name() const override { return "all rows"; }
  void reduce(const GradientBucket& bucket, HookContext& context) override { sum_bucket(bucket, context); }
};

struct Setup {
  int pipeline = 1, data = 2, tensor = 1;
  bool shard = false, tied = false, parts = false;  // parts: of a sharded model, in any case
};

struct Seen {
  Outcome outcome;
  std::size_t sent = 0, bytes = 0;  // of the embedding's table, in the last step
};

enum class Steps { plain, accumulated, uneven };

Seen run(const Setup& layout, Steps steps, bool all_rows) {
  const auto graph = make_model({.vocabulary = 400, .layers = 2, .heads = 2, .tied = layout.tied});
  TrainerOptions how;
  how.parallel.pipeline = layout.pipeline;
  how.parallel.data = layout.data;
  how.parallel.tensor = layout.tensor;
  how.parallel.shard = layout.shard;
  how.parallel.always_gather = layout.parts;
  how.parallel.microbatches = 2;
  how.parallel.device = shared_device();
  how.buckets.caps = {4000};
  if (all_rows) how.own_hook = std::make_shared<AllRows>();
  Seen seen;
  on_ranks(how.parallel.mesh().size(), [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, 8, 9);
    for (std::uint64_t i = 1; i <= 3; ++i) {
      const Batch batch = make_batch(8, 9, 400, 1000 * i);
      std::optional<StepResult> result;
      if (steps == Steps::accumulated) trainer.accumulate(make_batch(8, 9, 400, 1000 * i + 500));
      if (steps == Steps::uneven)
        result = trainer.step_own(trainer.mesh().place().data == 0 ? &batch : nullptr, 1e-2);
      else
        result = trainer.step(batch, 1e-2);
      if (world.rank() == 0) seen.outcome.losses.push_back(result->loss), seen.outcome.norms.push_back(result->grad_norm);
    }
    collect(trainer, seen.outcome);
    if (world.rank() != 0) return;
    const ParameterStore& store = trainer.model().parameters(StageId(0));
    const std::size_t table = store.find(graph->find_parameter("transformer.wte.weight"))->bucket;
    BOOST_REQUIRE_EQUAL(store.buckets()[static_cast<std::size_t>(table)].parameters.size(), 1u);
    for (const TimedReduction& one : trainer.reductions())
      if (one.stage == StageId(0) && one.bucket == table) seen.sent = one.sent, seen.bytes = one.bytes;
  });
  return seen;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(row_gradients)

BOOST_AUTO_TEST_CASE(sums_of_the_touched_rows_are_those_of_all) {
  for (const Setup& layout :
       {Setup{}, Setup{1, 2, 1, true}, Setup{1, 2, 1, true, false, true}, Setup{1, 2, 2}, Setup{2, 2}, Setup{2, 2, 1, false, true}})
    for (const Steps steps : {Steps::plain, Steps::accumulated, Steps::uneven})
      BOOST_TEST_CONTEXT("pp " << layout.pipeline << " dp " << layout.data << " tp " << layout.tensor << " shard " << layout.shard
                               << " parts " << layout.parts << " tied " << layout.tied << " steps " << static_cast<int>(steps)) {
        const Seen rows = run(layout, steps, false), all = run(layout, steps, true);
        BOOST_TEST(all.sent == all.bytes);
        BOOST_TEST(rows.bytes == all.bytes);
        // At most the rows of 72 tokens, or of 144 where two batches add up: in bytes of 12 columns.
        BOOST_TEST(rows.sent <= 4 * 12 * (steps == Steps::accumulated && !layout.parts ? 144u : 72u));
        BOOST_TEST(rows.sent >= 4u * 12u * 20u);
        BOOST_TEST(rows.outcome.losses == all.outcome.losses);
        for (std::size_t i = 0; i < rows.outcome.norms.size(); ++i)
          BOOST_TEST(rows.outcome.norms[i] == all.outcome.norms[i], boost::test_tools::tolerance(1e-6));
        BOOST_TEST((rows.outcome.gradients == all.outcome.gradients));
        std::string worst;
        const double off = difference(rows.outcome.weights, all.outcome.weights, &worst);
        BOOST_TEST(off == 0.0, worst << " is " << off << " off");
      }
}

// More tokens than half of the rows: nothing to save.
BOOST_AUTO_TEST_CASE(batches_that_touch_most_rows_are_summed_whole) {
  const auto graph = make_model({.vocabulary = 40, .layers = 1});
  TrainerOptions how;
  how.parallel.data = 2;
  how.parallel.device = shared_device();
  how.buckets.caps = {1000};
  on_ranks(2, [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, 8, 9);
    trainer.step(make_batch(8, 9, 40, 1), 1e-2);
    const std::lock_guard lock(checking());
    for (const TimedReduction& one : trainer.reductions()) BOOST_CHECK_EQUAL(one.sent, one.bytes);
  });
}

// A table that is the head's weight too has a gradient everywhere, and a small one shares its bucket with others.
BOOST_AUTO_TEST_CASE(only_tables_that_nothing_else_uses_are_summed_by_rows) {
  for (const bool tied : {false, true}) {
    const auto graph = make_model({.layers = 1, .tied = tied});
    const StageCut whole{NodeId(0), graph->nodes().end_id(), {}, {}, {}};
    const auto tables = row_tables(*graph, whole);
    BOOST_REQUIRE_EQUAL(tables.size(), tied ? 0u : 1u);
    if (tied) continue;
    BOOST_TEST(graph->parameters()[tables[0].parameter].name == "transformer.wte.weight");
    BOOST_TEST(tables[0].rows == 17);
    BOOST_TEST(tables[0].width == 12);
  }
}

BOOST_AUTO_TEST_SUITE_END()
