// The tokenizer against Hugging Face's: ids, decoded and streamed text. Reference: reference/make_reference.py; the comparison
// on random text for every kind of tokenizer is reference/compare_tokenizers.py.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <chrono>

#include <ppengine/models/tokenizer/detail/regex.hpp>
#include <ppengine/models/tokenizer/detail/unicode.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>
#include <ppengine/models/tokenizer/tokenizer.hpp>

#include "helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;
using nlohmann::json;

namespace {

std::filesystem::path folder() { return data_folder() / "tokenizers"; }

// A small valid tokenizer, to be changed by the tests.
json small() {
  return json::parse(R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
    "decoder":{"type":"ByteLevel"},"post_processor":null,
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]}})");
}

std::string parse_error(const json& changed) {
  return error_of([&] { Tokenizer::parse(changed.dump(), "tokenizer.json"); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizers)

BOOST_AUTO_TEST_CASE(ids_and_texts_equal_hugging_faces) {
  int texts = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder())) {
    if (file.path().extension() != ".json") continue;
    const Tokenizer tokenizer = Tokenizer::load(file.path());
    std::ifstream lines(std::filesystem::path(file.path()).replace_extension(".jsonl"));
    for (std::string line; std::getline(lines, line); ++texts) {
      const json expected = json::parse(line);
      const auto ids = tokenizer.encode(expected["text"].get<std::string>());
      BOOST_TEST_CONTEXT(file.path().stem() << ": " << expected["text"]) {
        BOOST_CHECK(ids == expected["ids"].get<std::vector<std::int32_t>>());
        BOOST_CHECK(tokenizer.encode(expected["text"].get<std::string>(), false) == expected["plain"].get<std::vector<std::int32_t>>());
        BOOST_CHECK_EQUAL(tokenizer.decode(ids), expected["decoded"].get<std::string>());
        BOOST_CHECK_EQUAL(tokenizer.decode(ids, false), expected["all"].get<std::string>());
        StreamDecoder stream(tokenizer);
        std::string streamed;
        for (std::int32_t id : ids) {
          const std::string piece = stream.push(id);
          BOOST_CHECK(tokenizer::is_valid_utf8(piece));
          streamed += piece;
        }
        BOOST_CHECK_EQUAL(streamed + stream.finish(), expected["decoded"].get<std::string>());
      }
    }
  }
  BOOST_CHECK_EQUAL(texts, 11 * 47);
}

BOOST_AUTO_TEST_CASE(a_pattern_that_would_take_forever_is_an_error_of_the_file) {
  json changed = small();
  changed["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Tokenizer tokenizer = Tokenizer::parse(changed.dump(), "tokenizer.json");
  BOOST_CHECK_EXCEPTION(tokenizer.encode(std::string(40, 'a') + "b"), FileError,
                        [](const FileError& error) { return contains(error.what(), "(a+)+$"); });
}

// Found by comparing random tokenizers: Hugging Face's matches such a token between all characters.
BOOST_AUTO_TEST_CASE(an_added_token_that_is_normalized_to_nothing_is_refused) {
  json changed = small();
  changed["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  changed["added_tokens"] = {{{"id", 4}, {"content", "  "}, {"normalized", true}}};
  BOOST_CHECK(contains(parse_error(changed), "normalized to nothing"));
  changed["added_tokens"][0]["normalized"] = false;
  BOOST_CHECK(Tokenizer::parse(changed.dump(), "tokenizer.json").encode("a  b") == (std::vector<std::int32_t>{0, 4, 1}));
}

BOOST_AUTO_TEST_CASE(bytes_that_are_no_text_are_read_as_replacement_characters) {
  const Tokenizer tokenizer = Tokenizer::load(folder() / "gpt2.json");
  const std::string fffd = "\xEF\xBF\xBD";
  // The parts are those of the Unicode standard, table 3-8 (and of Python's errors="replace").
  BOOST_CHECK(tokenizer.encode("a\xF0\x80\x80"
                               "b\xE2\x82") == tokenizer.encode("a" + fffd + fffd + fffd + "b" + fffd));
  BOOST_CHECK(tokenizer.encode("\xED\xA0\x80\xF4\x90\xC0\xAF") == tokenizer.encode(fffd + fffd + fffd + fffd + fffd + fffd + fffd));
  BOOST_CHECK(tokenizer.encode(std::string("a\0b", 3)).size() >= 3);
}

BOOST_AUTO_TEST_CASE(a_stream_holds_back_a_character_that_is_not_complete) {
  json bytes = small();
  bytes["model"]["vocab"] = {{"ð", 0}, {"Ł", 1}, {"ĺ", 2}, {"Ģ", 3}, {"a", 4}};  // the bytes F0 9F 98 80 of a smiley, and a
  bytes["model"]["merges"] = json::array();
  StreamDecoder stream(Tokenizer::parse(bytes.dump(), "t"));
  BOOST_CHECK_EQUAL(stream.push(4), "a");
  for (std::int32_t id : {0, 1, 2}) BOOST_CHECK_EQUAL(stream.push(id), "");
  BOOST_CHECK_EQUAL(stream.push(3), "😀");
  BOOST_CHECK_EQUAL(stream.push(0), "");
  BOOST_CHECK_EQUAL(stream.push(4),
                    "\xEF\xBF\xBD"
                    "a");
  BOOST_CHECK_EQUAL(stream.push(0), "");
  BOOST_CHECK_EQUAL(stream.finish(), "\xEF\xBF\xBD");
  for (int i = 0; i < 200; ++i) BOOST_CHECK_EQUAL(stream.push(4), "a");  // far longer than its window
}

BOOST_AUTO_TEST_CASE(what_is_not_supported_or_broken_is_named_with_its_field) {
  const auto changed = [](const char* pointer, json value) {
    json file = small();
    file[json::json_pointer(pointer)] = std::move(value);
    return parse_error(file);
  };
  BOOST_CHECK_EQUAL(parse_error(small()), "no error");
  BOOST_CHECK(contains(changed("/model/type", "Unigram"), "tokenizer.json: model.type is 'Unigram'"));
  BOOST_CHECK(contains(changed("/model/dropout", 0.1), "model.dropout"));
  BOOST_CHECK(contains(changed("/model/merges/0", "a c"), "model.merges[0] needs the token 'c'"));
  BOOST_CHECK(contains(changed("/model/merges/0", "b a"), "needs the token 'ba'"));
  BOOST_CHECK(contains(changed("/model/merges/0", "a b c"), "model.merges[0]"));
  BOOST_CHECK(contains(changed("/model/vocab/a", -1), "model.vocab gives the token 'a'"));
  BOOST_CHECK(contains(changed("/model/vocab/a", 4294967296), "model.vocab"));
  BOOST_CHECK(contains(changed("/model/unk_token", "<unk>"), "model.unk_token '<unk>'"));
  BOOST_CHECK(contains(changed("/normalizer", {{"type", "Precompiled"}}), "normalizer.type is 'Precompiled'"));
  BOOST_CHECK(contains(changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "UnicodeScripts"}}}}}),
                       "pre_tokenizer.pretokenizers[0].type"));
  BOOST_CHECK(contains(changed("/decoder", {{"type", "WordPiece"}}), "decoder.type"));
  BOOST_CHECK(contains(
      changed("/post_processor",
              {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}, {"special_tokens", json::object()}}),
      "'<s>'"));
  for (const char* pattern : {"[a&&b]", "(?~x)", "\\y", "(", "[a", "a{2,1}", "[^[^a]]", "(*FAIL)", "\\p{Nonsense}", ""})
    BOOST_CHECK(contains(
        changed("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}),
        "pre_tokenizer.pattern"));
  BOOST_CHECK(contains(changed("/version", "2.0"), "version"));
}

BOOST_AUTO_TEST_CASE(onigurumas_syntax_is_translated) {  // doc/RE of Oniguruma 6.9: Ruby's meaning of these
  using tokenizer::translate_pattern;
  BOOST_CHECK_EQUAL(translate_pattern("a{1,3}+b{2}?c{,4}"), "(?:a{1,3})+(?:b{2})?c{0,4}");
  BOOST_CHECK_EQUAL(translate_pattern("é{2}+"), "(?:é{2})+");
  BOOST_CHECK_EQUAL(translate_pattern("[^(x|[.,])]+"), "[^(x|.,)]+");
  BOOST_CHECK_EQUAL(translate_pattern(R"(\h\p{Letter}\p{^L}\P{N}\p{Han}(?m:.)\u3042\v)"),
                    R"([0-9A-Fa-f][\p{L}][\P{L}][^\p{N}][\p{sc:han}](?s:.)\x{3042}\x0b)");
  std::vector<tokenizer::Match> matches;
  tokenizer::Regex("x*").find_all("axxb", matches);  // empty matches as Oniguruma's find_iter gives them
  BOOST_CHECK_EQUAL(matches.size(), 3u);
}

BOOST_AUTO_TEST_CASE(normal_forms_equal_the_standards_examples) {  // UAX 15, figures 3 to 6
  using tokenizer::NormalForm;
  using tokenizer::normalize;
  BOOST_CHECK_EQUAL(normalize("\u212B\u2126", NormalForm::nfc), "\u00C5\u03A9");
  BOOST_CHECK_EQUAL(normalize("\u1E9B\u0323", NormalForm::nfd), "\u017F\u0323\u0307");
  BOOST_CHECK_EQUAL(normalize("\u1E9B\u0323", NormalForm::nfc), "\u1E9B\u0323");
  BOOST_CHECK_EQUAL(normalize("\u1E9B\u0323", NormalForm::nfkc), "\u1E69");
  BOOST_CHECK_EQUAL(normalize("\uFB01\u2075", NormalForm::nfkd), "fi5");
  BOOST_CHECK_EQUAL(normalize("\uD55C", NormalForm::nfd), "\u1112\u1161\u11AB");
  BOOST_CHECK_EQUAL(normalize("\u1112\u1161\u11AB", NormalForm::nfc), "\uD55C");
}

BOOST_AUTO_TEST_CASE(a_million_characters_take_less_than_a_second) {
  const Tokenizer tokenizer = Tokenizer::load(folder() / "llama3.json");
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < 1'000'000) {  // words of random letters: hardly any comes twice
    for (std::uint32_t n = 2 + (state >> 29); n > 0; --n)
      text += static_cast<char>('a' + (state = state * 1664525u + 1013904223u) % 65536 / 2521);
    text += ' ';
  }
  const auto start = std::chrono::steady_clock::now();
  const std::size_t count = tokenizer.encode(text).size();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  BOOST_TEST_MESSAGE(count << " tokens in " << seconds << " s");
  BOOST_CHECK(count > 100'000);
  BOOST_WARN_LT(seconds, 1.0);  // a busy machine is no failure; a quadratic algorithm is
  BOOST_CHECK_LT(seconds, 20.0);
  const std::string one_word(300'000, 'x');
  BOOST_CHECK(tokenizer.decode(tokenizer.encode(one_word)) == one_word);
}

BOOST_AUTO_TEST_SUITE_END()
