// A completion under way.
#include <ppengine/runs/serving/completion.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <numeric>
#include <random>

#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::runs::serving {
namespace {

std::string new_id(bool chat) {
  static std::atomic<std::uint64_t> counter{0};
  static const std::uint64_t start = std::random_device{}();
  return fmt::format("{}-{:08x}{:08x}", chat ? "chatcmpl" : "cmpl", start, counter++);
}

// Characters of a text, which is what offsets count.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Completion::Completion(Setup setup, std::shared_ptr<Reply> reply)
    : setup_(std::move(setup)), reply_(std::move(reply)), id_(new_id(setup_.request.chat)), created_(std::time(nullptr)) {
  for (std::size_t p = 0; p < setup_.prompts.size(); ++p)
    for (std::int64_t k = 0; k < setup_.request.best_of; ++k) {
      State& state = states_.emplace_back(setup_.request.stops);
      state.prompt = p;
      if (setup_.tokenizer) state.decoder.emplace(*setup_.tokenizer, setup_.request.skip_special_tokens);
    }
  left_ = states_.size();
}

void Completion::start(Generator& generator) {
  const auto reply = reply_;  // an answer that comes while this submits gives it away
  if (setup_.request.stream) reply->begin_stream("text/event-stream; charset=utf-8");
  auto numbers = std::make_shared<std::vector<std::uint64_t>>();
  const auto self = shared_from_this();
  static std::atomic<std::uint64_t> owners{0};
  const std::uint64_t owner = owners++;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    GenerationRequest request;
    request.prompt = setup_.prompts[states_[i].prompt];
    request.max_new_tokens = setup_.max_new_tokens;
    request.sampling = setup_.request.sampling;
    request.bias = setup_.request.bias;
    request.schema = setup_.request.schema;
    if (!setup_.request.ignore_eos) request.end_ids = setup_.end_ids;
    request.owner = owner;
    request.adapter = setup_.adapter;
    request.client = setup_.client;
    request.random_stream =
        i % static_cast<std::size_t>(setup_.request.best_of);  // not of the company: the same seed gives the same tokens
    request.on_choice = [self, i](const Choice& choice) { return self->choose(i, choice); };
    request.on_finished = [self, i](const Generated& result) { self->finish(i, result); };
    numbers->push_back(generator.submit(std::move(request)));
  }
  reply->on_gone([numbers, &generator] {
    for (const std::uint64_t number : *numbers) generator.cancel(number);
  });
}

void Completion::fail(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(over_, true)) return;
  if (setup_.on_answered) std::exchange(setup_.on_answered, {})(error.status);
  const auto reply = std::exchange(reply_, nullptr);  // the generator may keep this object for longer than the server lives
  if (!setup_.request.stream) return reply->send(error.status, "application/json", error.body());
  reply->write("data: " + error.body() + "\n\n");
  reply->end_stream();
}

std::string Completion::token_bytes(std::int32_t id) const {
  if (!setup_.tokenizer) return fmt::format("{}", id);
  const std::string bytes = setup_.tokenizer->bytes_of(id);
  return bytes.empty() ? setup_.tokenizer->id_to_token(id).value_or("") : bytes;
}

Json Completion::token_json(std::int32_t id, float logprob) const {
  const std::string own = token_bytes(id);
  Json bytes = Json::array();
  for (const char c : own) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", models::tokenizer::make_valid_utf8(own)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

bool Completion::choose(std::size_t index, const Choice& choice) {
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  State& state = states_[index];
  if (!std::exchange(state.begun, true)) setup_.metrics->first_token(std::chrono::duration<double>(Clock::now() - arrived_).count());
  state.logprob += choice.logprob;
  if (setup_.request.shows_logprobs) {
    Json token = token_json(choice.token, choice.logprob);
    Json top = Json::array();
    for (int i = 0; i < choice.alternatives; ++i) top.push_back(token_json(choice.ids[i], choice.logprobs[i]));
    token["top_logprobs"] = std::move(top);
    (setup_.request.stream ? state.unsent : state.tokens).push_back(std::move(token));
  }
  std::string piece;
  // Text that follows a schema ends before the token that ends it, also where that is not one of those that are never shown.
  const bool ends = !setup_.request.schema.empty() && std::ranges::find(setup_.end_ids, choice.token) != setup_.end_ids.end();
  if (state.decoder && !ends)
    piece = state.stops.push(state.decoder->push(choice.token));
  else if (!state.decoder)
    piece = fmt::format("{}{}", state.text.empty() ? "" : " ", choice.token);
  state.text += piece;
  const std::string seen = shown(state, piece);
  if (setup_.request.stream && (!seen.empty() || !state.unsent.empty())) stream(index, seen, nullptr);
  return !state.stops.stopped();
}

void Completion::finish(std::size_t index, const Generated& result) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  State& state = states_[index];
  state.result = result;
  const double waited = std::chrono::duration<double>(Clock::now() - arrived_).count() - result.prefill_seconds - result.decode_seconds;
  setup_.metrics->finished(std::max(0.0, waited), result);
  if (state.decoder) {
    std::string rest;
    if (!state.stops.stopped()) rest = state.stops.push(state.decoder->finish());
    rest += state.stops.finish();
    state.text += rest;
    std::string seen = shown(state, rest);
    if (setup_.request.tool_use == ToolUse::found) {
      state.called = find_calls(state.text);
      // What looked like a call and is none is text.
      if (state.called.empty()) seen += state.text.substr(state.seen), state.seen = state.text.size();
    } else if (setup_.request.tool_use == ToolUse::any_tool) {
      state.called = forced_call(state.text);
    }
    if (setup_.request.stream && !seen.empty()) stream(index, seen, nullptr);
  }
  if (setup_.request.stream) stream(index, "", reason_of(state));
  if (--left_ == 0) complete();
}

// What of a piece of text a client sees as text, or as arguments of the one call: not what belongs to a call that has to be read first.
std::string Completion::shown(State& state, const std::string& piece) {
  std::string seen = setup_.request.tool_use == ToolUse::any_tool ? ""
                     : setup_.request.tool_use == ToolUse::found  ? state.calls.push(piece)
                                                                  : piece;
  state.seen += seen.size();
  return seen;
}

const char* Completion::reason_of(const State& state) const {
  if (!state.called.empty()) return "tool_calls";
  return state.result.finish == Finish::length && !state.stops.stopped() ? "length" : "stop";
}

Json Completion::envelope(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", setup_.model}};
}

Json Completion::usage() const {
  std::int64_t prompt = 0, completion = 0, reused = 0;
  for (const Ids& ids : setup_.prompts) prompt += static_cast<std::int64_t>(ids.size());
  for (const State& state : states_) {
    completion += static_cast<std::int64_t>(state.result.ids.size());
    reused += state.result.reused_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", std::min(reused, prompt)}}}};
}

// Chat: a list of tokens as they are. Completions: four lists.
Json Completion::logprobs_json(const Json& tokens, std::size_t& offset) const {
  if (!setup_.request.shows_logprobs) return nullptr;
  if (setup_.request.chat) return {{"content", tokens}, {"refusal", nullptr}};
  Json names = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const Json& token : tokens) {
    names.push_back(token["token"]);
    values.push_back(token["logprob"]);
    Json top = Json::object();
    for (const Json& each : token["top_logprobs"])  // parts of characters look alike: the likeliest one stays
      if (const auto& name = each["token"].get_ref<const std::string&>(); !top.contains(name)) top[name] = each["logprob"];
    // The chosen token is always among them, so that there may be one more than was asked for.
    if (const auto& name = token["token"].get_ref<const std::string&>(); !top.contains(name)) top[name] = token["logprob"];
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += characters(token["token"].get_ref<const std::string&>());
  }
  return {{"tokens", names}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

// Of every prompt's sequences the n with the largest mean log probability of a token, likeliest first; all in their order where none is
// left out.
std::vector<std::size_t> Completion::best() const {
  std::vector<std::size_t> order(states_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto each = static_cast<std::size_t>(setup_.request.best_of), wanted = static_cast<std::size_t>(setup_.request.n);
  if (each == wanted) return order;
  const auto mean = [&](std::size_t i) { return states_[i].logprob / double(std::max<std::size_t>(1, states_[i].result.ids.size())); };
  std::vector<std::size_t> found;
  for (auto first = order.begin(); first != order.end(); first += static_cast<std::ptrdiff_t>(each)) {
    std::stable_sort(first, first + static_cast<std::ptrdiff_t>(each), [&](std::size_t a, std::size_t b) { return mean(a) > mean(b); });
    found.insert(found.end(), first, first + static_cast<std::ptrdiff_t>(wanted));
  }
  return found;
}

Json Completion::choice_json(std::size_t index, std::size_t shown_as) const {
  const State& state = states_[index];
  Json choice{{"index", shown_as}};
  if (setup_.request.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", state.text}, {"refusal", nullptr}};
    const bool forced = setup_.request.tool_use == ToolUse::one_tool;
    if (forced || !state.called.empty()) {
      const std::string before = forced ? "" : state.text.substr(0, state.seen);
      choice["message"]["content"] = before.find_first_not_of(" \n") == before.npos ? Json() : Json(before);
      choice["message"]["tool_calls"] =
          calls_json(forced ? std::vector{ToolCall{setup_.request.tool, state.text}} : state.called, call_id(index), false);
    }
  } else {
    const std::string prompt = !setup_.request.echo ? "" : setup_.tokenizer ? setup_.tokenizer->decode(setup_.prompts[state.prompt]) : "";
    choice["text"] = prompt + state.text;
  }
  std::size_t offset = 0;
  choice["logprobs"] = logprobs_json(state.tokens, offset);
  choice["finish_reason"] = reason_of(state);
  return choice;
}

void Completion::event(const Json& data) { reply_->write("data: " + dumped(data) + "\n\n"); }

std::string Completion::call_id(std::size_t index) const { return states_.size() == 1 ? id_ : fmt::format("{}_{}", id_, index); }

Json Completion::delta(std::size_t index, const std::string& piece, bool has_tokens, bool finished) const {
  const State& state = states_[index];
  const bool begins = !state.streamed;
  Json delta = Json::object();
  if (begins) delta["role"] = "assistant";
  if (setup_.request.tool_use == ToolUse::one_tool) {  // the name first, then the arguments as they grow
    if (begins)
      delta["tool_calls"] = calls_json({{setup_.request.tool, piece}}, call_id(index), true);
    else if (!piece.empty())
      delta["tool_calls"] = Json::array({Json{{"index", 0}, {"function", {{"arguments", piece}}}}});
    return delta;
  }
  if (begins || !piece.empty() || has_tokens) delta["content"] = piece;
  if (finished && !state.called.empty()) delta["tool_calls"] = calls_json(state.called, call_id(index), true);
  return delta;
}

void Completion::stream(std::size_t index, const std::string& piece, const char* finish_reason) {
  State& state = states_[index];
  Json data = envelope(setup_.request.chat ? "chat.completion.chunk" : "text_completion");
  Json choice{{"index", index}};
  const Json tokens = std::exchange(state.unsent, Json::array());
  if (setup_.request.chat) {
    choice["delta"] = delta(index, piece, !tokens.empty(), finish_reason);
  } else {
    const bool echoes = setup_.request.echo && !state.streamed && setup_.tokenizer;
    choice["text"] = (echoes ? setup_.tokenizer->decode(setup_.prompts[state.prompt]) : "") + piece;
  }
  state.streamed = true;
  choice["logprobs"] = tokens.empty() ? Json() : logprobs_json(tokens, state.offset);
  choice["finish_reason"] = finish_reason ? Json(finish_reason) : Json();
  data["choices"] = Json::array({std::move(choice)});
  if (setup_.request.include_usage) data["usage"] = nullptr;
  event(data);
}

void Completion::complete() {
  over_ = true;
  if (setup_.on_answered) std::exchange(setup_.on_answered, {})(200);
  if (setup_.request.stream) {
    if (setup_.request.include_usage) {
      Json data = envelope(setup_.request.chat ? "chat.completion.chunk" : "text_completion");
      data["choices"] = Json::array();
      data["usage"] = usage();
      event(data);
    }
    reply_->write("data: [DONE]\n\n");
    return std::exchange(reply_, nullptr)->end_stream();
  }
  Json data = envelope(setup_.request.chat ? "chat.completion" : "text_completion");
  data["choices"] = Json::array();
  for (const std::size_t i : best()) data["choices"].push_back(choice_json(i, data["choices"].size()));
  data["usage"] = usage();
  std::exchange(reply_, nullptr)->send(200, "application/json", dumped(data));
}

}  // namespace ppengine::runs::serving
