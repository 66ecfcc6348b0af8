// Which tokens may come next so that the text is what a grammar allows.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <ppengine/runs/constraint/automaton.hpp>
#include <ppengine/runs/constraint/json_schema.hpp>
#include <ppengine/runs/constraint/token_trie.hpp>
#include <ppengine/runs/sampler.hpp>

namespace ppengine::runs::constraint {

class TokenConstraint final : public LogitMask {
 public:
  // most_tokens: that may be generated. Where the shortest text fits into them the text is finished before they are used up, as long as the
  // vocabulary has all single bytes.
  TokenConstraint(const TokenTrie& tokens, const SchemaGrammar& grammar, std::vector<std::int32_t> end_ids, std::int64_t most_tokens);

  void apply(std::span<float> logits) override;
  // What was chosen; true where the text is complete and nothing can follow.
  bool accept(std::int32_t token);

 private:
  struct Allowed {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> distances;  // from there to an end
    std::int64_t farthest = 0;
  };
  const Allowed& allowed_now();
  bool ends(std::int32_t token) const;  // such a token is no part of the text, whatever its bytes are

  const TokenTrie& tokens_;
  Automaton automaton_;
  std::vector<std::int32_t> end_ids_;
  std::int64_t left_;
  Automaton::State state_;
  std::unordered_map<Automaton::State, Allowed> known_;
  std::vector<Automaton::State> path_;
  std::vector<float> kept_;
};

}  // namespace ppengine::runs::constraint
