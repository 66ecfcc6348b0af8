// The tree of a tokenizer's tokens.
#include <ppengine/runs/constraint/token_trie.hpp>

#include <algorithm>

namespace ppengine::runs::constraint {

TokenTrie::TokenTrie(const models::Tokenizer& tokenizer) : bytes_(tokenizer.vocabulary_size()) {
  for (std::size_t id = 0; id < bytes_.size(); ++id) {
    bytes_[id] = tokenizer.bytes_of(static_cast<std::int32_t>(id));
    if (!bytes_[id].empty()) tokens_.push_back(static_cast<std::int32_t>(id));
  }
  std::ranges::stable_sort(tokens_, [&](std::int32_t a, std::int32_t b) { return bytes(a) < bytes(b); });
  std::vector<std::int32_t> open;  // nodes from the root to the last one
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back())
      nodes_[static_cast<std::size_t>(open.back())].after = static_cast<std::int32_t>(nodes_.size());
  };
  const std::string* before = nullptr;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = bytes(tokens_[i]);
    const std::size_t same = before ? static_cast<std::size_t>(std::ranges::mismatch(*before, text).in2 - text.begin()) : 0;
    close(same);
    for (std::size_t at = same; at < text.size(); ++at) {
      open.push_back(static_cast<std::int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<unsigned char>(text[at]), .depth = static_cast<std::int32_t>(at)});
    }
    Node& last = nodes_[static_cast<std::size_t>(open.back())];
    if (last.count++ == 0) last.first = static_cast<std::int32_t>(i);
    longest_ = std::max(longest_, static_cast<std::int32_t>(text.size()));
    before = &text;
  }
  close(0);
}

}  // namespace ppengine::runs::constraint
