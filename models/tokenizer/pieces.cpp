// How Hugging Face's split behaviors turn matches into pieces.
#include <ppengine/models/tokenizer/detail/pieces.hpp>

#include <algorithm>

namespace ppengine::models::tokenizer {
namespace {

// A match joins the neighbour before it, unless that is a match too.
void merge_with_previous(std::vector<Cut>& cuts) {
  std::vector<Cut> merged;
  bool previous = false;
  for (const Cut& cut : cuts) {
    if (cut.matched && !previous && !merged.empty())
      merged.back().end = cut.end;
    else
      merged.push_back(cut);
    previous = cut.matched;
  }
  cuts = std::move(merged);
}

void merge_with_next(std::vector<Cut>& cuts) {
  std::vector<Cut> merged;
  bool previous = false;
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (cut->matched && !previous && !merged.empty())
      merged.back().begin = cut->begin;
    else
      merged.push_back(*cut);
    previous = cut->matched;
  }
  std::reverse(merged.begin(), merged.end());
  cuts = std::move(merged);
}

void merge_equal(std::vector<Cut>& cuts) {
  std::vector<Cut> merged;
  bool previous = false;
  for (const Cut& cut : cuts) {
    if (cut.matched == previous && !merged.empty())
      merged.back().end = cut.end;
    else
      merged.push_back(cut);
    previous = cut.matched;
  }
  cuts = std::move(merged);
}

}  // namespace

void cuts_from_matches(std::string_view text, const std::vector<Match>& matches, std::vector<Cut>& cuts) {
  std::size_t done = 0;
  for (const Match& match : matches) {
    if (done != match.begin) cuts.push_back({done, match.begin, false});
    cuts.push_back({match.begin, match.end, true});
    done = match.end;
  }
  if (done != text.size()) cuts.push_back({done, text.size(), false});
}

void add_split(const Piece& piece, std::vector<Cut>& cuts, SplitBehavior behavior, std::vector<Piece>& out) {
  switch (behavior) {
    case SplitBehavior::removed:
      std::erase_if(cuts, [](const Cut& cut) { return cut.matched; });
      break;
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::merged_with_previous:
      merge_with_previous(cuts);
      break;
    case SplitBehavior::merged_with_next:
      merge_with_next(cuts);
      break;
    case SplitBehavior::contiguous:
      merge_equal(cuts);
      break;
  }
  for (const Cut& cut : cuts)
    if (cut.begin < cut.end) out.push_back({piece.text.substr(cut.begin, cut.end - cut.begin), -1, piece.at_start && cut.begin == 0});
}

}  // namespace ppengine::models::tokenizer
