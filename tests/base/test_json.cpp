// JSON that is not trusted: limits, duplicate keys, and errors that name file and place.
#include <boost/test/unit_test.hpp>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>

using namespace ppengine;

namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(json)

BOOST_AUTO_TEST_CASE(every_kind_of_value_is_read) {
  const auto value = parse_json(R"({"a":[1,-2,2.5,"x",true,null,{"b":{}}],"c":18446744073709551615})", "f");
  BOOST_CHECK_EQUAL(value.dump(), R"({"a":[1,-2,2.5,"x",true,null,{"b":{}}],"c":18446744073709551615})");
  BOOST_CHECK_EQUAL(parse_json("3", "f").dump(), "3");
}

BOOST_AUTO_TEST_CASE(broken_text_is_refused_with_its_place) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\" 1}", "nul", "\"\xff\"", "[1] 2", "{\"a\":1,}"})
    BOOST_CHECK(error_of([&] { parse_json(bad, "f.json"); }).starts_with("f.json: not valid JSON"));
}

BOOST_AUTO_TEST_CASE(depth_and_number_of_values_are_limited) {
  const std::string deep(1'000'000, '[');
  BOOST_CHECK(error_of([&] { parse_json(deep, "f"); }).find("nested deeper than 32") != std::string::npos);
  BOOST_CHECK(error_of([&] { parse_json("[1,2,3]", "f", {.max_values = 3}); }).find("more than 3") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_duplicate_key_is_an_error_or_the_last_counts) {
  BOOST_CHECK_EQUAL(error_of([] { parse_json(R"({"a":1,"a":2})", "f"); }), "f: the key 'a' stands twice in one object");
  BOOST_CHECK_EQUAL(parse_json(R"({"a":[1],"a":2})", "f", {.refuse_duplicate_keys = false}).dump(), R"({"a":2})");
}

BOOST_AUTO_TEST_CASE(fields_are_checked_and_named) {
  const auto value = parse_json(R"({"a":{"b":[5,"x"]},"n":null,"big":99999999999999999999})", "f");
  const JsonPlace root(value, "f");
  BOOST_CHECK_EQUAL(root.at("a").at("b").element(0).integer(0, 9), 5);
  BOOST_CHECK_EQUAL(error_of([&] { root.at("a").at("b").element(1).integer(0, 9); }), "f: a.b[1] must be an integer");
  BOOST_CHECK_EQUAL(error_of([&] { root.at("a").at("b").element(0).integer(0, 4); }), "f: a.b[0] is 5, must be between 0 and 4");
  BOOST_CHECK_EQUAL(error_of([&] { root.at("a").at("c"); }), "f: a has no 'c'");
  BOOST_CHECK(error_of([&] { root.at("big").integer(0, 4); }) != "no error");
  BOOST_CHECK_EQUAL(root.integer_or("n", 7, 0, 9), 7);
}

BOOST_AUTO_TEST_SUITE_END()
