// Generation by tensor-parallel ranks: the tokens of one rank, which are compared with full forward passes and with transformers elsewhere.
#include <boost/test/unit_test.hpp>

#include <ppengine/comm/threads.hpp>
#include <ppengine/runs/generation.hpp>

#include "../models/helpers.hpp"
#include "../ranks.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::runs;

namespace {

using Ids = std::vector<std::int32_t>;

// Three prompts at once; the likeliest tokens, or drawn ones.
std::vector<Ids> generate(const std::string& folder, int pipeline, int tensor, bool drawn, const ops::WeightStorage& weights = {}) {
  GenerationOptions options;
  options.model = (test::data_folder() / "pytorch" / folder).string();
  options.ids = {{3, 1, 4, 1, 5}, {36}, {9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3}};
  options.max_new_tokens = 6;
  options.ignore_eos = true;
  if (drawn) options.sampling.temperature = 1.5f, options.sampling.seed = 11;
  options.parallel.pipeline = pipeline;
  options.parallel.tensor = tensor;
  options.weights = weights;
  static const auto device = ops::Device::open("cpu");
  options.parallel.device = device;
  std::vector<Ids> results(options.ids.size());
  options.on_finished = [&](std::size_t prompt, const GeneratedText& result) { results[prompt] = result.generated.ids; };
  const GenerationRun run(options);
  test::on_ranks(pipeline * tensor, device, [&](comm::Communicator& world) { run.run(world); });
  return results;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generation_tensor)

BOOST_AUTO_TEST_CASE(tensor_parallel_ranks_give_the_tokens_of_one_rank) {
  for (const std::string folder : {"gpt2_tied", "gpt2_even", "llama_even"})
    for (const bool drawn : {false, true}) {
      const auto expected = generate(folder, 1, 1, drawn);
      BOOST_TEST(expected[1].size() == 6u);
      for (const int pipeline : {1, 2}) BOOST_TEST_CONTEXT(folder << ", drawn " << drawn << ", " << pipeline << " x 2 ranks")
      BOOST_TEST((generate(folder, pipeline, 2, drawn) == expected));
    }
}

// Numbers are rounded before they are divided: what a rank has of a weight does not depend on how many ranks there are.
BOOST_AUTO_TEST_CASE(narrow_weights_give_the_tokens_of_one_rank) {
  const ops::WeightStorage bf16{ops::WeightFormat::bf16, 0}, int8{ops::WeightFormat::int8, 0}, in_groups{ops::WeightFormat::int8, 5};
  for (const auto& [folder, weights] : std::vector<std::pair<std::string, ops::WeightStorage>>{{"gpt2_tied", bf16},
                                                                                               {"llama_even", bf16},
                                                                                               {"gpt2_tied", int8},
                                                                                               {"gpt2_even", int8},
                                                                                               {"llama_even", int8},
                                                                                               {"gpt2_tied", in_groups}}) {
    const auto expected = generate(folder, 1, 1, false, weights);
    for (const int pipeline : {1, 2})
      BOOST_TEST((generate(folder, pipeline, 2, false, weights) == expected),
                 folder << ", " << ops::name_of(weights.format) << " in groups of " << weights.group << ", " << pipeline << " x 2 ranks");
  }
  const auto reason = test::error_of([&] { generate("gpt2_even", 1, 2, false, in_groups); });  // 26 inputs, 13 each
  BOOST_TEST(test::contains(reason, "inside of a group of 5"));
}

BOOST_AUTO_TEST_CASE(heads_that_cannot_be_divided_are_refused_with_the_reason) {
  const auto reason = [](const std::string& folder, int ranks) { return test::error_of([&] { generate(folder, 1, ranks, false); }); };
  BOOST_TEST(test::contains(reason("gpt2_untied", 2), "--tp 2 does not divide the 3 heads of transformer.h.0.attn"));
  BOOST_TEST(test::contains(reason("llama_even", 4), "--tp 4 does not divide the 2 heads of model.layers.0.self_attn"));
}

BOOST_AUTO_TEST_SUITE_END()
