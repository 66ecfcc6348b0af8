// Pre-tokenizers of tokenizer.json.
#include <fmt/core.h>

#include <array>

#include <ppengine/models/tokenizer/detail/byte_level.hpp>
#include <ppengine/models/tokenizer/detail/steps.hpp>
#include <ppengine/models/tokenizer/detail/unicode.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

SplitBehavior read_behavior(const JsonPlace& place) {
  constexpr std::array<std::pair<const char*, SplitBehavior>, 5> names{{{"Removed", SplitBehavior::removed},
                                                                        {"Isolated", SplitBehavior::isolated},
                                                                        {"MergedWithPrevious", SplitBehavior::merged_with_previous},
                                                                        {"MergedWithNext", SplitBehavior::merged_with_next},
                                                                        {"Contiguous", SplitBehavior::contiguous}}};
  for (const auto& [name, behavior] : names)
    if (place.string() == name) return behavior;
  place.refuse(fmt::format("is '{}', which is not a behavior", place.string()));
}

PreTokenizer split_by_pattern(Regex pattern, SplitBehavior behavior, bool invert) {
  return [=](Pieces& pieces) {
    std::vector<Match> matches;
    split_pieces(pieces, behavior, [&](const Piece& piece, std::vector<Cut>& cuts) {
      pattern.find_all(piece.text, matches);
      cuts_from_matches(piece.text, matches, cuts);
      if (invert)
        for (Cut& cut : cuts) cut.matched = !cut.matched;
    });
  };
}

// Every character that the predicate accepts is a match of its own.
template <typename Predicate>
PreTokenizer split_by_character(Predicate predicate, SplitBehavior behavior) {
  return [=](Pieces& pieces) {
    split_pieces(pieces, behavior, [&](const Piece& piece, std::vector<Cut>& cuts) {
      std::size_t done = 0, at = 0;
      while (at < piece.text.size()) {
        const CodePoint c = code_point_at(piece.text, at);
        const std::size_t next = at + static_cast<std::size_t>(c.length);
        if (predicate(c.value)) {
          if (done < at) cuts.push_back({done, at, false});
          cuts.push_back({at, next, true});
          done = next;
        }
        at = next;
      }
      if (done < at) cuts.push_back({done, at, false});
    });
  };
}

// \w+|[^\w\s]+ of Rust's regex, everything else removed.
void split_words(Pieces& pieces) {
  split_pieces(pieces, SplitBehavior::removed, [](const Piece& piece, std::vector<Cut>& cuts) {
    const auto kind_of = [](char32_t c) { return is_word(c) ? 2 : is_whitespace(c) ? 0 : 1; };
    int kind = -1;
    for (std::size_t at = 0; at < piece.text.size();) {
      const CodePoint c = code_point_at(piece.text, at);
      const std::size_t next = at + static_cast<std::size_t>(c.length);
      if (const int here = kind_of(c.value); here != kind) {
        kind = here;
        cuts.push_back({at, next, kind == 0});
      } else {
        cuts.back().end = next;
      }
      at = next;
    }
  });
}

template <typename Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite&& rewrite) {
  for (Piece& piece : pieces.list)
    if (piece.token < 0) rewrite(piece);
}

void read_byte_level(const JsonPlace& place, std::vector<PreTokenizer>& steps) {
  if (place.boolean_or("add_prefix_space", true))
    steps.push_back([](Pieces& pieces) {
      rewrite_pieces(pieces, [&](Piece& piece) {
        if (piece.text.starts_with(' ')) return;
        std::string text(1, ' ');
        text += piece.text;
        piece.text = pieces.keep(std::move(text));
      });
    });
  if (place.boolean_or("use_regex", true)) steps.push_back(split_by_pattern(Regex(gpt2_pattern), SplitBehavior::isolated, false));
}

void encode_bytes(Pieces& pieces) {
  rewrite_pieces(pieces, [&](Piece& piece) { piece.text = pieces.keep(byte_alphabet.encode(piece.text)); });
}

void read_metaspace(const JsonPlace& place, std::vector<PreTokenizer>& steps) {
  const std::string mark = read_character(place.at("replacement"));
  std::string scheme = place.string_or("prepend_scheme", "always");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    place.at("prepend_scheme").refuse(fmt::format("is '{}': always, first or never is known", scheme));
  if (!place.boolean_or("add_prefix_space", true)) {
    if (!place.absent("prepend_scheme") && scheme != "never") place.at("add_prefix_space").refuse("contradicts prepend_scheme");
    scheme = "never";
  }
  steps.push_back([=](Pieces& pieces) {
    rewrite_pieces(pieces, [&](Piece& piece) {
      std::string text;
      text.reserve(piece.text.size() + 3);
      for (char c : piece.text) c == ' ' ? text += mark : text += c;
      const bool wanted = scheme == "always" || (scheme == "first" && piece.at_start);
      if (wanted && !text.starts_with(mark)) text.insert(0, mark);
      piece.text = pieces.keep(std::move(text));
    });
  });
  if (place.boolean_or("split", true)) steps.push_back(split_by_pattern(Regex::literal(mark), SplitBehavior::merged_with_next, false));
}

void read_fixed_length(const JsonPlace& place, std::vector<PreTokenizer>& steps) {
  const std::int64_t length = place.integer_or("length", 5, 1, 1 << 30);
  steps.push_back([=](Pieces& pieces) {
    split_pieces(pieces, SplitBehavior::isolated, [&](const Piece& piece, std::vector<Cut>& cuts) {
      std::int64_t count = 0;
      for (std::size_t at = 0; at < piece.text.size(); ++count) {
        const std::size_t next = at + static_cast<std::size_t>(code_point_at(piece.text, at).length);
        if (count % length == 0)
          cuts.push_back({at, next, true});
        else
          cuts.back().end = next;
        at = next;
      }
    });
  });
}

void read(const JsonPlace& place, PreTokenizers& out) {
  std::vector<PreTokenizer>& steps = out.steps;
  if (out.byte_level_last) {  // another step follows: it must see the alphabet's characters
    steps.push_back(encode_bytes);
    out.byte_level_last = false;
  }
  const JsonPlace type = place.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    const JsonPlace list = place.at("pretokenizers");
    for (std::size_t i = 0; i < list.expect_array().size(); ++i) read(list.element(i), out);
  } else if (name == "ByteLevel") {
    read_byte_level(place, steps);
    out.byte_level_last = true;
  } else if (name == "Split") {
    const SplitBehavior behavior = read_behavior(place.at("behavior"));
    steps.push_back(split_by_pattern(read_pattern(place.at("pattern")), behavior, place.boolean_or("invert", false)));
  } else if (name == "Metaspace") {
    read_metaspace(place, steps);
  } else if (name == "Digits") {
    const bool each = place.boolean_or("individual_digits", false);
    steps.push_back(split_by_character(is_numeric, each ? SplitBehavior::isolated : SplitBehavior::contiguous));
  } else if (name == "Punctuation") {
    const auto behavior = place.find("behavior");
    steps.push_back(split_by_character(is_punctuation, behavior ? read_behavior(*behavior) : SplitBehavior::isolated));
  } else if (name == "Whitespace") {
    steps.push_back(split_words);
  } else if (name == "WhitespaceSplit") {
    steps.push_back(split_by_character(is_whitespace, SplitBehavior::removed));
  } else if (name == "BertPreTokenizer") {
    steps.push_back(split_by_character(is_whitespace, SplitBehavior::removed));
    steps.push_back(split_by_character(is_punctuation, SplitBehavior::isolated));
  } else if (name == "CharDelimiterSplit" || name == "Delimiter") {
    steps.push_back(split_by_pattern(Regex::literal(read_character(place.at("delimiter"))), SplitBehavior::removed, false));
  } else if (name == "FixedLength") {
    read_fixed_length(place, steps);
  } else {
    type.refuse(fmt::format("is '{}', which is not supported", name));
  }
}

}  // namespace

PreTokenizers read_pre_tokenizers(const JsonPlace& place) {
  PreTokenizers out;
  if (!place.json().is_null()) read(place, out);
  return out;
}

}  // namespace ppengine::models::tokenizer
