// Reading tokenizer.json: the BPE model and the added tokens; the other parts have readers of their own.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/models/tokenizer/detail/pipeline.hpp>

namespace ppengine::models::tokenizer {
namespace {

constexpr std::int64_t max_id = (1 << 24) - 1;

Vocabulary read_vocabulary(const JsonPlace& place) {
  Vocabulary vocabulary;
  const auto& entries = place.expect_object().json();
  vocabulary.reserve(entries.size());
  for (const auto& [token, id] : entries.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(max_id))
      place.refuse(fmt::format("gives the token '{}' an id that is not between 0 and {}", token, max_id));
    vocabulary.emplace(token, id.get<std::int32_t>());
  }
  return vocabulary;
}

// "a b" or ["a", "b"]; both and their union must be in the vocabulary.
std::vector<std::pair<std::uint64_t, Merge>> read_merges(const JsonPlace& place, const Vocabulary& vocabulary, const std::string& prefix) {
  std::vector<std::pair<std::uint64_t, Merge>> merges;
  place.expect_array();
  merges.reserve(place.size());
  const auto id_of = [&](const std::string& token, std::size_t index) {
    const auto found = vocabulary.find(token);
    if (found == vocabulary.end()) place.element(index).refuse(fmt::format("needs the token '{}', which is not in the vocabulary", token));
    return found->second;
  };
  std::size_t i = 0;
  for (const nlohmann::json& entry : place.json()) {
    std::string left, right;
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      left = entry[0].get<std::string>();
      right = entry[1].get<std::string>();
    } else {
      if (!entry.is_string()) place.element(i).refuse("must be two tokens");
      const auto& line = entry.get_ref<const std::string&>();
      if (line.starts_with("#version")) {
        ++i;
        continue;
      }
      const std::size_t space = line.find(' ');
      if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
        place.element(i).refuse("must be two tokens with a space between them");
      left = line.substr(0, space);
      right = line.substr(space + 1);
    }
    if (right.size() < prefix.size()) place.element(i).refuse("is shorter than continuing_subword_prefix");
    const std::uint64_t key = MergeTable::key(id_of(left, i), id_of(right, i));
    merges.push_back({key, {static_cast<std::uint32_t>(merges.size()), id_of(left + right.substr(prefix.size()), i)}});
    ++i;
  }
  return merges;
}

Bpe read_model(const JsonPlace& place) {
  const std::string type = place.string_or("type", "BPE");
  if (type != "BPE") place.at("type").refuse(fmt::format("is '{}': only BPE is supported", type));
  if (place.number_or("dropout", 0, 0, 1) > 0) place.at("dropout").refuse("makes the ids random, which is not supported");
  BpeOptions options;
  if (const auto token = place.find("unk_token")) options.unknown_token = token->string();
  options.continuing_prefix = place.string_or("continuing_subword_prefix", "");
  options.end_suffix = place.string_or("end_of_word_suffix", "");
  options.fuse_unknown = place.boolean_or("fuse_unk", false);
  options.byte_fallback = place.boolean_or("byte_fallback", false);
  options.ignore_merges = place.boolean_or("ignore_merges", false);
  Vocabulary vocabulary = read_vocabulary(place.at("vocab"));
  if (options.unknown_token && !vocabulary.contains(*options.unknown_token))
    place.at("unk_token").refuse(fmt::format("'{}' is not in the vocabulary", *options.unknown_token));
  const auto merges = read_merges(place.at("merges"), vocabulary, options.continuing_prefix);
  return Bpe(std::move(vocabulary), merges, std::move(options));
}

std::vector<AddedToken> read_added_tokens(const JsonPlace& place) {
  std::vector<AddedToken> tokens;
  for (std::size_t i = 0; i < place.expect_array().size(); ++i) {
    const JsonPlace entry = place.element(i);
    AddedToken token;
    token.content = entry.at("content").string();
    token.id = static_cast<std::int32_t>(entry.at("id").integer(0, max_id));
    token.special = entry.boolean_or("special", false);
    token.single_word = entry.boolean_or("single_word", false);
    token.lstrip = entry.boolean_or("lstrip", false);
    token.rstrip = entry.boolean_or("rstrip", false);
    token.normalized = entry.boolean_or("normalized", !token.special);
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

// Ids are given as Hugging Face gives them: the model's where it knows the token, and the next free one otherwise; the
// file's own number should be the same.
void add_tokens(Pipeline& pipeline, std::vector<AddedToken> tokens, const std::string& file) {
  const auto& vocabulary = pipeline.model.vocabulary();
  auto next = static_cast<std::int32_t>(vocabulary.size());
  std::map<std::int32_t, AddedToken> by_id;
  std::unordered_map<std::string, bool> special;
  for (AddedToken& token : tokens) {
    const auto known = pipeline.added_ids.find(token.content);
    const auto model = vocabulary.find(token.content);
    const std::int32_t declared = token.id;
    token.id = known != pipeline.added_ids.end() ? known->second : model != vocabulary.end() ? model->second : next++;
    if (token.id != declared)
      log::warning(fmt::format("{}: the added token '{}' says id {} and gets {}", file, token.content, declared, token.id));
    pipeline.added_ids[token.content] = token.id;
    if (token.special) special[token.content] = true;
    by_id[token.id] = token;
  }
  for (const auto& [token, id] : vocabulary) pipeline.tokens[id] = {token, token, false};
  for (const auto& [id, token] : by_id) {
    std::string decoded = token.content;
    bool ignored = true;
    if (token.normalized) pipeline.normalize(decoded, ignored);
    if (decoded.empty())  // Hugging Face's would match between all characters
      throw FileError(fmt::format(
          "{}: the added token '{}' is normalized to nothing, which is not supported; set its 'normalized' to false", file, token.content));
    (token.normalized ? pipeline.normalized_tokens : pipeline.raw_tokens).add(decoded, token);
    pipeline.tokens[id] = {token.content, decoded, false};
  }
  for (auto& [id, shown] : pipeline.tokens) {
    shown.special = special.contains(shown.decoded);
    pipeline.largest_id = std::max(pipeline.largest_id, id);
  }
}

}  // namespace

Pipeline read_pipeline(const JsonPlace& file) {
  static const nlohmann::json nothing;
  file.expect_object();
  const auto part = [&](const char* key) { return file.find(key).value_or(JsonPlace(nothing, file.file(), key)); };
  if (const auto version = file.find("version"); version && version->string() != "1.0")
    version->refuse(fmt::format("is '{}': 1.0 is known", version->string()));
  Pipeline pipeline;
  pipeline.normalizers = read_normalizers(part("normalizer"));
  pipeline.pre_tokenizers = read_pre_tokenizers(part("pre_tokenizer"));
  pipeline.model = read_model(file.at("model"));
  pipeline.post_processors = read_post_processors(part("post_processor"));
  pipeline.decoders = read_decoders(part("decoder"));
  std::vector<AddedToken> tokens;
  for (const char* key : {"truncation", "padding"})
    if (file.find(key)) log::warning(fmt::format("{}: {} is passed over, as transformers does unless asked for it", file.file(), key));
  if (const auto list = file.find("added_tokens")) tokens = read_added_tokens(*list);
  add_tokens(pipeline, std::move(tokens), file.file());
  return pipeline;
}

}  // namespace ppengine::models::tokenizer
