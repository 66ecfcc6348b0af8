// Generation: the cache against full forward passes, splits, groups of requests, ends and limits. The reference is the
// Evaluator, which has no cache and is itself compared with transformers; greedy ids of whole folders are compared with
// transformers by hand (README).
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

#include <ppengine/comm/threads.hpp>
#include <ppengine/engine/decoder.hpp>
#include <ppengine/engine/evaluator.hpp>
#include <ppengine/runs/generation.hpp>

#include "../models/helpers.hpp"
#include "../ranks.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;

namespace {

using Ids = std::vector<std::int32_t>;

ModelSource small_gpt2() {
  Gpt2Config config;
  config.vocabulary = 61, config.positions = 45, config.width = 30, config.layers = 4, config.heads = 3, config.inner = 50;
  config.initializer_range = 0.4;  // so that the likeliest token changes from step to step
  return {make_config(config), {}, config.positions};
}

ModelSource small_llama() {
  DecoderConfig config;
  config.vocabulary = 67, config.positions = 50, config.width = 28, config.inner = 37, config.layers = 4, config.heads = 6,
  config.kv_heads = 2;
  config.head_size = 10, config.initializer_range = 0.4, config.qkv_bias = config.output_bias = true;
  return {make_config(config), {}, config.positions};
}

std::shared_ptr<ops::Device> device() {
  static const auto opened = ops::Device::open("cpu");
  return opened;
}

engine::ParallelOptions parallel(int ranks, int stages = 0) {
  engine::ParallelOptions options;
  options.pipeline = ranks;
  options.stages = stages;
  options.device = device();
  return options;
}

void on_ranks(int ranks, const std::function<void(comm::Communicator&)>& body) { test::on_ranks(ranks, device(), body); }

// One forward pass over everything so far for every token.
Ids without_cache(const ModelSource& source, Ids ids, int tokens) {
  Ids chosen;
  on_ranks(1, [&](comm::Communicator& world) {
    const auto model = load_for_inference(source, parallel(1), world, 3);
    const comm::Mesh mesh(world, {});
    engine::Evaluator evaluator(*model, parallel(1), mesh, true);
    const auto vocabulary = static_cast<std::size_t>(source.config.vocabulary());
    evaluator.on_output = [&](std::int64_t, std::int64_t, std::span<const float> logits) {
      const auto last = logits.last(vocabulary);
      chosen.push_back(static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin()));
    };
    for (int i = 0; i < tokens; ++i) {
      evaluator.run({1, static_cast<std::int64_t>(ids.size()), {{"input_ids", ids, {}}, {"targets", Ids(ids.size(), -100), {}}}});
      ids.push_back(chosen.back());
    }
  });
  return chosen;
}

struct Setup {
  int ranks = 1, stages = 0;
  GeneratorOptions options{.capacity = 45};
  std::vector<std::string> split = {};
};

// Submits and runs; gives the results in the order of the requests.
std::vector<Generated> generate(const ModelSource& source, const Setup& setup, const std::vector<GenerationRequest>& requests) {
  std::vector<Generated> results(requests.size());
  on_ranks(setup.ranks, [&](comm::Communicator& world) {
    engine::ParallelOptions how = parallel(setup.ranks, setup.stages);
    how.split = setup.split;
    const auto model = load_for_inference(source, how, world, 3);
    Generator generator(*model, setup.options, world);
    if (world.rank() == 0)
      for (std::size_t i = 0; i < requests.size(); ++i) {
        GenerationRequest request = requests[i];
        request.on_finished = [&results, i](const Generated& result) { results[i] = result; };
        generator.submit(std::move(request));
      }
    generator.run();
  });
  return results;
}

GenerationRequest greedy(Ids prompt, std::int64_t tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = tokens;
  return request;
}

Ids some_ids(int count, int vocabulary, int step) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back((7 + i * step) % vocabulary);
  return ids;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generator)

// Others would wait for it, and messages on their way use memory that is gone when the error has left.
BOOST_AUTO_TEST_CASE(a_rank_that_fails_tells_the_others_before_its_memory_is_gone) {
  const auto on_two_ranks = [](const std::function<void(comm::Communicator&, engine::ModelRank&)>& fails) {
    on_ranks(2, [&](comm::Communicator& world) {
      const auto model = load_for_inference(small_gpt2(), parallel(2), world, 3);
      try {
        fails(world, *model);
      } catch (const Error& error) {
        const auto failure = world.failure();
        if (!failure) throw std::runtime_error(std::string("the run goes on after: ") + error.what());
        throw;
      }
    });
  };
  const auto says = [](const char* text) {
    return [=](const Error& error) { return std::string(error.what()).find(text) != std::string::npos; };
  };
  const auto generates = [](comm::Communicator& world, engine::ModelRank& model) {
    Generator generator(model, {.capacity = 45}, world);
    GenerationRequest request = greedy({1, 2, 3}, 20);
    request.on_token = [](std::int32_t) -> bool { throw Error("the reader has left"); };
    if (world.rank() == 0) generator.submit(std::move(request));
    generator.run();
  };
  BOOST_CHECK_EXCEPTION(on_two_ranks(generates), Error, says("the reader has left"));
  const auto decodes = [](comm::Communicator& world, engine::ModelRank& model) {
    world.set_timeout(std::chrono::milliseconds(300));
    engine::Decoder decoder(model, {.capacity = 45, .peers = &world});
    const std::int32_t position = 0, id = 1;
    if (world.rank() == 1) decoder.step(0, 0, {&position, 1}, {&id, 1});  // rank 0 sends nothing
  };
  BOOST_CHECK_EXCEPTION(on_two_ranks(decodes), Error, says("rank 0 has not posted its side"));
}

BOOST_AUTO_TEST_CASE(with_a_cache_come_the_tokens_of_full_forward_passes) {
  for (const ModelSource& source : {small_gpt2(), small_llama()})
    for (int length : {1, 2, 9, 21}) {  // by the decode kernel, by the tiles, one that is padded
      const Ids prompt = some_ids(length, 61, 13);
      const Generated result = generate(source, {}, {greedy(prompt, 20)}).front();
      BOOST_TEST(result.ids == without_cache(source, prompt, 20), boost::test_tools::per_element());
      BOOST_TEST((result.finish == Finish::length));
      BOOST_TEST(result.prompt_tokens == length);
    }
}

BOOST_AUTO_TEST_CASE(a_prompt_in_chunks_gives_the_same) {
  for (const ModelSource& source : {small_gpt2(), small_llama()}) {
    const Ids prompt = some_ids(31, 61, 5);
    const Ids whole = generate(source, {}, {greedy(prompt, 10)}).front().ids;
    for (std::int64_t chunk : {1, 7, 16}) {
      Setup setup;
      setup.options.chunk = chunk;
      BOOST_TEST(generate(source, setup, {greedy(prompt, 10)}).front().ids == whole, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(no_split_changes_the_tokens) {
  for (const ModelSource& source : {small_gpt2(), small_llama()}) {
    const Ids prompt = some_ids(12, 61, 11);
    const Ids whole = generate(source, {}, {greedy(prompt, 25)}).front().ids;
    for (const Setup& setup : {Setup{2}, Setup{3}, Setup{1, 3}, Setup{2, 5}})
      BOOST_TEST(generate(source, setup, {greedy(prompt, 25)}).front().ids == whole, boost::test_tools::per_element());
  }
}

// What comes after the last attention is computed for a prompt's last token alone, on whichever side of a cut it lies.
BOOST_AUTO_TEST_CASE(a_cut_behind_the_last_attention_changes_nothing) {
  const Ids prompt = some_ids(19, 61, 11);
  for (const auto& [source, modules] :
       {std::pair(small_gpt2(), std::vector<std::string>{"transformer.h.3.mlp", "transformer.ln_f", "lm_head", "loss"}),
        std::pair(small_llama(), std::vector<std::string>{"model.layers.3.mlp", "model.norm", "lm_head", "loss"})}) {
    const Ids whole = generate(source, {}, {greedy(prompt, 10)}).front().ids;
    for (const std::string& module : modules) {
      const Setup setup{2, 0, {.capacity = 45}, {module}};
      BOOST_TEST(generate(source, setup, {greedy(prompt, 10)}).front().ids == whole, boost::test_tools::per_element());
    }
    const Setup all{2, 5, {.capacity = 45}, modules};
    BOOST_TEST(generate(source, all, {greedy(prompt, 10)}).front().ids == whole, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_gives_its_first_token_in_one_pass) {
  on_ranks(1, [&](comm::Communicator& world) {
    const auto model = load_for_inference(small_gpt2(), parallel(1), world, 3);
    Generator generator(*model, {.capacity = 45}, world);
    engine::Profile profile;
    generator.set_profile(&profile);
    generator.submit(greedy(some_ids(19, 61, 11), 1));
    generator.run();
    BOOST_TEST(profile.entries().at("attention").calls == 4);  // one per layer
  });
}

// The step that others of its group make meanwhile leaves what a prompt has put into the cache alone, also where that is full.
BOOST_AUTO_TEST_CASE(a_prompt_that_joins_a_running_group_keeps_its_cache) {
  const std::vector<GenerationRequest> requests{greedy({5, 6, 7}, 30), greedy({9}, 2), greedy(some_ids(40, 61, 3), 6),
                                                greedy(some_ids(45, 61, 7), 6), greedy({1, 2}, 4)};
  const auto together = generate(small_gpt2(), {1, 0, {.capacity = 45, .groups = 1, .sequences = 2}}, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    BOOST_TEST(together[i].ids == generate(small_gpt2(), {}, {requests[i]}).front().ids, boost::test_tools::per_element());
  BOOST_TEST(together[3].ids.size() == 1u);
}

BOOST_AUTO_TEST_CASE(requests_side_by_side_give_what_each_gives_alone) {
  for (const ModelSource& source : {small_gpt2(), small_llama()}) {
    std::vector<GenerationRequest> requests;
    std::vector<Ids> alone;
    for (int i = 0; i < 9; ++i) {
      requests.push_back(greedy(some_ids(1 + 3 * i, 61, 3 + i), 4 + 5 * (i % 3)));
      alone.push_back(generate(source, {}, {requests.back()}).front().ids);
    }
    for (const Setup& setup :
         {Setup{1, 0, {.capacity = 45, .groups = 1, .sequences = 4}}, Setup{2, 0, {.capacity = 45, .groups = 2, .sequences = 1}},
          Setup{3, 0, {.capacity = 45, .groups = 3, .sequences = 2}}, Setup{2, 0, {.capacity = 45, .groups = 4, .sequences = 3}}}) {
      const auto results = generate(source, setup, requests);
      for (std::size_t i = 0; i < requests.size(); ++i) BOOST_TEST(results[i].ids == alone[i], boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_seed_repeats_and_another_one_differs) {
  GenerationRequest request = greedy({5, 6, 7}, 30);
  request.sampling.temperature = 1.5;
  request.sampling.seed = 11;
  const Ids first = generate(small_gpt2(), {}, {request}).front().ids;
  BOOST_TEST(generate(small_gpt2(), {2}, {request}).front().ids == first, boost::test_tools::per_element());
  request.sampling.seed = 12;
  BOOST_TEST((generate(small_gpt2(), {}, {request}).front().ids != first));
}

// The same model guesses right always, another one hardly ever.
BOOST_AUTO_TEST_CASE(a_draft_changes_no_token) {
  for (const double temperature : {0.0, 1.3}) {
    GenerationRequest request = greedy(some_ids(9, 61, 4), 30);
    request.sampling.temperature = temperature;
    const Ids alone = generate(small_gpt2(), {}, {request}).front().ids;
    for (const std::uint64_t seed : {3, 4})
      on_ranks(1, [&](comm::Communicator& world) {
        const auto model = load_for_inference(small_gpt2(), parallel(1), world, 3),
                   draft = load_for_inference(small_gpt2(), parallel(1), world, seed);
        Generator generator(*model, {.capacity = 45, .sequences = 2, .draft = draft.get(), .draft_capacity = 40}, world);
        Ids ids;
        for (int i = 0; i < 2; ++i) {  // the draft's cache is that of the request before
          request.on_finished = [&](const Generated& result) { ids = result.ids; };
          request.random_stream = 0;
          generator.submit(request);
          generator.run();
          BOOST_TEST(ids == alone, boost::test_tools::per_element());
        }
        const GeneratorStats stats = generator.stats();
        BOOST_TEST(stats.drafted_tokens > 0u);
        if (seed == 3) BOOST_TEST(stats.right_drafts == stats.drafted_tokens);
        if (seed == 4) BOOST_TEST(stats.right_drafts < stats.drafted_tokens / 2);
      });
  }
}

BOOST_AUTO_TEST_CASE(an_end_token_ends_and_is_kept) {
  const Ids all = generate(small_llama(), {}, {greedy({3, 1, 4}, 20)}).front().ids;
  GenerationRequest request = greedy({3, 1, 4}, 20);
  request.end_ids = {999, all[5]};
  const auto first = std::ranges::find(all, all[5]) - all.begin();
  const Generated result = generate(small_llama(), {2}, {request}).front();
  BOOST_TEST(result.ids == Ids(all.begin(), all.begin() + first + 1), boost::test_tools::per_element());
  BOOST_TEST((result.finish == Finish::end_token));
}

BOOST_AUTO_TEST_CASE(a_full_cache_ends_after_one_more_token) {
  // The last token needs no place in the cache: 45 positions, 40 taken by the prompt, 6 tokens.
  const Generated result = generate(small_gpt2(), {}, {greedy(some_ids(40, 61, 3), 100)}).front();
  BOOST_TEST(result.ids.size() == 6u);
  BOOST_TEST((result.finish == Finish::length));
  BOOST_TEST(generate(small_gpt2(), {}, {greedy(some_ids(45, 61, 3), 100)}).front().ids.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_request_can_be_cancelled_by_its_callback_and_from_another_thread) {
  std::atomic<int> seen = 0;
  Generated stopped, cancelled, other;
  on_ranks(2, [&](comm::Communicator& world) {
    const auto model = load_for_inference(small_gpt2(), parallel(2), world, 3);
    Generator generator(*model, {.capacity = 45, .groups = 2, .sequences = 1}, world);
    if (world.rank() == 0) {
      GenerationRequest one = greedy({1, 2}, 40);
      one.on_token = [&](std::int32_t) { return ++seen < 3; };
      one.on_finished = [&](const Generated& result) { stopped = result; };
      generator.submit(one);
      GenerationRequest two = greedy({3, 4}, 40);
      std::uint64_t number = 0;
      two.on_token = [&](std::int32_t) {
        // Cancelled from elsewhere while it runs: no token comes after this one.
        std::jthread([&] { generator.cancel(number); }).join();
        return true;
      };
      two.on_finished = [&](const Generated& result) { cancelled = result; };
      number = generator.submit(two);
      GenerationRequest three = greedy({5, 6}, 4);
      three.on_finished = [&](const Generated& result) { other = result; };
      generator.submit(three);
      generator.run();
    } else {
      generator.run();
    }
  });
  BOOST_TEST(stopped.ids.size() == 3u);
  BOOST_TEST((stopped.finish == Finish::cancelled));
  BOOST_TEST(cancelled.ids.size() == 1u);
  BOOST_TEST((cancelled.finish == Finish::cancelled));
  BOOST_TEST(other.ids.size() == 4u);
}

BOOST_AUTO_TEST_CASE(a_callback_can_submit_and_run_can_be_called_again) {
  std::vector<std::size_t> lengths;
  on_ranks(2, [&](comm::Communicator& world) {
    const auto model = load_for_inference(small_llama(), parallel(2), world, 3);
    Generator generator(*model, {.capacity = 45}, world);
    for (int round = 0; round < 2; ++round) {
      if (world.rank() == 0) {
        GenerationRequest first = greedy({1, 2}, 3);
        first.on_finished = [&](const Generated& result) {
          lengths.push_back(result.ids.size());
          GenerationRequest second = greedy({4}, 5);
          second.on_finished = [&](const Generated& more) { lengths.push_back(more.ids.size()); };
          generator.submit(second);
        };
        generator.submit(first);
      }
      generator.run();
    }
  });
  BOOST_TEST(lengths == (std::vector<std::size_t>{3, 5, 3, 5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
  std::size_t before = 0, after = 0;
  on_ranks(1, [&](comm::Communicator& world) {
    const auto model = load_for_inference(small_gpt2(), parallel(1), world, 3);
    Generator generator(*model, {.capacity = 45}, world);
    GenerationRequest request = greedy({1, 2, 3}, 30);
    int tokens = 0;
    request.on_token = [&](std::int32_t) {
      if (++tokens == 2) before = device()->memory().allocations();
      if (tokens == 30) after = device()->memory().allocations();
      return true;
    };
    generator.submit(request);
    generator.run();
  });
  BOOST_TEST(before > 0u);
  BOOST_TEST(after == before);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_generated_is_refused) {
  on_ranks(1, [&](comm::Communicator& world) {
    const auto model = load_for_inference(small_gpt2(), parallel(1), world, 3);
    Generator generator(*model, {.capacity = 20}, world);
    const auto refused = [&](const GenerationRequest& request) { return test::error_of([&] { generator.submit(request); }); };
    BOOST_TEST(test::contains(refused(greedy({}, 3)), "empty"));
    BOOST_TEST(test::contains(refused(greedy(some_ids(21, 61, 1), 3)), "21 tokens"));
    BOOST_TEST(test::contains(refused(greedy({1, 61}, 3)), "token 61"));
    BOOST_TEST(test::contains(refused(greedy({-1}, 3)), "token -1"));
    BOOST_TEST(test::contains(refused(greedy({1}, 0)), "at least 1"));
  });
}

BOOST_AUTO_TEST_SUITE_END()
