// Finding added tokens with a trie, and what single_word, lstrip and rstrip mean for a match.
#include <ppengine/models/tokenizer/detail/added_tokens.hpp>

#include <algorithm>

#include <ppengine/models/tokenizer/detail/unicode.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {

void TokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  std::uint32_t node = 0;
  for (char c : pattern) {
    const auto [place, fresh] = nodes_[node].next.try_emplace(static_cast<unsigned char>(c), static_cast<std::uint32_t>(nodes_.size()));
    node = place->second;
    if (fresh) nodes_.emplace_back();
  }
  begins_[static_cast<unsigned char>(pattern.front())] = true;
  if (nodes_[node].token >= 0) return;  // two tokens of the same normalized form: the first stays
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

void TokenMatcher::split(const Piece& piece, std::vector<Piece>& out) const {
  const std::string_view text = piece.text;
  const auto part = [&](std::size_t begin, std::size_t end, std::int32_t token) {
    if (begin < end) out.push_back({text.substr(begin, end - begin), token, piece.at_start && begin == 0});
  };
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (tokens_.empty()) break;
    std::size_t longest = 0;
    std::int32_t found = -1;
    if (begins_[static_cast<unsigned char>(text[at])]) {
      std::uint32_t node = 0;
      for (std::size_t i = at; i < text.size(); ++i) {
        const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[i]));
        if (next == nodes_[node].next.end()) break;
        node = next->second;
        if (nodes_[node].token >= 0) found = nodes_[node].token, longest = i + 1 - at;
      }
    }
    if (found < 0) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + longest;
    at = end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    if (token.single_word &&
        ((begin > 0 && is_word(code_point_before(text, begin).value)) || (end < text.size() && is_word(code_point_at(text, end).value))))
      continue;
    if (token.lstrip) {
      while (begin > 0 && is_whitespace(code_point_before(text, begin).value))
        begin -= static_cast<std::size_t>(code_point_before(text, begin).length);
      begin = std::max(begin, done);
    }
    if (token.rstrip)
      while (end < text.size() && is_whitespace(code_point_at(text, end).value))
        end += static_cast<std::size_t>(code_point_at(text, end).length);
    part(done, begin, -1);
    part(begin, end, token.id);
    done = end;
  }
  part(done, text.size(), -1);
}

}  // namespace ppengine::models::tokenizer
