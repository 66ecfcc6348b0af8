// Generation over a pipeline: the first rank decides what runs next, the last one chooses tokens.
#include <ppengine/runs/generator.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/abort_on_error.hpp>
#include <ppengine/runs/constraint/json_schema.hpp>
#include <ppengine/runs/generator/impl.hpp>

namespace ppengine::runs {

const char* finish_name(Finish finish) {
  return finish == Finish::length ? "length" : finish == Finish::end_token ? "end_token" : "cancelled";
}

Generator::Generator(engine::ModelRank& model, const GeneratorOptions& options, comm::Communicator& pipeline)
    : impl_(std::make_unique<Impl>(model, options, pipeline)) {}
Generator::~Generator() = default;

void Generator::prepare(std::int64_t prompt_length) {
  const std::int64_t chunk = impl_->options.chunk;
  for (std::int64_t at = 0; at < prompt_length; at += chunk)
    impl_->decoder.prepare(at, std::min(chunk, prompt_length - at), at + chunk >= prompt_length);
}

void Generator::prepare_steps() {
  const auto most = static_cast<std::size_t>(impl_->options.sequences);
  for (std::size_t size = 1;; size *= 2) {
    impl_->decoder.prepare_step(static_cast<std::int64_t>(step_size(size, most)));
    if (size >= most) return;
  }
}

std::uint64_t Generator::submit(GenerationRequest request) {
  check(request.sampling);
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) throw ConfigError("the prompt is empty: there must be a token to go on from");
  if (length > impl_->options.capacity)
    throw ConfigError(
        fmt::format("the prompt has {} tokens, and the context holds {}; shorten the prompt", length, impl_->options.capacity));
  if (request.max_new_tokens < 1) throw ConfigError(fmt::format("{} new tokens: must be at least 1", request.max_new_tokens));
  for (std::int32_t id : request.prompt)
    if (id < 0 || id >= impl_->vocabulary)
      throw ConfigError(fmt::format("token {} of the prompt is not in the model's vocabulary of {} (0 to {})", id, impl_->vocabulary,
                                    impl_->vocabulary - 1));
  if (!request.schema.empty()) static_cast<void>(constraint::schema_grammar(nlohmann::ordered_json::parse(request.schema)));
  PPENGINE_ASSERT(request.adapter < 0 || !impl_->options.adapters.empty());
  const std::lock_guard lock(impl_->mutex);
  const std::uint64_t number = impl_->submitted++;
  impl_->unfinished.insert(number);
  impl_->waiting.push_back({number, std::move(request)});
  impl_->news.notify_one();
  return number;
}

void Generator::cancel(std::uint64_t number) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->unfinished.contains(number)) impl_->cancelled.insert(number);
}

void Generator::run() { impl_->carry_on(false); }
void Generator::serve() { impl_->carry_on(true); }

void Generator::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stopping = true;
  impl_->news.notify_one();
}

void Generator::stop_now() {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.insert(impl_->unfinished.begin(), impl_->unfinished.end());
  impl_->stopping = true;
  impl_->news.notify_one();
}

GeneratorStats Generator::stats() const {
  const std::lock_guard lock(impl_->mutex);
  GeneratorStats now = impl_->stats;
  now.waiting = static_cast<std::int64_t>(impl_->waiting.size());
  now.places = impl_->options.groups * impl_->options.sequences;
  now.pages = impl_->pool.size();
  return now;
}

std::size_t Generator::cache_bytes() const { return impl_->decoder.cache_bytes(); }
void Generator::set_profile(engine::Profile* profile) { impl_->decoder.set_profile(profile); }

}  // namespace ppengine::runs
