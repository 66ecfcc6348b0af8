// Text through the whole pipeline and back.
#include <ppengine/models/tokenizer/detail/pipeline.hpp>

#include <ppengine/models/tokenizer/detail/byte_level.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {

void Pipeline::normalize(std::string& text, bool& at_start) const {
  for (const Normalizer& step : normalizers) step(text, at_start);
}

std::vector<std::int32_t> Pipeline::encode(std::string_view text, bool add_special_tokens) const {
  Pieces pieces;
  if (!is_valid_utf8(text)) text = pieces.keep(make_valid_utf8(text));

  std::vector<Piece> raw;
  raw_tokens.split({text, -1, true}, raw);
  for (Piece piece : raw) {
    if (piece.token >= 0) {
      pieces.list.push_back(piece);
      continue;
    }
    if (!normalizers.empty()) {
      std::string rewritten(piece.text);
      normalize(rewritten, piece.at_start);
      piece.text = pieces.keep(std::move(rewritten));
    }
    normalized_tokens.split(piece, pieces.list);
  }
  for (const PreTokenizer& step : pre_tokenizers.steps) step(pieces);

  // The same words come again and again: each is encoded once per text.
  struct Range {
    std::size_t begin, end;
  };
  std::unordered_map<std::string_view, Range> words;
  std::vector<std::int32_t> word_ids, ids;
  Bpe::Scratch scratch;
  for (const Piece& piece : pieces.list) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
      continue;
    }
    const auto [word, fresh] = words.try_emplace(piece.text);
    if (fresh) {
      word->second.begin = word_ids.size();
      model.encode(piece.text, pre_tokenizers.byte_level_last, scratch, word_ids);
      word->second.end = word_ids.size();
    }
    for (std::size_t i = word->second.begin; i < word->second.end; ++i) ids.push_back(word_ids[i]);
  }
  for (const PostProcessor& step : post_processors) ids = step(std::move(ids), add_special_tokens);
  return ids;
}

std::string Pipeline::bytes_of(const std::string& token) const {
  if (decoders.byte_level) {
    const auto decoded = byte_alphabet.decode(token);
    return decoded ? *decoded : token;
  }
  if (const int byte = decoders.byte_fallback ? byte_of(token) : -1; byte >= 0)
    return std::string(1, static_cast<char>(static_cast<unsigned char>(byte)));
  // Decoders may treat the first and the last token in another way.
  const std::string outside = "a";
  std::vector<std::string> shown{outside, token, outside};
  for (const Decoder& step : decoders.steps) step(shown);
  std::string text;
  for (const std::string& each : shown) text += each;
  return text.size() >= 2 * outside.size() ? text.substr(outside.size(), text.size() - 2 * outside.size()) : "";
}

std::string Pipeline::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> shown;
  for (std::int32_t id : ids) {
    const auto found = tokens.find(id);
    if (found != tokens.end() && !(skip_special_tokens && found->second.special)) shown.push_back(found->second.decoded);
  }
  for (const Decoder& step : decoders.steps) step(shown);
  std::string text;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (i > 0 && !decoders.present) text += ' ';
    text += shown[i];
  }
  return text;
}

}  // namespace ppengine::models::tokenizer
