// ppengine generate as docs/command_line.md says. What is generated is tested in tests/models.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>

#include "run.hpp"

using ppengine::test::Outcome;
using ppengine::test::run;

namespace {

constexpr const char* folder = PPENGINE_SOURCE_DIR "/tests/models/data/gpt2_tied_f32";

void check_refused(const std::vector<std::string>& more, const std::string& part) {
  std::vector<std::string> arguments{"generate", "--model", folder};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run(arguments);
  BOOST_TEST(outcome.code == 2);
  BOOST_TEST(outcome.out == "");
  BOOST_TEST((outcome.err.find(part) != std::string::npos), outcome.err << " should contain " << part);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generate)

BOOST_AUTO_TEST_CASE(json_has_the_documented_fields_and_no_split_changes_the_ids) {
  nlohmann::json first;
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome =
        run({"generate", "--model", folder, "--ids", "1, 2,3", "--max-new-tokens", "6", "--ignore-eos", "--pp", ranks, "--json"});
    BOOST_TEST(outcome.code == 0, outcome.err);
    const auto json = nlohmann::json::parse(outcome.out);
    BOOST_TEST(json.size() == 5u);
    BOOST_TEST((json.at("prompt_ids") == nlohmann::json{1, 2, 3}));
    BOOST_TEST(json.at("ids").size() == 6u);
    BOOST_TEST(json.at("text").is_null());  // the folder has no tokenizer
    BOOST_TEST(json.at("prefill_tokens_per_second").get<double>() > 0);
    BOOST_TEST(json.at("decode_tokens_per_second").get<double>() > 0);
    if (first.is_null()) first = json.at("ids");
    BOOST_TEST((json.at("ids") == first));
  }
}

BOOST_AUTO_TEST_CASE(bench_measures_tensor_parallel_ranks_with_narrow_weights_too) {
  const Outcome outcome = run({"bench", "generate", "--model", "tiny", "--tp", "2", "--weights", "int8", "--prompt-tokens", "9",
                               "--new-tokens", "3", "--repeat", "1", "--json"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const auto json = nlohmann::json::parse(outcome.out);
  BOOST_TEST(json.at("decode_tokens_per_second").get<double>() > 0);
  BOOST_TEST(json.at("cache_bytes").size() == 2u);
}

// A second way to the same number: the loss without a cache. 255 steps for keys and values change it, and not by much.
BOOST_AUTO_TEST_CASE(eval_says_what_keys_and_values_in_bytes_cost) {
  double first = 0;
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--pp", "2"}, {"--tp", "2"}}) {
    std::vector<std::string> words{"eval", "--model", "tiny", "--data", "synthetic", "--sequences", "2", "--cache-type", "int8", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const auto json = nlohmann::json::parse(outcome.out);
    const double perplexity = json.at("perplexity").get<double>(), exact = json.at("f32_perplexity").get<double>();
    BOOST_TEST(json.at("cache") == "int8");
    BOOST_TEST(json.at("perplexity_difference").get<double>() == perplexity - exact);
    BOOST_TEST(std::abs(perplexity / exact - 1) < 1e-2);
    BOOST_TEST(perplexity != exact);
    if (first == 0) first = perplexity;
    BOOST_TEST(std::abs(perplexity / first - 1) < 1e-5);
  }
  const Outcome refused = run({"eval", "--model", "tiny", "--data", "synthetic", "--cache-type", "int8", "--dp", "2"});
  BOOST_TEST(refused.code == 2);
  BOOST_TEST((refused.err.find("--cache-type: with a cache there is one copy of the model") != std::string::npos), refused.err);
}

BOOST_AUTO_TEST_CASE(wrong_prompts_are_refused_in_one_line) {
  check_refused({}, "no prompt");
  check_refused({"--prompt", "hello"}, "tokenizer.json");
  check_refused({"--ids", "1,x"}, "'x' is not a token number");
  check_refused({"--ids", ""}, "not a token number");
  check_refused({"--ids", "1,100000"}, "token 100000");
  check_refused({"--ids", "1", "--prompt", "a"}, "cannot go with");
  check_refused({"--ids", "1", "--temperature", "-1"}, "--temperature");
  check_refused({"--ids", "1", "--top-p", "0"}, "--top-p");
  check_refused({"--prompts", "/no/such/file"}, "/no/such/file");
}

BOOST_AUTO_TEST_SUITE_END()
