// Requests as OpenAI's clients send them: fields, their limits, and what is refused by which name.
#include <boost/test/unit_test.hpp>

#include <ppengine/runs/serving/api.hpp>
#include <ppengine/runs/serving/tool_calls.hpp>

using namespace ppengine::runs::serving;

namespace {

// The field that is refused.
std::string refused(const std::string& body, bool chat = false) {
  try {
    parse_completion(parse_body(body), chat);
    return "nothing";
  } catch (const ApiError& error) {
    BOOST_TEST(error.status == 400);
    const Json answer = Json::parse(error.body());
    BOOST_TEST((answer["error"]["type"] == "invalid_request_error"));
    return answer["error"]["param"].is_null() ? "body" : answer["error"]["param"].get<std::string>();
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(requests)

BOOST_AUTO_TEST_CASE(fields_are_read) {
  const CompletionRequest one = parse_completion(
      parse_body(
          R"({"prompt": ["a", [1, 2]], "max_tokens": 7, "temperature": 0, "n": 2, "stop": "x", "seed": -1, "logprobs": 3, "logit_bias": {"5": -100},
                     "presence_penalty": 0.5, "unknown": {"x": []}, "top_k": -1, "stream": null})"),
      false);
  BOOST_TEST(one.prompts.size() == 2u);
  BOOST_TEST((std::get<Ids>(one.prompts[1]) == Ids{1, 2}));
  BOOST_TEST(one.max_tokens.value() == 7);
  BOOST_TEST(one.sampling.temperature == 0.0);
  BOOST_TEST(one.n == 2);
  BOOST_TEST((one.stops == std::vector<std::string>{"x"}));
  BOOST_TEST(one.seeded);
  BOOST_TEST(one.sampling.logprobs == 3);
  BOOST_TEST(one.bias.at(0).bias == -100.0f);
  BOOST_TEST(!one.stream);
  const CompletionRequest chat = parse_completion(
      parse_body(
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_completion_tokens": 3, "logprobs": true, "top_logprobs": 2})"),
      true);
  BOOST_TEST((chat.messages[0]["content"] == "hi"));
  BOOST_TEST(chat.max_tokens.value() == 3);
  BOOST_TEST(chat.sampling.logprobs == 2);
  BOOST_TEST(chat.sampling.temperature == 1.0);
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_named) {
  BOOST_TEST(refused("{") == "body");
  BOOST_TEST(refused("[]") == "body");
  BOOST_TEST(refused("{\"prompt\": \"\xff\xfe\"}") == "body");
  BOOST_TEST(refused("{\"prompt\": " + std::string(100000, '[') + "}") == "body");
  BOOST_TEST(refused("{}") == "prompt");
  BOOST_TEST(refused(R"({"prompt": 3})") == "prompt");
  BOOST_TEST(refused(R"({"prompt": [1, -2]})") == "prompt");
  BOOST_TEST(refused(R"({"prompt": "a", "max_tokens": 0})") == "max_tokens");
  BOOST_TEST(refused(R"({"prompt": "a", "max_tokens": "5"})") == "max_tokens");
  BOOST_TEST(refused(R"({"prompt": "a", "temperature": "hot"})") == "temperature");
  BOOST_TEST(refused(R"({"prompt": "a", "temperature": -1})") == "temperature");
  BOOST_TEST(refused(R"({"prompt": "a", "top_p": 1.5})") == "top_p");
  BOOST_TEST(refused(R"({"prompt": "a", "n": 0})") == "n");
  BOOST_TEST(refused(R"({"prompt": "a", "stop": [""]})") == "stop");
  BOOST_TEST(refused(R"({"prompt": "a", "logit_bias": {"x": 1}})") == "logit_bias");
  BOOST_TEST(refused(R"({"prompt": "a", "logprobs": 21})") == "logprobs");
  BOOST_TEST(refused(R"({"prompt": "a", "stream": 1})") == "stream");
  BOOST_TEST(refused(R"({"prompt": "a"})") == "nothing");
  BOOST_TEST(refused(R"({})", true) == "messages");
  BOOST_TEST(refused(R"({"messages": []})", true) == "messages");
  BOOST_TEST(refused(R"({"messages": [{"content": "x"}]})", true) == "messages");
  BOOST_TEST(refused(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", true) == "messages");
  BOOST_TEST(refused(R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2})", true) == "top_logprobs");
}

BOOST_AUTO_TEST_CASE(calls_of_tools_are_found_and_forced) {
  const auto calls =
      find_calls("Let me see. <tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": [1]}}\n</tool_call><tool_call>{\"name\": \"b\"}");
  BOOST_REQUIRE(calls.size() == 2u);
  BOOST_TEST(calls[0].name == "a");
  BOOST_TEST(calls[0].arguments == "{\"x\":[1]}");
  BOOST_TEST(calls[1].arguments == "{}");
  BOOST_TEST(find_calls("<tool_call>{broken</tool_call>").empty());
  BOOST_TEST(find_calls("no call").empty());
  const std::string body =
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": )"
      R"({"type": "object", "properties": {"p": {"$ref": "#/$defs/q"}}, "$defs": {"q": {"type": "null"}}}}}], "tool_choice": )";
  BOOST_TEST(parse_completion(parse_body(body + "\"auto\"}"), true).schema.empty());
  BOOST_TEST(parse_completion(parse_body(body + "\"none\"}"), true).tools.is_null());
  const CompletionRequest named = parse_completion(parse_body(body + R"({"type": "function", "function": {"name": "f"}}})"), true);
  BOOST_TEST((named.tool_use == ToolUse::one_tool));
  const CompletionRequest any = parse_completion(parse_body(body + "\"required\"}"), true);
  BOOST_TEST((Json::parse(any.schema)["anyOf"][0]["properties"]["arguments"]["properties"]["p"]["$ref"] ==
              "#/anyOf/0/properties/arguments/$defs/q"));
  BOOST_TEST(refused(body + R"({"type": "function", "function": {"name": "g"}}})", true) == "tool_choice");
  BOOST_TEST(refused(R"({"messages": [{"role": "user", "content": "x"}], "tools": [{}]})", true) == "tools");
}

BOOST_AUTO_TEST_SUITE_END()
