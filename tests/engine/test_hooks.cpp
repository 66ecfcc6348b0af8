// Hooks on buckets: what each makes of ranks' gradients, against sums in double made here.
#include <ppengine/base/error.hpp>
#include <ppengine/engine/gradients/hooks.hpp>

#include "support.hpp"

using namespace ppengine;
using namespace ppengine::engine;
using namespace ppengine::engine::test;

namespace {

constexpr std::size_t rows = 48, columns = 40, extra = 32, total = rows * columns + extra;

// A rank's gradients: a matrix of rank two (or a full one), and a vector.
std::vector<float> gradients(int rank, bool full) {
  std::vector<float> data(total);
  const auto number = [&](std::uint64_t i) {
    return static_cast<float>(mix(static_cast<std::uint64_t>(rank) * 7919 + i) >> 40) * 0x1p-23f - 1.0f;
  };
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      data[i * columns + j] = full ? number(i * columns + j) : float(i % 5) * 0.1f * float(j % 7) + number(0) * float(i % 3) * float(j % 4);
  for (std::size_t i = 0; i < extra; ++i) data[rows * columns + i] = number(10000 + i);
  return data;
}

// What `ranks` ranks hold after each of `steps` reductions of the same gradients.
std::vector<std::vector<float>> reduce(HookOptions options, int ranks, int steps, bool full, bool sharded) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(steps), std::vector<float>(total));
  const ParameterInfo weight{.name = "weight", .shape = {rows, columns}}, bias{.name = "bias", .shape = {extra}};
  on_ranks(ranks, [&](comm::Communicator& world) {
    const auto hook = make_hook(options);
    hook->check(sharded);
    ops::Stream stream(shared_device());
    ops::MemoryCounter memory;
    ops::Buffer data(shared_device(), total * sizeof(float)), part(shared_device(), total * sizeof(float));
    HookContext context{world, stream, memory};
    GradientBucket bucket;
    bucket.data = data.as<float>();
    bucket.count = total;
    bucket.part = sharded ? part.as<float>() : nullptr;
    bucket.part_count = total / static_cast<std::size_t>(ranks);
    bucket.gradients = {{&weight, weight.shape, 0}, {&bias, bias.shape, rows * columns}};
    const auto mine = gradients(world.rank(), full);
    for (auto& result : results) {
      stream.copy(data.data(), mine.data(), total * sizeof(float));
      stream.wait();
      hook->reduce(bucket, context);
      const std::size_t begin = sharded ? bucket.part_count * static_cast<std::size_t>(world.rank()) : 0,
                        count = sharded ? bucket.part_count : total;
      if (!sharded && world.rank() > 0) continue;
      stream.copy(result.data() + begin, sharded ? bucket.part : bucket.data, count * sizeof(float));
      stream.wait();
    }
  });
  return results;
}

std::vector<double> exact(int ranks, bool full) {
  std::vector<double> sum(total);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto theirs = gradients(rank, full);
    for (std::size_t i = 0; i < total; ++i) sum[i] += theirs[i];
  }
  return sum;
}

double error(const std::vector<float>& got, const std::vector<double>& expected, std::size_t begin = 0) {
  return ppengine::test::largest_share(got, expected, 1e-30, begin);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hooks)

BOOST_AUTO_TEST_CASE(sums_are_exact_or_rounded_to_their_type) {
  for (const bool sharded : {false, true}) {
    const auto expected = exact(2, true);
    BOOST_TEST(error(reduce({.name = "allreduce"}, 2, 1, true, sharded)[0], expected) < 1e-6);
    const double bf16 = error(reduce({.name = "bf16"}, 2, 1, true, sharded)[0], expected),
                 fp16 = error(reduce({.name = "fp16"}, 2, 1, true, sharded)[0], expected);
    BOOST_TEST(bf16 < 1.5 / 256);  // three roundings of half a unit
    BOOST_TEST(bf16 > 1e-4);       // it did travel in few bits
    BOOST_TEST(fp16 < 1.5 / 2048);
    BOOST_TEST(fp16 > 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(none_leaves_every_rank_its_own) {
  const auto mine = gradients(0, true);
  BOOST_TEST(error(reduce({.name = "none"}, 2, 1, true, false)[0], {mine.begin(), mine.end()}) == 0.0);
}

// Two ranks' matrices share a factor each: their sum has rank three.
BOOST_AUTO_TEST_CASE(powersgd_is_exact_for_matrices_of_its_rank) {
  const auto expected = exact(2, false);
  const auto got = reduce({.name = "powersgd", .rank = 4, .warmup = 1}, 2, 3, false, false);
  for (std::size_t step = 0; step < 3; ++step)
    BOOST_TEST(error(got[step], expected) < 1e-4, "step " << step << ": " << error(got[step], expected));
}

// With full matrices one step is far off, vectors never are, and what was lost comes back later: the mean approaches the gradient.
BOOST_AUTO_TEST_CASE(powersgd_makes_up_for_what_it_has_lost) {
  const auto expected = exact(2, true);
  constexpr int steps = 60;
  const auto got = reduce({.name = "powersgd", .rank = 2, .warmup = 0}, 2, steps, true, false);
  std::vector<float> mean(total);
  for (const auto& one : got)
    for (std::size_t i = 0; i < total; ++i) mean[i] += one[i] / steps;
  BOOST_TEST(error(got[0], expected, rows * columns) < 1e-6);
  BOOST_TEST(error(got[0], expected) > 0.3);
  BOOST_TEST(error(mean, expected) < 0.6 * error(got[0], expected));
  BOOST_CHECK_THROW(make_hook({.name = "powersgd"})->check(true), ConfigError);
}

BOOST_AUTO_TEST_CASE(models_learn_with_every_hook) {
  const auto graph = make_model({.width = 24, .layers = 2});
  const Batch batch = make_batch(8, 9, 17, 1);
  for (const std::string& name : hook_names()) {
    if (name == "none") continue;
    TrainerOptions how;
    how.parallel.data = 2;
    how.hook.name = name;
    const Outcome outcome = train(graph, how, std::vector<Batch>(30, batch), 1e-2);
    BOOST_TEST(outcome.losses.back() < 0.5 * outcome.losses.front(),
               name << ": " << outcome.losses.front() << " to " << outcome.losses.back());
  }
  BOOST_CHECK_THROW(make_hook({.name = "gossip"}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
