// ppengine serve as a user runs it: over sockets, against `ppengine generate`, with clients that behave and clients that do not. The
// preset has no tokenizer: prompts and answers are token numbers.
#include <arpa/inet.h>
#include <boost/test/unit_test.hpp>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <future>
#include <stdexcept>
#include <thread>

#include "../cli/run.hpp"

using namespace ppengine::test;
using Json = nlohmann::json;

namespace {

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

void send_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto sent = send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return;
    at += static_cast<std::size_t>(sent);
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = recv(fd, buffer, sizeof(buffer), 0)) > 0;) text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

struct Answer {
  int status = 0;
  std::string head, body;
  Json json() const { return Json::parse(body); }
};

Answer request(int port, const std::string& method, const std::string& path, const std::string& body = "", const std::string& header = "") {
  const int fd = connect_to(port);
  if (fd < 0) throw std::runtime_error("the server takes no connection");  // also in threads, where Boost.Test must not be used
  send_all(fd, method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header +
                   "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string text = read_all(fd);
  close(fd);
  Answer answer;
  const auto split = text.find("\r\n\r\n");
  if (split == text.npos) throw std::runtime_error("no answer to " + method + " " + path);
  answer.head = text.substr(0, split);
  answer.body = text.substr(split + 4);
  answer.status = std::stoi(text.substr(9, 3));
  return answer;
}

Answer post(int port, const std::string& path, const Json& body) { return request(port, "POST", path, body.dump()); }

// Runs a server, does something with it, ends it with SIGTERM: gives how it ended.
Outcome serve(int port, const std::vector<std::string>& more, const std::function<void()>& body, const std::string& model = "tiny") {
  std::vector<std::string> words{"serve", "--model", model, "--port", std::to_string(port)};
  words.insert(words.end(), more.begin(), more.end());
  return run(words, {}, "ppengine serves on", [&](int process) {
    try {
      body();
    } catch (...) {
      kill(process, SIGKILL);
      throw;
    }
    kill(process, SIGTERM);
  });
}

std::string text_of(const Answer& answer) {
  BOOST_REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return answer.json()["choices"][0]["text"].get<std::string>();
}

std::string generated(const std::string& ids, int tokens) {
  const Outcome outcome = run({"generate", "--model", "tiny", "--ids", ids, "--max-new-tokens", std::to_string(tokens), "--json"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::string text;
  const Json line = Json::parse(outcome.out);
  for (const Json& id : line["ids"]) text += (text.empty() ? "" : " ") + std::to_string(id.get<int>());
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(serve_command)

BOOST_AUTO_TEST_CASE(answers_are_those_of_generate_and_do_not_depend_on_company) {
  const std::string alone = generated("1,2,3", 12), other = generated("9,8,7,6,5", 12);
  const int port = free_port();
  const Outcome outcome = serve(port, {"--max-sequences", "4"}, [&] {
    const Json greedy{{"prompt", {1, 2, 3}}, {"max_tokens", 12}, {"temperature", 0}};
    BOOST_TEST(text_of(post(port, "/v1/completions", greedy)) == alone);
    const Json sampled{{"prompt", {4, 4, 4}}, {"max_tokens", 12}, {"temperature", 1}, {"seed", 5}, {"n", 2}};
    const Json by_itself = post(port, "/v1/completions", sampled).json()["choices"];
    BOOST_TEST((by_itself[0]["text"] != by_itself[1]["text"]));
    std::vector<std::future<void>> clients;
    for (int i = 0; i < 8; ++i)
      clients.push_back(std::async(std::launch::async, [&, i] {
        for (int k = 0; k < 3; ++k) {
          const bool first = (i + k) % 2 == 0;
          const Answer answer = first ? post(port, "/v1/completions", {{"prompt", {9, 8, 7, 6, 5}}, {"max_tokens", 12}, {"temperature", 0}})
                                      : post(port, "/v1/completions", sampled);
          if (answer.status != 200 || (first ? answer.json()["choices"][0]["text"] != other : answer.json()["choices"] != by_itself))
            throw std::runtime_error("another answer: " + answer.body);
        }
      }));
    for (auto& client : clients) BOOST_CHECK_NO_THROW(client.get());
    const Json probabilities =
        post(port, "/v1/completions", {{"prompt", {1, 2, 3}}, {"max_tokens", 2}, {"temperature", 0}, {"logprobs", 2}})
            .json()["choices"][0]["logprobs"];
    BOOST_TEST(probabilities["tokens"].size() == 2u);
    BOOST_TEST(probabilities["top_logprobs"][0].size() == 2u);
    BOOST_TEST(probabilities["token_logprobs"][0].get<double>() < 0);
    const Answer metrics = request(port, "GET", "/metrics");
    BOOST_TEST(metrics.body.find("ppengine_requests_total{route=\"/v1/completions\",status=\"200\"}") != std::string::npos);
    BOOST_TEST(request(port, "GET", "/health").status == 200);
    BOOST_TEST((request(port, "GET", "/v1/models").json()["data"][0]["id"] == "tiny"));
    BOOST_TEST(request(port, "GET", "/").body.find("<!doctype html>") == 0u);
  });
  BOOST_TEST(outcome.code == 0, outcome.err);
}

BOOST_AUTO_TEST_CASE(a_stream_has_the_same_text_in_events) {
  const int port = free_port();
  const Outcome outcome = serve(port, {"--pp", "2", "--api-key", "secret"}, [&] {
    BOOST_TEST(request(port, "GET", "/v1/models").status == 401);
    const std::string key = "Authorization: Bearer secret\r\n";
    const Json wanted{{"prompt", {1, 2, 3}}, {"max_tokens", 6}, {"temperature", 0}};
    Json streamed = wanted;
    streamed["stream"] = true;
    streamed["stream_options"] = {{"include_usage", true}};
    const std::string whole = text_of(request(port, "POST", "/v1/completions", wanted.dump(), key));
    const Answer answer = request(port, "POST", "/v1/completions", streamed.dump(), key);
    std::string text;
    Json usage;
    std::size_t events = 0;
    for (std::size_t at = answer.body.find("data: {"); at != std::string::npos; at = answer.body.find("data: {", at + 1)) {
      const Json event = Json::parse(answer.body.substr(at + 6, answer.body.find("\n\n", at) - at - 6));
      if (!event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
      if (event.contains("usage") && !event["usage"].is_null()) usage = event["usage"];
      ++events;
    }
    BOOST_TEST(text == whole);
    BOOST_TEST(events == 8u);  // a token each, the reason, the usage
    BOOST_TEST((usage["completion_tokens"] == 6));
    BOOST_TEST(answer.body.find("data: [DONE]") != std::string::npos);
  });
  BOOST_TEST(outcome.code == 0, outcome.err);
}

BOOST_AUTO_TEST_CASE(guesses_change_nothing) {
  const std::string alone = generated("1,2,3,4", 100);
  const int port = free_port();
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome = serve(port, {"--lookup", "--pp", ranks}, [&] {
      BOOST_TEST(text_of(post(port, "/v1/completions", {{"prompt", {1, 2, 3, 4}}, {"max_tokens", 100}, {"temperature", 0}})) == alone);
      // Of two tokens alone: the text repeats itself again and again, and not always in the same way.
      const Json drawn{{"prompt", {1, 2}}, {"max_tokens", 60}, {"temperature", 1}, {"seed", 3}, {"logit_bias", {{"7", 60}, {"8", 60}}}};
      const std::string guessed = text_of(post(port, "/v1/completions", drawn));
      Json four = drawn;  // side by side, two in a group, nothing is guessed
      four["prompt"] = Json::array({Json::array({1, 2}), Json::array({1, 2}), Json::array({1, 2}), Json::array({1, 2})});
      BOOST_TEST(text_of(post(port, "/v1/completions", four)) == guessed);
      const std::string metrics = request(port, "GET", "/metrics").body;
      BOOST_TEST(metrics.find("ppengine_right_guesses_total 0\n") == std::string::npos);
    });
    BOOST_TEST(outcome.code == 0, outcome.err);
  }
}

BOOST_AUTO_TEST_CASE(a_draft_changes_nothing) {
  const std::string alone = generated("1,2,3,4", 60);
  const int port = free_port();
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome = serve(port, {"--draft", "tiny", "--lookup", "--pp", ranks}, [&] {
      BOOST_TEST(text_of(post(port, "/v1/completions", {{"prompt", {1, 2, 3, 4}}, {"max_tokens", 60}, {"temperature", 0}})) == alone);
      const std::string metrics = request(port, "GET", "/metrics").body;
      BOOST_TEST(metrics.find("ppengine_accepted_drafts_total 0\n") == std::string::npos);
    });
    BOOST_TEST(outcome.code == 0, outcome.err);
  }
  const Outcome other = run({"serve", "--model", "tiny", "--draft", "mid", "--port", std::to_string(port)});
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("--draft mid: it has 8192 tokens") != std::string::npos, other.err);
}

BOOST_AUTO_TEST_CASE(a_client_has_its_share_and_no_more) {
  const int port = free_port();
  const Outcome outcome = serve(port, {"--max-per-client", "3"}, [&] {
    const auto asked = [&](int n) { return post(port, "/v1/completions", {{"prompt", {1}}, {"max_tokens", 3}, {"n", n}}); };
    BOOST_TEST(asked(3).status == 200);
    const Answer refused = asked(4);
    BOOST_TEST(refused.status == 429);
    BOOST_TEST(refused.head.find("Retry-After") != std::string::npos, refused.head);
    BOOST_TEST(refused.json()["error"]["code"] == "rate_limit_exceeded");
    BOOST_TEST(asked(3).status == 200);
  });
  BOOST_TEST(outcome.code == 0, outcome.err);
}

BOOST_AUTO_TEST_CASE(best_of_answers_the_likeliest) {
  const int port = free_port();
  const Outcome outcome = serve(port, {}, [&] {
    Json body{{"prompt", {1, 2}}, {"max_tokens", 5}, {"n", 6}, {"seed", 3}, {"logprobs", 0}};
    const Json all = post(port, "/v1/completions", body).json();
    double best = -1e9;
    std::string text;
    for (const Json& choice : all["choices"]) {
      double sum = 0;
      for (const Json& each : choice["logprobs"]["token_logprobs"]) sum += each.get<double>();
      if (sum > best) best = sum, text = choice["text"].get<std::string>();
    }
    body.erase("logprobs");
    body["n"] = 1, body["best_of"] = 6;
    const Json one = post(port, "/v1/completions", body).json();
    BOOST_REQUIRE_EQUAL(one["choices"].size(), 1u);
    BOOST_TEST(one["choices"][0]["text"] == text);
    BOOST_TEST(one["choices"][0]["index"] == 0);
    BOOST_TEST(one["choices"][0]["logprobs"].is_null());
    BOOST_TEST(one["usage"]["completion_tokens"] == 30);
    body["n"] = 7;
    BOOST_TEST(post(port, "/v1/completions", body).json()["error"]["param"] == "best_of");
    body["n"] = 1, body["stream"] = true;
    BOOST_TEST(post(port, "/v1/completions", body).json()["error"]["param"] == "best_of");
  });
  BOOST_TEST(outcome.code == 0, outcome.err);
}

// Memory for one sequence of the model's 128 tokens: two pages, and the one that belongs to nobody.
BOOST_AUTO_TEST_CASE(with_little_memory_all_are_answered_in_turn) {
  std::vector<std::string> alone;
  for (int i = 0; i < 6; ++i) alone.push_back(generated("5," + std::to_string(i), 100));
  const int port = free_port();
  const Outcome outcome = serve(port, {"--cache-memory", "2"}, [&] {
    std::vector<std::future<std::string>> all;
    for (int i = 0; i < 6; ++i)
      all.push_back(std::async(std::launch::async, [&, i] {
        return post(port, "/v1/completions", {{"prompt", {5, i}}, {"max_tokens", 100}, {"temperature", 0}})
            .json()["choices"][0]["text"]
            .get<std::string>();
      }));
    for (int i = 0; i < 6; ++i) BOOST_TEST(all[static_cast<std::size_t>(i)].get() == alone[static_cast<std::size_t>(i)]);
    const std::string metrics = request(port, "GET", "/metrics").body;
    BOOST_TEST(metrics.find("ppengine_preempted_total 0\n") == std::string::npos, metrics);
    BOOST_TEST(metrics.find("ppengine_cache_pages_used 0\n") != std::string::npos, metrics);
  });
  BOOST_TEST(outcome.code == 0, outcome.err);
  const Outcome none = run({"serve", "--model", "tiny", "--cache-memory", "1", "--port", std::to_string(port)});
  BOOST_TEST(none.code == 2);
  BOOST_TEST(none.err.find("--cache-memory 1: the keys and values of one sequence of 128 tokens take 2 MiB") != std::string::npos,
             none.err);
}

BOOST_AUTO_TEST_CASE(keys_and_values_in_bytes_give_the_same_answers_in_any_company) {
  const std::vector<std::string> bytes{"--cache-type", "int8"};
  const Outcome outcome = run({"generate", "--model", "tiny", "--ids", "5,0", "--max-new-tokens", "100", "--json", "--cache-type", "int8"});
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  std::string alone;
  const Json line = Json::parse(outcome.out);
  for (const Json& id : line["ids"]) alone += (alone.empty() ? "" : " ") + std::to_string(id.get<int>());
  const int port = free_port();
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--cache-memory", "1"}, {"--lookup"}, {"--pp", "2"}}) {
    std::vector<std::string> flags = bytes;
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome served = serve(port, flags, [&] {
      std::vector<std::future<std::string>> all;
      for (int i = 0; i < 4; ++i)
        all.push_back(std::async(std::launch::async, [&, i] {
          return post(port, "/v1/completions", {{"prompt", {5, i % 2}}, {"max_tokens", 100}, {"temperature", 0}})
              .json()["choices"][0]["text"]
              .get<std::string>();
        }));
      std::vector<std::string> texts;
      for (auto& each : all) texts.push_back(each.get());
      BOOST_TEST(texts[0] == alone);
      BOOST_TEST(texts[2] == alone);
      BOOST_TEST(texts[1] == texts[3]);
    });
    BOOST_TEST(served.code == 0, served.err);
  }
}

BOOST_AUTO_TEST_CASE(prompts_share_what_they_begin_with) {
  const int port = free_port();
  const auto asked = [&](int first) {
    std::vector<int> prompt(200, first);
    for (int i = 0; i < 150; ++i) prompt[static_cast<std::size_t>(i)] = (first + 7 * i) % 8000;
    return post(port, "/v1/completions", {{"prompt", prompt}, {"max_tokens", 6}, {"temperature", 0}}).json();
  };
  const auto reused = [](const Json& answer) { return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(); };
  Json alone;
  BOOST_TEST(serve(port, {}, [&] { alone = asked(5); }, "mid").code == 0);
  const Outcome outcome = serve(
      port, {},
      [&] {
        std::vector<std::future<Json>> together;
        for (int i = 0; i < 3; ++i) together.push_back(std::async(std::launch::async, [&] { return asked(5); }));
        int shared = 0;
        for (auto& each : together) {
          const Json answer = each.get();
          BOOST_TEST(answer["choices"] == alone["choices"]);
          shared += reused(answer);
        }
        BOOST_TEST(shared == 2 * 128);  // a whole chunk, of all but the first
        const Json again = asked(5);
        BOOST_TEST(reused(again) == 128);
        BOOST_TEST(again["choices"] == alone["choices"]);
        BOOST_TEST(reused(asked(6)) == 0);
      },
      "mid");
  BOOST_TEST(outcome.code == 0, outcome.err);
}

BOOST_AUTO_TEST_CASE(bad_requests_are_refused_and_others_do_not_notice) {
  const int port = free_port();
  const Outcome outcome = serve(port, {"--max-queue", "2", "--max-sequences", "1", "--max-body", "1"}, [&] {
    const Json good{{"prompt", {1}}, {"max_tokens", 2}, {"temperature", 0}};
    const int half = connect_to(port);
    send_all(half, "POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"pro");
    const int silent = connect_to(port);
    const int unread = connect_to(port);  // asks for much and reads nothing
    const std::string much = Json{{"prompt", {1, 2}}, {"max_tokens", 100}, {"stream", true}}.dump();
    send_all(unread, "POST /v1/completions HTTP/1.1\r\nContent-Length: " + std::to_string(much.size()) + "\r\n\r\n" + much);
    BOOST_TEST(request(port, "POST", "/v1/completions", "{broken").status == 400);
    BOOST_TEST(request(port, "POST", "/v1/completions", std::string(5000, '[')).status == 400);
    BOOST_TEST(post(port, "/v1/completions", {{"prompt", {100000}}}).status == 400);
    BOOST_TEST(post(port, "/v1/completions", {{"prompt", "text"}}).status == 400);  // the preset has no tokenizer
    BOOST_TEST(post(port, "/v1/completions", {{"prompt", {1}}, {"model", "other"}}).status == 404);
    BOOST_TEST(post(port, "/v1/completions", {{"prompt", {1}}, {"n", 4}}).status == 400);
    BOOST_TEST(request(port, "GET", "/v1/completions").status == 405);
    BOOST_TEST(request(port, "GET", "/nothing").status == 404);
    const int large = connect_to(port);
    send_all(large, "POST /v1/completions HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n");
    send_all(large, std::string(std::size_t{8} << 20, 'x'));  // a client that reads when it has sent everything
    BOOST_TEST(read_all(large).find("HTTP/1.1 413") == 0u);
    const int noise = connect_to(port);
    send_all(noise, std::string("\x16\x03\x01 nothing that is HTTP\r\n\r\n"));
    BOOST_TEST(read_all(noise).find("HTTP/1.1 400") == 0u);
    BOOST_TEST(post(port, "/v1/completions", good).status == 200);
    // One runs, two wait, more are refused.
    std::vector<std::future<Answer>> many;
    for (int i = 0; i < 8; ++i)
      many.push_back(
          std::async(std::launch::async, [&] { return post(port, "/v1/completions", {{"prompt", {1, 2}}, {"max_tokens", 100}}); }));
    int fine = 0, full = 0;
    for (auto& each : many) {
      const Answer answer = each.get();
      fine += answer.status == 200;
      full += answer.status == 429 && answer.head.find("Retry-After") != std::string::npos;
    }
    BOOST_TEST(fine >= 1);
    BOOST_TEST(fine + full == 8);
    for (const int fd : {half, silent, unread, large, noise}) close(fd);
    BOOST_TEST(post(port, "/v1/completions", good).status == 200);
  });
  BOOST_TEST(outcome.code == 0, outcome.err);
}

BOOST_AUTO_TEST_SUITE_END()
