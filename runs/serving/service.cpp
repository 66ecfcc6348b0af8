// The routes of a server.
#include <ppengine/runs/serving/service.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <ctime>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/runs/constraint/json_schema.hpp>

namespace ppengine::runs::serving {
namespace {

constexpr std::int64_t most_texts = 2048;  // of one request for embeddings

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

const char* known_route(const std::string& path) {
  for (const char* each :
       {"/", "/health", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize"})
    if (path == each) return each;
  return "other";
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2)
      out += static_cast<char>(byte), i += 2;
    else
      out += text[i];
  }
  return out;
}

// Compares all bytes, so that the time says nothing about how many are right.
bool same_secret(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

}  // namespace

Service::Service(const ServiceOptions& options, const models::ModelSource& source, Generator& generator, Embed embed)
    : options_(options),
      source_(source),
      tokenizer_(source.tokenizer()),
      generator_(generator),
      embed_(std::move(embed)),
      started_(std::time(nullptr)) {
  if (source.folder) chat_ = models::ChatTemplate::load(*source.folder);
}

void Service::answer(const HttpRequest& request, const std::shared_ptr<Reply>& reply, int status, const std::string& type,
                     const std::string& body, const Reply::Headers& headers) {
  metrics_.answered(known_route(request.path), status);
  log::info(fmt::format("{} {} {} {}", request.client, request.method, request.path.substr(0, 200), status));
  reply->send(status, type, body, headers);
}

void Service::handle(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  try {
    route(request, reply);
  } catch (const ApiError& error) {
    answer(request, reply, error.status, "application/json", error.body(),
           error.status == 429   ? Reply::Headers{{"Retry-After", "1"}}
           : error.status == 401 ? Reply::Headers{{"WWW-Authenticate", "Bearer"}}
                                 : Reply::Headers{});
  } catch (const models::TemplateError& error) {
    answer(request, reply, 400, "application/json", ApiError(400, error.what(), "messages").body());
  } catch (const ConfigError& error) {
    answer(request, reply, 400, "application/json", ApiError(400, error.what()).body());
  }
}

void Service::route(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  const std::string route = known_route(request.path);
  const bool model = request.path.starts_with("/v1/models/");
  if (route == "other" && !model)
    throw ApiError(404, fmt::format("there is no {} {}", request.method, request.path.substr(0, 200)), "", "unknown_url");
  const bool posts = route == "/v1/completions" || route == "/v1/chat/completions" || route == "/v1/embeddings" || route == "/tokenize" ||
                     route == "/detokenize";
  if (posts ? request.method != "POST" : request.method != "GET" && request.method != "HEAD")
    return answer(request, reply, 405, "application/json", ApiError(405, fmt::format("{} wants {}", route, posts ? "POST" : "GET")).body(),
                  {{"Allow", posts ? "POST" : "GET"}});
  if (route == "/") return answer(request, reply, 200, "text/html; charset=utf-8", chat_page());
  std::string failed;
  {
    const std::lock_guard lock(mutex_);
    failed = failed_;
  }
  if (failed.empty() && draining_) failed = "the server is shutting down";
  if (route == "/health")
    return answer(request, reply, failed.empty() ? 200 : 503, "application/json",
                  dumped(failed.empty() ? Json{{"status", "ok"}} : Json{{"status", "unavailable"}, {"reason", failed}}));
  if (route == "/metrics")  // without a key, as Prometheus comes
    return answer(request, reply, 200, "text/plain; version=0.0.4; charset=utf-8",
                  metrics_.text(generator_.stats(), connections(), generator_.cache_bytes()));
  check_key(request);
  if (route == "/v1/models") return answer(request, reply, 200, "application/json", dumped(models_list()));
  if (model) {
    const int found = find_model(percent_decoded(std::string_view(request.path).substr(std::string_view("/v1/models/").size())));
    return answer(request, reply, 200, "application/json", dumped(models_list()["data"][static_cast<std::size_t>(found + 1)]));
  }
  if (!failed.empty()) throw ApiError(503, failed);
  if (route == "/tokenize") return answer(request, reply, 200, "application/json", dumped(tokenize(request)));
  if (route == "/detokenize") return answer(request, reply, 200, "application/json", dumped(detokenize(request)));
  if (route == "/v1/embeddings") return answer(request, reply, 200, "application/json", dumped(embeddings(request)));
  completion(request, reply, route == "/v1/chat/completions");
}

void Service::check_key(const HttpRequest& request) const {
  if (options_.api_key.empty()) return;
  if (!same_secret(request.authorization, "Bearer " + options_.api_key))
    throw ApiError(401, "wrong or missing API key: send it as 'Authorization: Bearer KEY'", "", "invalid_api_key");
}

std::string Service::model_name(int adapter) const {
  return adapter < 0 ? options_.model : options_.model + ":" + options_.adapters[static_cast<std::size_t>(adapter)];
}

int Service::find_model(const std::string& name) const {
  if (name.empty() || name == options_.model || std::ranges::find(options_.aliases, name) != options_.aliases.end()) return -1;
  std::string there = fmt::format("'{}'", options_.model);
  for (std::size_t i = 0; i < options_.adapters.size(); ++i) {
    const std::string &own = options_.adapters[i], end = ":" + own;
    const bool ends = name.ends_with(end) && name.size() > end.size();
    if (name == own || (ends && find_model(name.substr(0, name.size() - end.size())) == -1)) return static_cast<int>(i);
    there += fmt::format(", '{}'", model_name(static_cast<int>(i)));
  }
  throw ApiError(404, fmt::format("there is no model '{}'; this server has {}", name.substr(0, 200), there), "model", "model_not_found");
}

Json Service::models_list() const {
  Json data = Json::array();
  for (int i = -1; i < static_cast<int>(options_.adapters.size()); ++i) {
    Json one{{"id", model_name(i)},
             {"object", "model"},
             {"created", started_},
             {"owned_by", "ppengine"},
             {"max_model_len", options_.capacity}};
    if (i >= 0) one["parent"] = options_.model;
    data.push_back(std::move(one));
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

Ids Service::encode(const std::string& text, bool special, const char* field) const {
  if (!tokenizer_) throw ApiError(400, fmt::format("the model has no tokenizer: give '{}' as token numbers", field), field);
  return tokenizer_->encode(text, special);
}

std::string Service::render(const CompletionRequest& request) const {
  if (!chat_)
    throw ApiError(400,
                   "the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); use /v1/completions",
                   "messages");
  models::ChatOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.tools = request.tools;
  options.variables = request.template_variables;
  return chat_->render(request.messages, options);
}

void Service::check_schema(const std::string& schema) const {
  if (!tokenizer_) throw ApiError(400, "the model has no tokenizer: JSON cannot be asked for", "response_format");
  try {
    static_cast<void>(constraint::schema_grammar(Json::parse(schema)));
  } catch (const ConfigError& error) {
    throw ApiError(400, error.what(), "response_format");
  }
}

void Service::completion(const HttpRequest& http, const std::shared_ptr<Reply>& reply, bool chat) {
  Completion::Setup setup;
  setup.request = parse_completion(parse_body(http.body), chat);
  setup.adapter = find_model(setup.request.model);
  if (chat)
    setup.prompts.push_back(encode(render(setup.request), false, "messages"));
  else
    for (const auto& each : setup.request.prompts)
      setup.prompts.push_back(std::holds_alternative<Ids>(each) ? std::get<Ids>(each)
                                                                : encode(std::get<std::string>(each), true, "prompt"));
  const char* field = chat ? "messages" : "prompt";
  std::int64_t longest = 0;
  for (const Ids& ids : setup.prompts) {
    if (ids.empty()) throw ApiError(400, fmt::format("'{}' is empty: there must be a token to go on from", field), field);
    longest = std::max(longest, static_cast<std::int64_t>(ids.size()));
    for (const std::int32_t id : ids)
      if (id < 0 || id >= source_.config.vocabulary())
        throw ApiError(400, fmt::format("token {} is not in the model's vocabulary of {}", id, source_.config.vocabulary()), field);
  }
  if (longest > options_.capacity)
    throw ApiError(400, fmt::format("the prompt has {} tokens, and the context holds {}", longest, options_.capacity), field,
                   "context_length_exceeded");
  if (!setup.request.schema.empty()) check_schema(setup.request.schema);
  setup.model = model_name(setup.adapter);
  setup.tokenizer = tokenizer_;
  setup.end_ids = source_.config.ids().eos;
  setup.max_new_tokens = setup.request.max_tokens.value_or(chat ? options_.capacity : 16);
  setup.metrics = &metrics_;
  const auto count = static_cast<std::int64_t>(setup.prompts.size()) * setup.request.n;
  const GeneratorStats load = generator_.stats();
  const std::int64_t room = load.places + options_.max_queue;
  if (count > room) throw ApiError(400, fmt::format("{} sequences in one request; at most {} are taken", count, room), "n");
  auto made = std::make_shared<std::weak_ptr<Completion>>();
  setup.on_answered = [this, made, path = http.path, client = http.client](int status) {
    metrics_.answered(known_route(path), status);
    log::info(fmt::format("{} POST {} {}", client, path, status));
    const std::lock_guard lock(mutex_);
    if (const auto self = made->lock()) under_way_.erase(self);
  };
  const auto completion = std::make_shared<Completion>(std::move(setup), reply);
  *made = completion;
  {
    const std::lock_guard lock(mutex_);
    if (!failed_.empty()) throw ApiError(503, failed_);
    if (load.running + load.waiting + count > room) throw ApiError(429, "the queue is full; try again later", "", "rate_limit_exceeded");
    under_way_.insert(completion);
  }
  completion->start(generator_);
}

void Service::fail(const std::string& reason) {
  std::set<std::shared_ptr<Completion>> left;
  {
    const std::lock_guard lock(mutex_);
    failed_ = reason;
    left = under_way_;
  }
  for (const auto& each : left) each->fail(ApiError(503, reason));
}

Json Service::embeddings(const HttpRequest& request) {
  const Json body = parse_body(request.body);
  const int adapter = find_model(text(body, "model").value_or(""));
  const Json* input = find(body, "input");
  if (!input) throw ApiError(400, "'input' is missing", "input");
  const std::string pooling = text(body, "pooling").value_or("mean");
  if (pooling != "mean" && pooling != "last") throw ApiError(400, "'pooling' must be mean or last", "pooling");
  const std::string format = text(body, "encoding_format").value_or("float");
  if (format != "float" && format != "base64") throw ApiError(400, "'encoding_format' must be float or base64", "encoding_format");
  std::vector<Ids> all;
  const auto add = [&](const Json& each) {
    all.push_back(each.is_string() ? encode(each.get<std::string>(), true, "input") : token_ids(each, "input"));
  };
  if (input->is_array() && !input->empty() && !(*input)[0].is_number()) {
    if (static_cast<std::int64_t>(input->size()) > most_texts)
      throw ApiError(400, fmt::format("'input' has more than {} elements", most_texts), "input");
    for (const Json& each : *input) add(each);
  } else {
    add(*input);
  }
  std::int64_t tokens = 0;
  for (const Ids& ids : all) {
    if (ids.empty()) throw ApiError(400, "'input' has an empty text", "input");
    if (static_cast<std::int64_t>(ids.size()) > source_.config.positions())
      throw ApiError(400, fmt::format("a text of {} tokens; the model reads {}", ids.size(), source_.config.positions()), "input",
                     "context_length_exceeded");
    for (const std::int32_t id : ids)
      if (id >= source_.config.vocabulary()) throw ApiError(400, fmt::format("token {} is not in the vocabulary", id), "input");
    tokens += static_cast<std::int64_t>(ids.size());
  }
  const auto vectors = embed_(all, pooling == "last", adapter);
  const auto width = static_cast<std::int64_t>(vectors.at(0).size());
  if (const auto wanted = integer(body, "dimensions", 1, INT32_MAX); wanted && *wanted != width)
    throw ApiError(400, fmt::format("'dimensions' is {}, and this model's embeddings have {}", *wanted, width), "dimensions");
  Json data = Json::array();
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    Json one{{"object", "embedding"}, {"index", i}};
    if (format == "float") {
      one["embedding"] = vectors[i];
    } else {
      constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      const auto* bytes = reinterpret_cast<const unsigned char*>(vectors[i].data());
      const std::size_t size = vectors[i].size() * sizeof(float);
      std::string out;
      for (std::size_t at = 0; at < size; at += 3) {
        const unsigned value = static_cast<unsigned>(bytes[at]) << 16 | (at + 1 < size ? static_cast<unsigned>(bytes[at + 1]) << 8 : 0u) |
                               (at + 2 < size ? bytes[at + 2] : 0u);
        out += letters[value >> 18];
        out += letters[value >> 12 & 63];
        out += at + 1 < size ? letters[value >> 6 & 63] : '=';
        out += at + 2 < size ? letters[value & 63] : '=';
      }
      one["embedding"] = std::move(out);
    }
    data.push_back(std::move(one));
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model_name(adapter)},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

Json Service::tokenize(const HttpRequest& request) const {
  const Json body = parse_body(request.body);
  Ids ids;
  if (find(body, "messages")) {
    Json wanted = body;
    ids = encode(render(parse_completion(wanted, true)), false, "messages");
  } else {
    const char* field = find(body, "content") ? "content" : find(body, "text") ? "text" : "prompt";
    const auto given = text(body, field);
    if (!given) throw ApiError(400, "'content' is missing: the text to tokenize", "content");
    ids = encode(*given, boolean(body, "add_special_tokens").value_or(true), field);
  }
  return {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", options_.capacity}};
}

Json Service::detokenize(const HttpRequest& request) const {
  const Json body = parse_body(request.body);
  const Json* given = find(body, "tokens");
  if (!given) throw ApiError(400, "'tokens' is missing: a list of token numbers", "tokens");
  if (!tokenizer_) throw ApiError(400, "the model has no tokenizer");
  const std::string out = tokenizer_->decode(token_ids(*given, "tokens"), boolean(body, "skip_special_tokens").value_or(false));
  return {{"content", out}, {"prompt", out}, {"text", out}};
}

}  // namespace ppengine::runs::serving
