// Tokens that a grammar allows.
#include <ppengine/runs/constraint/token_constraint.hpp>

#include <algorithm>
#include <limits>

namespace ppengine::runs::constraint {
namespace {

constexpr std::size_t most_known = 32;  // states whose tokens are kept: a string has few that come again and again

}  // namespace

TokenConstraint::TokenConstraint(const TokenTrie& tokens, const SchemaGrammar& grammar, std::vector<std::int32_t> end_ids,
                                 std::int64_t most_tokens)
    : tokens_(tokens),
      automaton_(grammar.grammar, grammar.root),
      end_ids_(std::move(end_ids)),
      left_(most_tokens),
      state_(automaton_.start()),
      path_(static_cast<std::size_t>(tokens_.longest()) + 1) {}

const TokenConstraint::Allowed& TokenConstraint::allowed_now() {
  if (const auto found = known_.find(state_); found != known_.end()) return found->second;
  if (known_.size() >= most_known) known_.clear();
  Allowed& allowed = known_[state_];
  path_[0] = state_;
  const auto nodes = tokens_.nodes();
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const auto depth = static_cast<std::size_t>(node.depth);
    const Automaton::State state = path_[depth + 1] = automaton_.next(path_[depth], node.byte);
    if (state == Automaton::dead) {
      i = static_cast<std::size_t>(node.after);
      continue;
    }
    for (const std::int32_t token : tokens_.tokens(node)) {
      allowed.tokens.push_back(token);
      allowed.distances.push_back(automaton_.distance(state));
      allowed.farthest = std::max(allowed.farthest, allowed.distances.back());
    }
    ++i;
  }
  return allowed;
}

void TokenConstraint::apply(std::span<float> logits) {
  const bool over = state_ == Automaton::dead;
  const Allowed none, &allowed = over ? none : allowed_now();
  const std::int64_t room = left_ - 1;  // tokens after this one
  const bool tight = !over && allowed.farthest > room && automaton_.distance(state_) <= left_;
  kept_.clear();
  std::vector<std::int32_t> ids;
  const auto keep = [&](std::int32_t id) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) return;
    ids.push_back(id);
    kept_.push_back(logits[static_cast<std::size_t>(id)]);
  };
  for (std::size_t i = 0; i < allowed.tokens.size(); ++i)
    if ((!tight || allowed.distances[i] <= room) && !ends(allowed.tokens[i])) keep(allowed.tokens[i]);
  if (over || automaton_.accepts(state_) || ids.empty())
    for (const std::int32_t id : end_ids_) keep(id);
  std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < ids.size(); ++i) logits[static_cast<std::size_t>(ids[i])] = kept_[i];
}

bool TokenConstraint::ends(std::int32_t token) const { return std::ranges::find(end_ids_, token) != end_ids_.end(); }

bool TokenConstraint::accept(std::int32_t token) {
  --left_;
  if (ends(token) || state_ == Automaton::dead || static_cast<std::size_t>(token) >= tokens_.size()) return true;
  for (const char byte : tokens_.bytes(token)) state_ = automaton_.next(state_, static_cast<unsigned char>(byte));
  return state_ == Automaton::dead || !automaton_.can_go_on(state_);
}

}  // namespace ppengine::runs::constraint
