// Byte-pair encoding of one piece of text, as Hugging Face's BPE model does it, merge for merge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ppengine::models::tokenizer {

struct BpeOptions {
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;  // before every character but a piece's first
  std::string end_suffix;         // after its last
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is in the vocabulary is one token
};

// The result of merging two tokens: rank orders the merges.
struct Merge {
  std::uint32_t rank;
  std::int32_t id;
};

// From a pair of ids to its merge: open addressing, since it is asked for every neighbouring pair.
class MergeTable {
 public:
  void build(const std::vector<std::pair<std::uint64_t, Merge>>& merges);  // a later entry of the same pair counts
  const Merge* find(std::int32_t left, std::int32_t right) const;
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

 private:
  struct Slot {
    std::uint64_t key = empty;
    Merge merge{};
  };
  static constexpr std::uint64_t empty = ~std::uint64_t(0);
  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
};

struct StringHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): what the library looks for
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

class Bpe {
 public:
  Bpe() = default;
  Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::uint64_t, Merge>>& merges, BpeOptions options);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Room that is used again from piece to piece; one per thread.
  struct Scratch {
    struct Symbol {
      std::int32_t id;
      std::int32_t previous, next;
      bool gone;
    };
    struct Candidate {
      std::uint32_t rank;
      std::uint32_t position;
      std::int32_t id;
      bool operator<(const Candidate& other) const {  // for a heap with the lowest rank, then the leftmost, on top
        return rank != other.rank ? rank > other.rank : position > other.position;
      }
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of a piece. Bytes: the piece stands for itself in GPT-2's alphabet.
  void encode(std::string_view piece, bool bytes, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  void characters(std::string_view piece, Scratch& scratch) const;
  void merge(Scratch& scratch) const;
  std::optional<std::int32_t> find(std::string_view token) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<std::int32_t, 256> byte_ids_{};      // of the alphabet's characters, or -1
  std::array<std::int32_t, 256> fallback_ids_{};  // of "<0x00>" and so on, or -1
};

}  // namespace ppengine::models::tokenizer
