// The bytes of a tokenizer's tokens, as a tree: tokens that begin alike are looked at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ppengine/models/tokenizer/tokenizer.hpp>

namespace ppengine::runs::constraint {

class TokenTrie {
 public:
  // In the order of a walk that goes down first.
  struct Node {
    unsigned char byte = 0;
    std::int32_t depth = 0;             // bytes before this one
    std::int32_t after = 0;             // the node behind all that begin like this one
    std::int32_t first = 0, count = 0;  // of the tokens that end here
  };

  explicit TokenTrie(const models::Tokenizer& tokenizer);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const std::int32_t> tokens(const Node& node) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(node.first), static_cast<std::size_t>(node.count));
  }
  std::int32_t longest() const { return longest_; }
  const std::string& bytes(std::int32_t token) const { return bytes_[static_cast<std::size_t>(token)]; }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::string> bytes_;  // by token; empty: a special token, or none
  std::vector<Node> nodes_;
  std::vector<std::int32_t> tokens_;
  std::int32_t longest_ = 0;
};

}  // namespace ppengine::runs::constraint
