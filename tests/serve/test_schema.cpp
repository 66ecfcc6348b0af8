// JSON schemas as grammars: what they allow, and that tokens chosen at random under one give JSON that satisfies it.
#include <boost/test/unit_test.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <random>

#include <ppengine/base/error.hpp>
#include <ppengine/models/tokenizer/detail/byte_level.hpp>
#include <ppengine/runs/constraint/automaton.hpp>
#include <ppengine/runs/constraint/integer_range.hpp>
#include <ppengine/runs/constraint/json_schema.hpp>
#include <ppengine/runs/constraint/token_constraint.hpp>

using namespace ppengine;
using namespace ppengine::runs::constraint;
using Json = nlohmann::ordered_json;

namespace {

bool accepts(Automaton& automaton, const std::string& text) {
  Automaton::State state = automaton.start();
  for (const char c : text) state = automaton.next(state, static_cast<unsigned char>(c));
  return state != Automaton::dead && automaton.accepts(state);
}

bool accepts(const std::string& schema, const std::string& text) {
  const SchemaGrammar grammar = schema_grammar(Json::parse(schema));
  Automaton automaton(grammar.grammar, grammar.root);
  return accepts(automaton, text);
}

// All bytes, and some longer tokens as real vocabularies have them.
models::Tokenizer byte_tokenizer() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[models::tokenizer::byte_alphabet.encode(std::string(1, static_cast<char>(static_cast<unsigned char>(byte))))] = byte;
  for (const char* more : {"{\"", "\": ", "\", \"", "true", "null", "}}", "]}", "12", " [", "abc", "\xC3\xA4\xC3"})
    vocabulary[models::tokenizer::byte_alphabet.encode(more)] = vocabulary.size();
  const Json file{{"version", "1.0"},
                  {"added_tokens", Json::array()},
                  {"normalizer", nullptr},
                  {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
                  {"post_processor", nullptr},
                  {"decoder", {{"type", "ByteLevel"}}},
                  {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  return models::Tokenizer::parse(file.dump(), "bytes");
}

const char* const person = R"({"type": "object", "properties": {
  "name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "nick": {"type": ["string", "null"]},
  "tags": {"type": "array", "items": {"enum": ["a", "b", 3]}, "minItems": 1, "maxItems": 2}, "of": {"$ref": "#/$defs/place"}},
  "required": ["name", "age", "tags"], "additionalProperties": false, "$defs": {"place": {"anyOf": [{"type": "null"}, {"type": "object",
  "properties": {"in": {"$ref": "#/$defs/place"}}, "required": ["in"], "additionalProperties": false}]}}})";

}  // namespace

BOOST_AUTO_TEST_SUITE(schemas)

BOOST_AUTO_TEST_CASE(a_schema_allows_what_it_says) {
  for (const char* good : {R"({"name":"","age":0,"tags":["a"]})", R"({"name": "Zoë\n\u00e9", "age": 120, "nick": null, "tags": [3, "b"]})",
                           "{\n  \"name\": \"x\",\n  \"age\": 7,\n  \"tags\": [\n    \"a\"\n  ],\n  \"of\": {\"in\": {\"in\": null}}\n}"})
    BOOST_TEST(accepts(person, good), good);
  for (const char* bad :
       {"", "{}", R"({"name":"x","age":121,"tags":["a"]})", R"({"name":"x","age":-1,"tags":["a"]})", R"({"name":"x","age":1,"tags":[]})",
        R"({"name":"x","age":1,"tags":["a","a","a"]})", R"({"name":"x","age":1,"tags":["c"]})", R"({"name":"1234567","age":1,"tags":[3]})",
        R"({"age":1,"name":"x","tags":["a"]})", R"({"name":"x","age":1.5,"tags":["a"]})", R"({"name":"x","age":01,"tags":["a"]})",
        R"({"name":"x","age":1,"tags":["a"],"z":1})", R"({"name":"x","age":1,"tags":["a"]} )", R"({"name":"\ud800","age":1,"tags":["a"]})",
        "{\"name\":\"\xff\",\"age\":1,\"tags\":[\"a\"]}", R"({"name":"x","age":1,"tags":["a"],})",
        R"({"name":"x","age":1,"tags":["a"],"of":{}})"})
    BOOST_TEST(!accepts(person, bad), bad);
  const char* const any = R"({"type": "object"})";
  BOOST_TEST(accepts(any, R"({"a": [1, -2.5e+10, {"b": [[], {}]}, true, null, "x"], "": -0.0})"));
  for (const char* bad : {"[]", R"({"a": [1,]})", R"({"a": 1e})", R"({"a": .5})", R"({a: 1})", R"({"a": tru})"})
    BOOST_TEST(!accepts(any, bad), bad);
}

BOOST_AUTO_TEST_CASE(integers_stay_within_their_bounds) {
  for (const auto& [low, high] : {std::pair{-25, 131}, {0, 0}, {7, 7}, {-130, -9}, {95, 205}, {1, 1000}}) {
    auto grammar = std::make_shared<Grammar>();
    const std::int32_t rule = grammar->new_rule();
    grammar->define(rule, integer_range(*grammar, low, high, grammar->end()));
    grammar->measure();
    Automaton automaton(grammar, rule);
    for (int i = -1200; i <= 1200; ++i) BOOST_TEST(accepts(automaton, std::to_string(i)) == (i >= low && i <= high));
    BOOST_TEST(!accepts(automaton, "-0"));
    BOOST_TEST(!accepts(automaton, "007"));
  }
}

BOOST_AUTO_TEST_CASE(numbers_stay_within_their_bounds) {
  for (const auto& [low, high] : {std::pair{0, 1}, {-2, 3}, {-3, -1}, {5, 5}, {0, 12}}) {
    const SchemaGrammar grammar = schema_grammar({{"type", "number"}, {"minimum", low}, {"maximum", high}});
    Automaton automaton(grammar.grammar, grammar.root);
    int allowed = 0;
    for (int i = -1500; i <= 1500; ++i) {
      const std::string text = fmt::format("{:.2f}", i / 100.0);
      const bool good = accepts(automaton, text);
      if (good) BOOST_TEST((i >= 100 * low && i <= 100 * high), text);
      allowed += good;
    }
    BOOST_TEST(allowed >= 100 * (high - low) - 1);  // a bound itself may have no digits behind the point
    BOOST_TEST(accepts(automaton, std::to_string(low)));
    BOOST_TEST(accepts(automaton, std::to_string(high)));
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_enforced_is_refused) {
  for (const char* schema :
       {R"({"type": "string", "pattern": "a+"})", R"({"type": "number", "minimum": 0.5})", R"({"type": "number", "exclusiveMinimum": 0})",
        R"({"type": "thing"})", R"({"$ref": "#/$defs/none"})", R"({"$ref": "#"})", R"({"type": "array", "minItems": 3, "maxItems": 2})",
        R"({"type": "string", "maxLength": 1000000})", R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"enum": []})", R"({"allOf": [{}, {}]})", "false", "3"})
    BOOST_CHECK_THROW(schema_grammar(Json::parse(schema)), ConfigError);
}

BOOST_AUTO_TEST_CASE(random_tokens_give_json_that_fits_into_its_tokens) {
  const TokenTrie tokens(byte_tokenizer());
  for (const char* schema : {person, R"({"type": "object"})", R"({"type": "array", "items": {"type": "number"}, "minItems": 2})"}) {
    const SchemaGrammar grammar = schema_grammar(Json::parse(schema));
    for (unsigned seed = 0; seed < 40; ++seed) {
      constexpr std::int64_t most = 60;
      TokenConstraint constraint(tokens, grammar, {}, most);
      std::mt19937 random(seed);
      std::normal_distribution<float> normal(0, 4);
      std::string text;
      std::int64_t used = 0;
      for (bool complete = false; !complete && used < most; ++used) {
        std::vector<float> logits(tokens.size());
        for (float& logit : logits) logit = normal(random);
        constraint.apply(logits);
        const auto best = std::ranges::max_element(logits);
        BOOST_REQUIRE(std::isfinite(*best));
        const auto token = static_cast<std::int32_t>(best - logits.begin());
        text += tokens.bytes(token);
        complete = constraint.accept(token);
      }
      BOOST_TEST(Json::accept(text), text);
      BOOST_TEST(accepts(schema, text), text);
    }
  }
}

// As in folders whose end token is an ordinary one, which no JSON may hold: it would end there.
BOOST_AUTO_TEST_CASE(a_token_that_ends_the_text_is_chosen_at_the_end_alone) {
  const TokenTrie tokens(byte_tokenizer());
  const SchemaGrammar grammar = schema_grammar({{"type", "integer"}, {"minimum", 10}});
  const auto token_of = [&](const std::string& text) {
    std::int32_t id = 0;
    while (tokens.bytes(id) != text) ++id;
    return id;
  };
  const std::int32_t seven = token_of("7"), eight = token_of("8");
  TokenConstraint constraint(tokens, grammar, {seven}, 20);
  const auto allowed = [&](std::int32_t id) {
    std::vector<float> logits(tokens.size());
    constraint.apply(logits);
    return std::isfinite(logits[static_cast<std::size_t>(id)]);
  };
  BOOST_TEST((allowed(eight) && !allowed(seven)));
  constraint.accept(eight);
  BOOST_TEST((allowed(eight) && !allowed(seven)));  // 8 is too small
  constraint.accept(eight);
  BOOST_TEST((allowed(eight) && allowed(seven)));  // and here it is the end
  BOOST_TEST(constraint.accept(seven));
}

BOOST_AUTO_TEST_SUITE_END()
