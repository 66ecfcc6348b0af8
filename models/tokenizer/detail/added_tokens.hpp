// Added tokens: found in the text before anything else is done to it, or after normalization.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ppengine/models/tokenizer/detail/pieces.hpp>

namespace ppengine::models::tokenizer {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = true;
  bool special = false;
};

// Finds tokens in a text, the leftmost and of these the longest, and cuts the text there.
class TokenMatcher {
 public:
  void add(std::string_view pattern, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  // Appends the pieces of one piece.
  void split(const Piece& piece, std::vector<Piece>& out) const;

 private:
  struct Node {
    std::unordered_map<unsigned char, std::uint32_t> next;
    std::int32_t token = -1;  // index into tokens_
  };
  std::vector<Node> nodes_{1};
  std::vector<AddedToken> tokens_;
  bool begins_[256] = {};
};

}  // namespace ppengine::models::tokenizer
