// The KV cache in pages: what is shared, kept and let go of; and that sequences which have to leave the cache give the tokens that they
// give with room for all.
#include <boost/test/unit_test.hpp>

#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/generator/page_pool.hpp>

#include "../models/helpers.hpp"
#include "../ranks.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;

namespace {

using Ids = std::vector<std::int32_t>;

ModelSource small_gpt2() {
  Gpt2Config config;
  config.vocabulary = 61, config.positions = 300, config.width = 30, config.layers = 2, config.heads = 3, config.inner = 50;
  config.initializer_range = 0.4;
  return {make_config(config), {}, config.positions};
}

// Every other layer with a window: those keep rings beside the pages.
ModelSource small_gemma2() {
  DecoderConfig config;
  config.vocabulary = 61, config.positions = 300, config.width = 24, config.inner = 36, config.layers = 4, config.heads = 4,
  config.kv_heads = 2;
  config.head_size = 8, config.initializer_range = 0.4;
  config.window = 20, config.windowed = {true, false, true, false};
  return {make_config(config), {}, config.positions};
}

struct Run {
  std::vector<Generated> results;
  GeneratorStats stats;
};

Run generate(const ModelSource& source, int ranks, const GeneratorOptions& options, const std::vector<GenerationRequest>& requests) {
  static const auto device = ops::Device::open("cpu");
  Run run;
  run.results.resize(requests.size());
  test::on_ranks(ranks, device, [&](comm::Communicator& world) {
    engine::ParallelOptions parallel;
    parallel.pipeline = ranks;
    parallel.device = device;
    const auto model = load_for_inference(source, parallel, world, 3);
    Generator generator(*model, options, world);
    for (std::size_t i = 0; world.rank() == 0 && i < requests.size(); ++i) {
      GenerationRequest request = requests[i];
      request.on_finished = [&run, i](const Generated& result) { run.results[i] = result; };
      generator.submit(std::move(request));
    }
    generator.run();
    if (world.rank() == 0) run.stats = generator.stats();
  });
  return run;
}

GenerationRequest request_for(int tokens, int step, std::int64_t most, double temperature) {
  GenerationRequest request;
  for (int i = 0; i < tokens; ++i) request.prompt.push_back((7 + i * step) % 61);
  request.max_new_tokens = most;
  request.sampling.temperature = temperature;
  request.sampling.seed = static_cast<std::uint64_t>(step);
  return request;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pages)

BOOST_AUTO_TEST_CASE(a_pool_gives_takes_back_and_keeps) {
  PagePool pool(5, 2);
  const Ids tokens{1, 2, 3, 4, 5, 6};
  Ids mine{pool.take(), pool.take(), pool.take()};
  BOOST_TEST(pool.available() == 1);
  pool.keep(-1, tokens, mine);
  BOOST_TEST(pool.find(-1, Ids{1, 2, 3, 4, 9, 9}) == (Ids{mine[0], mine[1]}), boost::test_tools::per_element());
  BOOST_TEST(pool.find(0, tokens).empty());            // of an adapter: other values
  BOOST_TEST(pool.find(-1, Ids{3, 4, 5, 6}).empty());  // elsewhere in the text
  for (const std::int32_t page : mine) pool.hold(page);
  for (int i = 0; i < 2; ++i)
    for (const std::int32_t page : mine) pool.release(page);
  BOOST_TEST(pool.available() == 4);
  BOOST_TEST(pool.used() == 0);
  // The end of the kept prompt goes first, its beginning last.
  Ids taken{pool.take(), pool.take()};
  BOOST_TEST(pool.find(-1, tokens) == (Ids{mine[0], mine[1]}), boost::test_tools::per_element());
  taken.push_back(pool.take());
  taken.push_back(pool.take());
  BOOST_TEST(pool.find(-1, tokens).empty());
  BOOST_TEST(pool.take() == -1);
  std::ranges::sort(taken);
  BOOST_TEST(taken == (Ids{1, 2, 3, 4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_pool_counts_equal_prompts_of_two_sequences_once) {
  PagePool pool(7, 2);
  const Ids tokens{1, 2, 3, 4};
  Ids first{pool.take(), pool.take()}, second{pool.take(), pool.take()};
  pool.keep(-1, tokens, first);
  pool.keep(-1, tokens, second);
  BOOST_TEST(second == first, boost::test_tools::per_element());
  BOOST_TEST(pool.available() == 4);  // what the second had computed is free
  BOOST_TEST(pool.kept() == 2);
  for (const std::int32_t page : second) pool.release(page);
  for (const std::int32_t page : first) pool.release(page);
  BOOST_TEST(pool.available() == 6);
  BOOST_TEST(pool.find(-1, tokens) == first, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_pool_gives_as_many_pages_as_are_available) {
  PagePool pool(8, 2);
  const Ids tokens{1, 2, 3, 4};
  Ids first{pool.take()}, second{pool.take(), pool.take()};
  pool.keep(-1, std::span(tokens).first(2), first);
  pool.keep(-1, tokens, second);  // its second page follows the first one's
  pool.release(first[0]);
  const std::int64_t available = pool.available();
  std::int64_t given = 0;
  while (pool.take() >= 0) ++given;
  BOOST_TEST(given == available);
  BOOST_TEST(pool.find(-1, tokens) == second, boost::test_tools::per_element());  // still held, and so is its beginning
}

BOOST_AUTO_TEST_CASE(with_few_pages_come_the_same_tokens) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 7; ++i) requests.push_back(request_for(1 + 37 * i % 150, 3 + i, 60 + 20 * (i % 3), i % 2 ? 1.2 : 0.0));
  for (const ModelSource& source : {small_gpt2(), small_gemma2()})
    for (const auto& [ranks, groups, sequences] : {std::tuple(1, 1, 4), std::tuple(2, 2, 2), std::tuple(2, 3, 2)}) {
      GeneratorOptions options{.capacity = 300, .groups = groups, .sequences = sequences, .chunk = 64, .interleaved = true};
      const Run all = generate(source, ranks, options, requests);
      BOOST_TEST(all.stats.preempted == 0u);
      options.pages = 5;  // one sequence of 300 tokens
      const Run few = generate(source, ranks, options, requests);
      BOOST_TEST(few.stats.preempted > 0u);
      BOOST_TEST(few.stats.used_pages == 0);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        BOOST_TEST(few.results[i].ids == all.results[i].ids, boost::test_tools::per_element());
        BOOST_TEST(few.results[i].ids.size() == static_cast<std::size_t>(requests[i].max_new_tokens));
      }
    }
}

BOOST_AUTO_TEST_CASE(equal_beginnings_are_computed_once_and_change_nothing) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request_for(150, 5, 30, 0.0));  // 128 tokens are two chunks of two pages
    requests.back().prompt.push_back(i);
  }
  for (int ranks : {1, 2}) {
    GeneratorOptions options{.capacity = 300, .groups = ranks, .sequences = 3, .chunk = 128, .interleaved = true};
    const Run apart = generate(small_gpt2(), ranks, options, requests);
    BOOST_TEST(apart.stats.reused_tokens == 0u);
    options.reuse = true;
    for (const std::int64_t pages : {0, 7}) {
      options.pages = pages;
      const Run shared = generate(small_gpt2(), ranks, options, requests);
      BOOST_TEST(shared.stats.reused_tokens >= 5 * 128u);
      for (std::size_t i = 0; i < requests.size(); ++i)
        BOOST_TEST(shared.results[i].ids == apart.results[i].ids, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
