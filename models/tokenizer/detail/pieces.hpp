// A text on its way to tokens: pieces that pre-tokenizers cut and rewrite.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ppengine/models/tokenizer/detail/regex.hpp>

namespace ppengine::models::tokenizer {

struct Piece {
  std::string_view text;
  std::int32_t token = -1;  // an added token that was found, or -1
  bool at_start = false;    // begins where the original text begins
};

struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> arena;  // texts that were rewritten; views into them stay valid

  std::string_view keep(std::string text) { return arena.emplace_back(std::move(text)); }
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// One cut of a text: a range, and whether the pattern matched it.
struct Cut {
  std::size_t begin;
  std::size_t end;
  bool matched;
};

// Cuts that cover the whole text, from the matches of a pattern in it.
void cuts_from_matches(std::string_view text, const std::vector<Match>& matches, std::vector<Cut>& cuts);

// Adds the pieces that a behavior makes of the cuts of one piece; empty ones are left out.
void add_split(const Piece& piece, std::vector<Cut>& cuts, SplitBehavior behavior, std::vector<Piece>& out);

// Replaces every piece that is no token by what `split` makes of it: split(piece, cuts) fills in the cuts.
template <typename Split>
void split_pieces(Pieces& pieces, SplitBehavior behavior, Split&& split) {
  std::vector<Piece> out;
  std::vector<Cut> cuts;
  out.reserve(pieces.list.size() * 2);
  for (const Piece& piece : pieces.list) {
    if (piece.token >= 0) {
      out.push_back(piece);
      continue;
    }
    cuts.clear();
    split(piece, cuts);
    add_split(piece, cuts, behavior, out);
  }
  pieces.list = std::move(out);
}

}  // namespace ppengine::models::tokenizer
