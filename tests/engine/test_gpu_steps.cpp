// Steps as GPUs get them, on the CPU in the place of two: what the host asks of a device in a steady step is bounded, by count, and the
// numbers are those of the CPU.
#include <cstdlib>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

const std::vector<std::shared_ptr<ops::Device>>& two_gpus() {
  static const auto& devices = *new auto([] {
    setenv("PPENGINE_STANDIN_GPUS", "2", 1);
    std::vector<std::shared_ptr<ops::Device>> opened{ops::Device::open("standin:0"), ops::Device::open("standin:1")};
    unsetenv("PPENGINE_STANDIN_GPUS");
    return opened;
  }());
  return devices;
}

void on_gpus(int ranks, const std::function<void(comm::Communicator&)>& body) {
  comm::LocalOptions local;
  for (int r = 0; r < ranks; ++r) local.devices.push_back(two_gpus()[static_cast<std::size_t>(r) % 2]);
  comm::run_threads(ranks, local, body);
}

struct Totals {
  ops::DeviceWork work;
  std::size_t allocations = 0;
};

Totals totals() {
  Totals sum;
  for (const auto& device : two_gpus()) {
    const ops::DeviceWork one = device->work();
    sum.work.launches += one.launches, sum.work.copies += one.copies, sum.work.waits += one.waits;
    sum.allocations += device->memory().allocations();
  }
  return sum;
}

// Of one step after two others, over all ranks.
Totals steady_step(const std::shared_ptr<const Graph>& graph, const ParallelOptions& parallel, const Batch& batch) {
  TrainerOptions how;
  how.parallel = parallel;
  how.parallel.devices = two_gpus();
  how.parallel.balance = Balance::estimated;
  Totals before, after;
  on_gpus(parallel.mesh().size(), [&](comm::Communicator& world) {
    Trainer trainer(graph, how, world, batch.sequences, batch.length);
    trainer.step(batch, 1e-3);
    trainer.step(batch, 1e-3);
    world.barrier();
    if (world.rank() == 0) before = totals();
    world.barrier();
    trainer.step(batch, 1e-3);
    world.barrier();
    if (world.rank() == 0) after = totals();
    world.barrier();
  });
  return {{after.work.launches - before.work.launches, after.work.copies - before.work.copies, after.work.waits - before.work.waits},
          after.allocations - before.allocations};
}

// tiny's shape: 4 layers, a head of its own.
std::shared_ptr<const Graph> tiny() { return make_model({.vocabulary = 256, .width = 256, .layers = 4, .heads = 4, .positions = 128}); }

ParallelOptions layout(int pipeline, int microbatches, const char* schedule = "1f1b") {
  ParallelOptions options;
  options.pipeline = pipeline;
  options.microbatches = microbatches;
  options.schedule = schedule;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gpu_steps)

// A layer's forward is at most 12 launches (2 norms, 4 linears with their bias, attention, activation, 2 sums and copies between), its
// backward at most twice that and a sum of columns for each bias; the optimizer and the norm have two a bucket.
BOOST_AUTO_TEST_CASE(a_steady_step_of_tiny_asks_little_of_the_device) {
  const auto graph = tiny();
  for (const int microbatches : {1, 4}) {
    const Totals one = steady_step(graph, layout(1, microbatches), make_batch(4, 32, 256, 1));
    const auto actions = static_cast<std::uint64_t>(2 * microbatches);  // a forward and a backward each
    BOOST_TEST_MESSAGE(microbatches << " microbatches: " << one.work.launches << " launches, " << one.work.copies << " copies, "
                                    << one.work.waits << " waits");
    BOOST_TEST(one.allocations == 0u);
    BOOST_TEST(one.work.waits <= 6u);  // for the loss, for the norm of two buckets, at the end: none for an action
    BOOST_TEST(one.work.launches <= actions * 70 + 20);
    BOOST_TEST(one.work.copies <= actions * 2 + 8);
  }
}

BOOST_AUTO_TEST_CASE(waits_do_not_grow_with_microbatches_in_a_pipeline_either) {
  const auto graph = tiny();
  for (const char* schedule : {"1f1b", "interleavedzerobubble"}) {
    const Totals few = steady_step(graph, layout(2, 2, schedule), make_batch(8, 16, 256, 1));
    const Totals many = steady_step(graph, layout(2, 8, schedule), make_batch(8, 16, 256, 1));
    BOOST_TEST_MESSAGE(schedule << ": " << few.work.waits << " and " << many.work.waits << " waits");
    BOOST_TEST(few.allocations == 0u);
    BOOST_TEST(many.allocations == 0u);
    // Of messages between two devices the mover's copies through the host are waited for, twice a message.
    const std::uint64_t messages = 2 * 6;
    BOOST_TEST(many.work.waits <= few.work.waits + 2 * messages);
  }
}

// Reference: the same steps on the CPU device, by oneDNN and the loops of ops/cpu.
BOOST_AUTO_TEST_CASE(losses_and_weights_are_those_of_the_cpu) {
  for (const bool rms : {false, true}) {
    const auto graph = make_model({.layers = 4, .tied = !rms, .rms = rms});
    std::vector<Batch> data;
    for (std::uint64_t i = 0; i < 3; ++i) data.push_back(make_batch(8, 9, 17, i, true));
    const auto outcome_of = [&](const ParallelOptions& parallel, bool gpus) {
      TrainerOptions how;
      how.parallel = parallel;
      how.optimizer.epsilon = 1e-4;  // biases of keys have no gradient but what rounding makes: AdamW would blow that up
      if (gpus)
        how.parallel.devices = two_gpus();
      else
        how.parallel.device = ops::Device::open("cpu");
      Outcome outcome;
      const auto body = [&](comm::Communicator& world) {
        Trainer trainer(graph, how, world, 8, 9);
        for (const Batch& batch : data) {
          const StepResult result = trainer.step(batch, 1e-3);
          if (world.rank() != 0) continue;
          outcome.losses.push_back(result.loss);
          outcome.norms.push_back(result.grad_norm);
        }
        collect(trainer, outcome);
      };
      if (gpus)
        on_gpus(parallel.mesh().size(), body);
      else
        on_ranks(parallel.mesh().size(), body, how.parallel.device);
      return outcome;
    };
    const Outcome expected = outcome_of(layout(1, 2), false);
    for (ParallelOptions parallel : {layout(1, 2), layout(2, 4), layout(2, 4, "zbvzerobubble"), layout(4, 4), layout(1, 2), layout(1, 2)}) {
      static int turn = 0;
      if (turn % 6 == 4) parallel.data = 2;
      if (turn % 6 == 5) parallel.data = 2, parallel.shard = true;
      ++turn;
      BOOST_TEST_CONTEXT(parallel.schedule << ", " << parallel.pipeline << " x " << parallel.data) {
        check_same(outcome_of(parallel, true), expected);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
