// Byte-pair encoding with a heap of candidate merges over a linked list of symbols.
#include <ppengine/models/tokenizer/detail/bpe.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/models/tokenizer/detail/byte_level.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

std::uint64_t spread(std::uint64_t key) { return (key * 0x9e3779b97f4a7c15ull) >> 20; }

void add(Bpe::Scratch& scratch, std::int32_t id) {
  auto& symbols = scratch.symbols;
  const auto at = static_cast<std::int32_t>(symbols.size());
  if (at > 0) symbols.back().next = at;
  symbols.push_back({id, at - 1, -1, false});
}

}  // namespace

void MergeTable::build(const std::vector<std::pair<std::uint64_t, Merge>>& merges) {
  slots_.assign(std::bit_ceil(merges.size() * 2 + 1), {});
  mask_ = slots_.size() - 1;
  for (const auto& [key, merge] : merges) {
    std::uint64_t at = spread(key) & mask_;
    while (slots_[at].key != empty && slots_[at].key != key) at = (at + 1) & mask_;
    slots_[at] = {key, merge};
  }
}

const Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t wanted = key(left, right);
  for (std::uint64_t at = spread(wanted) & mask_; slots_[at].key != empty; at = (at + 1) & mask_)
    if (slots_[at].key == wanted) return &slots_[at].merge;
  return nullptr;
}

Bpe::Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::uint64_t, Merge>>& merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  merges_.build(merges);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(static_cast<unsigned char>(byte));
    byte_ids_[byte] = find(byte_alphabet.encode({&c, 1})).value_or(-1);
    fallback_ids_[byte] = find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  // Prefixes and suffixes change the characters' names: the short way over bytes does not know them.
  if (!options_.continuing_prefix.empty() || !options_.end_suffix.empty()) byte_ids_.fill(-1);
}

std::optional<std::int32_t> Bpe::find(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
}

void Bpe::encode(std::string_view piece, bool bytes, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (piece.empty()) return;
  scratch.symbols.clear();
  if (bytes) {
    const bool known = std::all_of(piece.begin(), piece.end(), [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; });
    if (!known || options_.ignore_merges) {
      const std::string text = byte_alphabet.encode(piece);
      if (!known) return encode(text, false, scratch, ids);
      if (const auto id = find(text)) return ids.push_back(*id);
    }
    for (char c : piece) add(scratch, byte_ids_[static_cast<unsigned char>(c)]);
  } else {
    if (options_.ignore_merges)
      if (const auto id = find(piece)) return ids.push_back(*id);
    characters(piece, scratch);
  }
  merge(scratch);
  for (const auto& symbol : scratch.symbols)
    if (!symbol.gone) ids.push_back(symbol.id);
}

void Bpe::characters(std::string_view piece, Scratch& scratch) const {
  std::int32_t unknown = -1;  // waits for the next known character, so that neighbours can be fused; -1: none waits
  std::string token;
  for (std::size_t at = 0; at < piece.size();) {
    const auto length = static_cast<std::size_t>(code_point_at(piece, at).length);
    token.clear();
    if (at > 0) token += options_.continuing_prefix;
    token += piece.substr(at, length);
    at += length;
    if (at == piece.size()) token += options_.end_suffix;

    if (const auto id = find(token)) {
      if (unknown >= 0) add(scratch, unknown);
      unknown = -1;
      add(scratch, *id);
      continue;
    }
    if (options_.byte_fallback &&
        std::all_of(token.begin(), token.end(), [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)] >= 0; })) {
      for (char c : token) add(scratch, fallback_ids_[static_cast<unsigned char>(c)]);
      continue;
    }
    if (!options_.unknown_token) continue;  // a character that nothing stands for is left out
    if (unknown >= 0 && options_.fuse_unknown) continue;
    if (unknown >= 0) add(scratch, unknown);
    unknown = find(*options_.unknown_token).value_or(-1);
  }
  if (unknown >= 0) add(scratch, unknown);
}

void Bpe::merge(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto offer = [&](std::int32_t left) {
    const auto& symbol = symbols[static_cast<std::size_t>(left)];
    if (const Merge* found = merges_.find(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id)) {
      heap.push_back({found->rank, static_cast<std::uint32_t>(left), found->id});
      return true;
    }
    return false;
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) offer(static_cast<std::int32_t>(i));
  std::make_heap(heap.begin(), heap.end());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    auto& left = symbols[top.position];
    if (left.gone || left.next < 0) continue;
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    // The pair may have changed since; like the original, what counts is that it still makes the same token.
    const Merge* still = merges_.find(left.id, right.id);
    if (!still || still->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = static_cast<std::int32_t>(top.position);
    if (left.previous >= 0 && offer(left.previous)) std::push_heap(heap.begin(), heap.end());
    if (left.next >= 0 && offer(static_cast<std::int32_t>(top.position))) std::push_heap(heap.begin(), heap.end());
  }
}

}  // namespace ppengine::models::tokenizer
