// Text to token ids and back: the public face of tokenizer/.
#include <ppengine/models/tokenizer/tokenizer.hpp>

#include <algorithm>

#include <ppengine/base/file.hpp>
#include <ppengine/models/tokenizer/detail/pipeline.hpp>

namespace ppengine::models {
namespace {

constexpr std::uint64_t max_tokenizer_bytes = 400'000'000;
constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return parse(read_file(tokenizer_json, max_tokenizer_bytes), tokenizer_json.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  const nlohmann::json value = parse_json(json, name, {.refuse_duplicate_keys = false});
  return Tokenizer(std::make_shared<tokenizer::Pipeline>(tokenizer::read_pipeline(JsonPlace(value, name))));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return pipeline_->encode(text, add_special_tokens);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  return pipeline_->decode(ids, skip_special_tokens);
}

std::size_t Tokenizer::vocabulary_size() const { return static_cast<std::size_t>(pipeline_->largest_id) + 1; }

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto added = pipeline_->added_ids.find(std::string(token)); added != pipeline_->added_ids.end()) return added->second;
  const auto& vocabulary = pipeline_->model.vocabulary();
  const auto found = vocabulary.find(token);
  return found == vocabulary.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Tokenizer::id_to_token(std::int32_t id) const {
  const auto found = pipeline_->tokens.find(id);
  return found == pipeline_->tokens.end() ? std::nullopt : std::optional(found->second.content);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto found = pipeline_->tokens.find(id);
  return found != pipeline_->tokens.end() && found->second.special;
}

std::string Tokenizer::bytes_of(std::int32_t id) const {
  const auto found = pipeline_->tokens.find(id);
  if (found == pipeline_->tokens.end() || found->second.special) return "";
  return pipeline_->bytes_of(found->second.decoded);
}

std::string StreamDecoder::push(std::int32_t id) {
  constexpr std::size_t long_window = 32, short_window = 8;
  window_.push_back(id);
  // Bytes in a row are one text or none: what they give is certain only when something else follows.
  if (tokenizer_.pipeline_->decoders.byte_fallback) {
    const auto token = tokenizer_.id_to_token(id);
    if (token && token->size() == 6 && token->starts_with("<0x") && token->ends_with('>')) return "";
  }
  const std::string text = tokenizer_.decode(window_, skip_special_tokens_);
  std::size_t certain = text.size();
  while (certain >= replacement.size() && std::string_view(text).substr(0, certain).ends_with(replacement))
    certain -= replacement.size();  // a character that may be completed by the next token
  std::string out;
  if (certain > given_) {
    out = text.substr(given_, certain - given_);
    given_ = certain;
  }
  if (window_.size() > long_window && given_ == text.size()) {
    std::vector<std::int32_t> last(window_.end() - short_window, window_.end());
    if (const std::string kept = tokenizer_.decode(last, skip_special_tokens_); !kept.empty() && !kept.ends_with(replacement)) {
      window_ = std::move(last);
      given_ = kept.size();
    }
  }
  return out;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_.decode(window_, skip_special_tokens_);
  std::string out = text.size() > given_ ? text.substr(given_) : "";
  window_.clear();
  given_ = 0;
  return out;
}

}  // namespace ppengine::models
