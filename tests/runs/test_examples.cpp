// FILE.jsonl as sequences: tokens and what of them is learned, chat templates, packing. Expected values are written out by hand; the
// published templates render as in transformers (tests/models/test_chat.cpp).
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

#include <ppengine/models/data/jsonl.hpp>

#include "../models/helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;

BOOST_AUTO_TEST_SUITE(examples)

BOOST_AUTO_TEST_CASE(examples_become_sequences_with_targets_for_what_is_learned) {
  const TemporaryFolder temporary;
  const auto file = temporary.write("data.jsonl", R"({"text": "abc"}

{"prompt": "ab", "completion": "cd"}
)");
  const auto source = open_data(file.string(), {.sequence_length = 4, .vocabulary = 256});
  BOOST_TEST(source->sequences() == 2u);
  std::vector<std::int32_t> inputs(4), targets(4);
  source->read(0, inputs, targets);
  BOOST_TEST(inputs == (std::vector<std::int32_t>{'a', 'b', 0, 0}), boost::test_tools::per_element());
  BOOST_TEST(targets == (std::vector<std::int32_t>{'b', 'c', -100, -100}), boost::test_tools::per_element());
  source->read(1, inputs, targets);
  BOOST_TEST(targets == (std::vector<std::int32_t>{-100, 'c', 'd', -100}), boost::test_tools::per_element());
  BOOST_TEST(source->used(1) == 3);
  const auto packed = open_data(file.string(), {.sequence_length = 6, .vocabulary = 256, .pack = true});
  BOOST_TEST(packed->sequences() == 1u);
  inputs.resize(6), targets.resize(6);
  packed->read(0, inputs, targets);
  BOOST_TEST(targets == (std::vector<std::int32_t>{'b', 'c', -100, 'c', 'd', -100}), boost::test_tools::per_element());
  packed->read_positions(0, inputs);
  BOOST_TEST(inputs == (std::vector<std::int32_t>{0, 1, 0, 1, 2, 0}), boost::test_tools::per_element());
}

// What `tojson` writes for an object has its keys in the file's order, as transformers gives it to a template.
BOOST_AUTO_TEST_CASE(tools_and_calls_reach_the_template_in_their_order) {
  const TemporaryFolder temporary;
  temporary.write("chat_template.jinja",
                  "{{ tools[0] | tojson }}{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{{ m.tool_calls[0] | tojson }}"
                  "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto file = temporary.write(
      "data.jsonl", R"({"tools": [{"z": 1, "a": 2}], "messages": [{"role": "user", "content": "hi"}, )"
                    R"({"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"y": 1, "b": 2}}]}]})");
  const auto source = open_data(file.string(), {.vocabulary = 256, .folder = temporary.path});
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(source->length())), targets(inputs.size());
  source->read(0, inputs, targets);
  const std::string all = R"({"z": 1, "a": 2}<user>hi<assistant>{"name": "f", "arguments": {"y": 1, "b": 2}})";
  const std::string learned = R"({"name": "f", "arguments": {"y": 1, "b": 2}})";
  BOOST_TEST(std::string(inputs.begin(), inputs.end()) == all.substr(0, all.size() - 1));
  BOOST_TEST(std::ranges::count_if(targets, [](auto target) { return target >= 0; }) == std::ssize(learned));
}

// A tokenizer that ends every text with its end token does not end a prompt with it.
BOOST_AUTO_TEST_CASE(a_prompt_goes_on_without_the_end_token) {
  const auto tokenizer = Tokenizer::parse(
      R"({"version":"1.0","added_tokens":[{"id":4,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,
      "special":true}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
      "post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],
      "pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":0}}],
      "special_tokens":{"</s>":{"id":"</s>","ids":[4],"tokens":["</s>"]}}},
      "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]}})",
      "tokenizer.json");
  const TemporaryFolder temporary;
  const auto file = temporary.write("data.jsonl", R"({"prompt": "a", "completion": "b"})");
  const auto source = open_data(file.string(), {.vocabulary = 5, .tokenizer = tokenizer, .end_tokens = {4}});
  std::vector<std::int32_t> inputs(2), targets(2);
  BOOST_REQUIRE(source->length() == 2);
  source->read(0, inputs, targets);
  BOOST_TEST(inputs == (std::vector<std::int32_t>{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(targets == (std::vector<std::int32_t>{1, 4}), boost::test_tools::per_element());
}

// As Qwen 3's template, which writes thoughts, here empty ones, for the last turn alone: the first turn is found by its content.
BOOST_AUTO_TEST_CASE(turns_are_found_where_the_template_writes_earlier_ones_anew) {
  const TemporaryFolder temporary;
  temporary.write("chat_template.jinja",
                  "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
                  "{{ m.content | trim }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto file =
      temporary.write("data.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " bc "}, )"
                                    R"({"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]})");
  const auto source = open_data(file.string(), {.vocabulary = 256, .folder = temporary.path});
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(source->length())), targets(inputs.size());
  source->read(0, inputs, targets);
  std::string all = "<", learned = "_";
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    all += i + 1 < inputs.size() ? static_cast<char>(inputs[i + 1]) : '>';
    learned += targets[i] >= 0 ? static_cast<char>(targets[i]) : '_';
  }
  BOOST_TEST(all == "<user>a</><assistant>bc</><user>d</><assistant><think></think>e</>");
  BOOST_TEST(learned == std::string(21, '_') + "bc</>" + std::string(21, '_') + "<think></think>e</>");
}

// With published templates (tests/models/reference/make_chat_reference.py): all of the answers is learned, and nothing of the questions.
BOOST_AUTO_TEST_CASE(answers_alone_are_learned_with_every_published_template) {
  const TemporaryFolder temporary;
  temporary.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto file = temporary.write(
      "data.jsonl", R"({"messages": [{"role": "user", "content": "QUESTION one"}, {"role": "assistant", "content": "first ANSWER"}, )"
                    R"({"role": "user", "content": "next QUESTION"}, {"role": "assistant", "content": "ANSWER two"}, )"
                    R"({"role": "user", "content": "a QUESTION more"}, {"role": "assistant", "content": "last ANSWER"}]})");
  const auto cases = nlohmann::json::parse(std::ifstream(data_folder() / "chat" / "cases.json"));
  int tried = 0;
  for (const auto& [name, text] : cases.at("templates").items()) {
    if (name == "language") continue;  // no template for chats
    temporary.write("chat_template.jinja", text.get<std::string>());
    const auto source = open_data(file.string(), {.vocabulary = 256, .folder = temporary.path});
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(source->length())), targets(inputs.size());
    source->read(0, inputs, targets);
    std::string learned;
    for (const std::int32_t target : targets)
      if (target >= 0) learned += static_cast<char>(target);
    for (const char* answer : {"first ANSWER", "ANSWER two", "last ANSWER"}) BOOST_TEST(contains(learned, answer), name << ": " << learned);
    BOOST_TEST(!contains(learned, "QUESTION"), name << ": " << learned);
    BOOST_TEST(learned.size() < 160u, name << ": " << learned);
    ++tried;
  }
  BOOST_TEST(tried >= 12);
}

BOOST_AUTO_TEST_CASE(examples_with_nothing_to_learn_are_passed_over) {
  const TemporaryFolder temporary;
  const auto file = temporary.write("data.jsonl", R"({"text": ""}
{"text": "x"}
{"text": "abc"}
{"prompt": "abcdefg", "completion": "h"}
)");
  for (const bool pack : {false, true}) {
    const auto source = open_data(file.string(), {.sequence_length = 4, .vocabulary = 256, .pack = pack});
    std::vector<std::int32_t> inputs(4), targets(4), positions(4);
    std::int64_t learned = 0;
    for (std::uint64_t i = 0; i < source->sequences(); ++i) {
      source->read(i, inputs, targets);
      source->read_positions(i, positions);
      learned += std::ranges::count_if(targets, [](auto target) { return target >= 0; });
      BOOST_TEST(source->used(i) <= 4);
    }
    BOOST_TEST(learned == 2);
  }
}

BOOST_AUTO_TEST_CASE(packing_is_for_examples_alone) {
  const auto error = [](bool pack) {
    DataOptions options{.vocabulary = 37};
    options.pack = pack;
    options.variable_lengths = !pack;
    return error_of([&] { open_data((data_folder() / "pytorch" / "tokens.npy").string(), options); });
  };
  for (const bool pack : {true, false}) BOOST_TEST(contains(error(pack), "are for FILE.jsonl"), error(pack));
}

BOOST_AUTO_TEST_CASE(a_line_that_is_wrong_is_named) {
  const TemporaryFolder temporary;
  const auto error = [&](const std::string& line) {
    const auto file = temporary.write("data.jsonl", "{\"text\": \"fine\"}\n\n" + line + "\n");
    return error_of([&] { open_data(file.string(), {.sequence_length = 4, .vocabulary = 256}); });
  };
  for (const char* line : {"{\"text\": ", "[1]", "{\"words\": 1}", "{\"text\": 5}", "{\"prompt\": \"a\"}", "{\"messages\": []}"})
    BOOST_TEST(contains(error(line), "data.jsonl: line 3"), line << ": " << error(line));
}

BOOST_AUTO_TEST_CASE(packing_leaves_out_nothing_and_never_overfills) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 20000; ++i) lengths.push_back(1 + i * i % 97);
  std::vector<int> seen(lengths.size());
  const auto bins = pack_examples(lengths, 100);
  std::uint64_t last_first = 0;
  for (const auto& bin : bins) {
    std::int64_t sum = 0;
    for (const std::uint64_t one : bin) sum += lengths[one], ++seen[one];
    BOOST_TEST(sum <= 100);
    BOOST_TEST(std::ranges::is_sorted(bin));
    BOOST_TEST(bin.front() >= last_first);
    last_first = bin.front();
  }
  BOOST_TEST(std::ranges::count(seen, 1) == 20000);
  const double full = double(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})) / 100;
  BOOST_TEST(double(bins.size()) < 1.03 * full);
}

BOOST_AUTO_TEST_SUITE_END()
