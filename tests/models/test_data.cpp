// Token data: files NumPy wrote, text, the addition task, order and position. Reference: reference/make_reference.py.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include <ppengine/base/file.hpp>
#include <ppengine/models/data/addition.hpp>
#include <ppengine/models/data/data.hpp>
#include <ppengine/models/data/line_index.hpp>
#include <ppengine/models/files/npy.hpp>

#include "helpers.hpp"

using namespace ppengine;
using namespace ppengine::models;
using namespace ppengine::test;

namespace {

struct Sequence {
  std::vector<std::int32_t> inputs, targets;
};

Sequence read(const TokenSource& source, std::uint64_t index) {
  Sequence out;
  out.inputs.resize(static_cast<std::size_t>(source.length()));
  out.targets.resize(out.inputs.size());
  source.read(index, out.inputs, out.targets);
  return out;
}

using Ids = std::vector<std::int32_t>;

}  // namespace

BOOST_FIXTURE_TEST_SUITE(data, TemporaryFolder)

BOOST_AUTO_TEST_CASE(npy_files_of_every_integer_type_byte_order_and_version_are_read) {
  for (const char* name : {"u1", "i1", "lu2", "bu2", "li4", "bi4", "li8", "bu8", "version2", "version3"}) {
    const NpyFile file(data_folder() / "npy" / (std::string(name) + ".npy"));
    BOOST_CHECK_EQUAL(file.elements(), 24u);
    for (std::uint64_t i = 0; i < 24; ++i) BOOST_CHECK_EQUAL(file.at(i), static_cast<std::int64_t>(i));
  }
  const std::string header = "{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }\n";
  const NpyFile largest(write(
      "largest.npy", std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + std::string(8, '\xff')));
  BOOST_CHECK_EQUAL(largest.at(0), INT64_MAX);  // not -1, which would be padding
}

BOOST_AUTO_TEST_CASE(npy_files_that_are_no_token_lists_are_refused) {
  const auto open = [](const std::filesystem::path& file) { return error_of([&] { NpyFile{file}; }); };
  BOOST_CHECK(contains(open(data_folder() / "npy/fortran.npy"), "Fortran order"));
  BOOST_CHECK(contains(open(data_folder() / "npy/float.npy"), "type '<f4'"));
  BOOST_CHECK(contains(open(data_folder() / "npy/cube.npy"), "3 dimensions"));
  const auto npy = [&](const std::string& header, const std::string& body) {
    std::string text("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(header.size() & 255);
    text += static_cast<char>(header.size() >> 8);
    return open(write("x.npy", text + header + body));
  };
  const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }\n";
  BOOST_CHECK_EQUAL(npy(good, "1234"), "no error");
  BOOST_CHECK(contains(npy(good, "123"), "3 bytes of data"));
  BOOST_CHECK(contains(npy(good, "12345"), "5 bytes of data"));
  BOOST_CHECK(contains(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", "1234"), "absurd shape"));
  BOOST_CHECK(contains(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,), }", "1234"), "absurd shape"));
  BOOST_CHECK(contains(npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "1234"), "type '|O'"));
  BOOST_CHECK(contains(npy("{'descr': '<u2', 'shape': (2,), }", "1234"), "lacks"));
  BOOST_CHECK(contains(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2,), 'x': 1}", "1234"), "unexpected key"));
  BOOST_CHECK(contains(npy("__import__('os')", "1234"), "lacks a '{'"));
  BOOST_CHECK(contains(open(write("x.npy", "\x93NUMPY")), "not a .npy file"));
  BOOST_CHECK(contains(open(write("x.npy", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12))), "absurd"));
}

BOOST_AUTO_TEST_CASE(a_stream_is_cut_into_sequences_that_share_one_token) {
  const auto source = open_data((data_folder() / "npy/li4.npy").string(), {.sequence_length = 5, .vocabulary = 24});
  BOOST_CHECK_EQUAL(source->sequences(), 4u);  // 4 * 5 + 1 <= 24
  const Sequence second = read(*source, 1);
  BOOST_CHECK((second.inputs == Ids{5, 6, 7, 8, 9}));
  BOOST_CHECK((second.targets == Ids{6, 7, 8, 9, 10}));
  const auto bin =
      open_data(write("x.bin", std::string("\x01\x00\x02\x00\xff\xff", 6)).string(), {.sequence_length = 2, .vocabulary = 65536});
  BOOST_CHECK((read(*bin, 0).targets == Ids{2, 65535}));
  const auto text = open_data(write("x.txt", "hello").string(), {.sequence_length = 4, .vocabulary = 256});
  BOOST_CHECK((read(*text, 0).inputs == Ids{'h', 'e', 'l', 'l'}));
}

BOOST_AUTO_TEST_CASE(rows_set_the_length_and_negative_ids_are_padding) {
  const auto source = open_data((data_folder() / "npy/rows.npy").string(), {.vocabulary = 10});
  BOOST_CHECK_EQUAL(source->sequences(), 2u);
  BOOST_CHECK_EQUAL(source->length(), 4);
  const Sequence first = read(*source, 0);
  BOOST_CHECK((first.inputs == Ids{1, 2, 3, 0}));
  BOOST_CHECK((first.targets == Ids{2, 3, masked_target, masked_target}));
}

BOOST_AUTO_TEST_CASE(text_goes_through_the_tokenizer) {
  const Tokenizer tokenizer = Tokenizer::load(data_folder() / "tokenizers/gpt2.json");
  const std::string text = "the water is hot and the people look";
  const auto source = open_data(write("x.txt", text).string(), {.sequence_length = 4, .vocabulary = 2000, .tokenizer = tokenizer});
  const Ids ids = tokenizer.encode(text);
  BOOST_CHECK(std::equal(ids.begin(), ids.begin() + 4, read(*source, 0).inputs.begin()));
}

BOOST_AUTO_TEST_CASE(wrong_data_is_named_with_file_index_and_value) {
  const std::string file = (data_folder() / "npy/li4.npy").string();
  const auto open = [](const std::string& name, const DataOptions& options) { return error_of([&] { open_data(name, options); }); };
  BOOST_CHECK_EQUAL(open(file, {.sequence_length = 5, .vocabulary = 23}), file + ": token 23 at index 23 is not in the vocabulary of 23");
  BOOST_CHECK(contains(open(file, {.sequence_length = 24, .vocabulary = 24}), "too few"));
  BOOST_CHECK(contains(open(file, {.sequence_length = 0, .vocabulary = 24}), "--seq-len 0"));
  BOOST_CHECK(contains(open((data_folder() / "npy/rows.npy").string(), {.sequence_length = 5, .vocabulary = 24}), "length 4"));
  BOOST_CHECK(contains(open(write("odd.bin", "123").string(), {.sequence_length = 1, .vocabulary = 24}), "whole number"));
  BOOST_CHECK(contains(open("x.parquet", {.sequence_length = 1, .vocabulary = 24}), "use FILE.npy"));
  BOOST_CHECK(contains(open("missing.npy", {.sequence_length = 1, .vocabulary = 24}), "missing.npy: cannot open"));
}

BOOST_AUTO_TEST_CASE(synthetic_data_depends_on_the_seed_only) {
  const auto a = open_data("synthetic", {.sequence_length = 50, .vocabulary = 7, .seed = 1});
  const auto b = open_data("synthetic", {.sequence_length = 50, .vocabulary = 7, .seed = 1});
  const auto c = open_data("synthetic", {.sequence_length = 50, .vocabulary = 7, .seed = 2});
  const Sequence sequence = read(*a, 3);
  BOOST_CHECK(sequence.inputs == read(*b, 3).inputs);
  BOOST_CHECK(sequence.inputs != read(*c, 3).inputs);
  BOOST_CHECK(std::equal(sequence.inputs.begin() + 1, sequence.inputs.end(), sequence.targets.begin()));
  BOOST_CHECK_EQUAL(std::set(sequence.inputs.begin(), sequence.inputs.end()).size(), 7u);
}

BOOST_AUTO_TEST_CASE(a_shuffled_epoch_has_every_sequence_once_and_epochs_differ) {
  for (std::uint64_t count : {1u, 2u, 3u, 17u, 1000u}) {
    DataSampler sampler(count, DataOrder::shuffled, 5);
    const auto first = sampler.next(count), second = sampler.next(count);
    auto sorted = first;
    std::sort(sorted.begin(), sorted.end());
    for (std::uint64_t i = 0; i < count; ++i) BOOST_CHECK_EQUAL(sorted[i], i);
    if (count > 10) BOOST_CHECK(first != second && first != sorted);
  }
  BOOST_CHECK((DataSampler(3, DataOrder::sequential, 5).next(5) == std::vector<std::uint64_t>{0, 1, 2, 0, 1}));
}

BOOST_AUTO_TEST_CASE(a_saved_position_goes_on_where_it_was) {
  DataSampler one(10, DataOrder::shuffled, 1), two(10, DataOrder::shuffled, 1);
  one.next(13);
  two.seek(one.position());
  BOOST_CHECK((one.position() == DataPosition{1, 3}));
  BOOST_CHECK(one.next(20) == two.next(20));
  BOOST_CHECK_THROW(two.seek({0, 10}), ConfigError);
}

BOOST_AUTO_TEST_CASE(sums_are_written_with_the_ones_first_and_shown_naturally) {
  const addition::Sum sum{23, 58};
  BOOST_CHECK_EQUAL(addition::encode_question(sum) + addition::encode_answer(sum), "23+58=180;");
  BOOST_CHECK_EQUAL(addition::encode_question({7, 0}) + addition::encode_answer({7, 0}), "07+00=700;");
  BOOST_CHECK_EQUAL(addition::encode_answer({99, 99}), "891;");
  for (int a = 0; a < 100; ++a)
    for (int b = 0; b < 100; ++b) BOOST_CHECK_EQUAL(addition::decode_answer(addition::encode_answer({a, b})).value(), a + b);
  BOOST_CHECK(!addition::decode_answer("1+2"));
  BOOST_CHECK_EQUAL(addition::show(sum, 81), "23+58=81");
  BOOST_CHECK_EQUAL(addition::parse_question("23 + 58 =").value().right, 58);
  BOOST_CHECK(!addition::parse_question("123+4") && !addition::parse_question("x") && !addition::parse_question("1+2=3"));
}

BOOST_AUTO_TEST_CASE(held_out_sums_are_a_tenth_and_never_in_the_training_data) {
  const auto held_out = addition::held_out_sums();
  BOOST_CHECK(held_out.size() > 900 && held_out.size() < 1100);
  const auto source = open_data("task:addition", {.sequence_length = 128, .vocabulary = 256, .seed = 3});
  std::set<std::string> seen;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Sequence sequence = read(*source, i);
    const std::string text(sequence.inputs.begin(), sequence.inputs.end());
    for (std::size_t at = 0; at + 10 <= text.size(); at += 10) seen.insert(text.substr(at, 10));
    if (i == 0)
      for (std::size_t k = 0; k < 128; ++k) {  // targets are the answer and nothing else
        const bool answer = (k + 1) % 10 >= 6;
        BOOST_CHECK_EQUAL(sequence.targets[k] == masked_target, !answer);
        if (answer && k + 1 < 128) BOOST_CHECK_EQUAL(sequence.targets[k], sequence.inputs[k + 1]);
      }
  }
  for (const auto& sum : held_out) BOOST_CHECK(!seen.contains(addition::encode_question(sum) + addition::encode_answer(sum)));
  BOOST_CHECK(seen.size() > 8000);
  BOOST_CHECK_THROW(open_data("task:addition", {.sequence_length = 8, .vocabulary = 256}), ConfigError);
  BOOST_CHECK_THROW(open_data("task:addition", {.sequence_length = 128, .vocabulary = 50}), ConfigError);
}

BOOST_AUTO_TEST_CASE(indexes_of_lines_skip_blank_ones_and_know_their_numbers) {
  const auto file = write("lines.jsonl", "\n  \nfirst\r\n\n \t\n second\n\n\nlast");
  for (const std::uint64_t keep_from : {std::uint64_t{1} << 20, std::uint64_t{1}, std::uint64_t{1}}) {  // in memory, made and kept, mapped
    const LineIndex lines(file, keep_from);
    BOOST_REQUIRE_EQUAL(lines.count(), 3u);
    BOOST_CHECK_EQUAL(lines.text(0), "first\r");
    BOOST_CHECK_EQUAL(lines.text(1), " second");
    BOOST_CHECK_EQUAL(lines.text(2), "last");
    const std::uint64_t numbers[] = {3, 6, 9};
    for (std::uint64_t i = 0; i < 3; ++i) BOOST_CHECK_EQUAL(lines.number(i), numbers[i]);
    BOOST_CHECK_EQUAL(std::filesystem::exists(file.string() + ".lines"), keep_from == 1);
  }
  BOOST_CHECK(contains(error_of([&] { LineIndex(write("blank.jsonl", " \n\n"), 1); }), "holds no examples"));
}

BOOST_AUTO_TEST_CASE(a_kept_index_is_made_anew_when_its_file_has_changed_or_it_is_broken) {
  const auto file = write("lines.jsonl", "one\ntwo\n");
  const std::filesystem::path kept = file.string() + ".lines";
  BOOST_CHECK_EQUAL(LineIndex(file, 1).count(), 2u);
  write("lines.jsonl", "one\ntwo\nthree\n");
  BOOST_CHECK_EQUAL(LineIndex(file, 1).count(), 3u);
  const auto text = read_file(kept, 1000);
  for (const std::string& broken : {std::string(), text.substr(0, 20), text.substr(0, text.size() - 8), text + "12345678"}) {
    write("lines.jsonl.lines", broken);
    BOOST_CHECK_EQUAL(LineIndex(file, 1).count(), 3u);
    BOOST_CHECK_EQUAL(read_file(kept, 1000), text);
  }
}

// Parts that threads look at, whose borders fall anywhere: in lines, between them, in runs of blank ones.
BOOST_AUTO_TEST_CASE(an_index_made_by_several_threads_has_every_line_once) {
  std::string text;
  std::vector<std::uint64_t> begin, number;
  std::uint64_t line = 0;
  for (std::uint64_t i = 0; text.size() < (std::size_t{40} << 20); ++i, ++line) {
    if (i % 7 == 3) text += i % 2 == 0 ? "\n" : "   \n", ++line;
    begin.push_back(text.size());
    number.push_back(line + 1);
    text += std::string(1 + i * i % 4099, 'x') + '\n';
  }
  const LineIndex lines(write("large.txt", text));
  BOOST_REQUIRE_EQUAL(lines.count(), begin.size());
  for (std::uint64_t i = 0; i < lines.count(); ++i)
    if (lines.text(i).data() - lines.text(0).data() != static_cast<std::ptrdiff_t>(begin[i] - begin[0]) || lines.number(i) != number[i])
      BOOST_FAIL("line " << i);
}

BOOST_AUTO_TEST_SUITE_END()
