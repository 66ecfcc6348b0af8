// Validation: each numbered function is one group of rules from the header.
#include <ppengine/schedules/check/validate.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <ppengine/schedules/check/order_check.hpp>

namespace ppengine::schedules {
namespace {

// One bit per type in the byte of a pair of stage and microbatch.
std::uint8_t bit(ActionType t) { return static_cast<std::uint8_t>(1U << (static_cast<int>(t) - 1)); }
constexpr auto F = ActionType::forward, B = ActionType::backward, I = ActionType::backward_input, W = ActionType::backward_weight;

class Validator {
 public:
  explicit Validator(const Plan& plan) : plan_(plan) {}

  void run() {
    check_shape();
    seen_.assign(static_cast<std::size_t>(plan_.stages) * static_cast<std::size_t>(plan_.microbatches), 0);
    stage_.assign(static_cast<std::size_t>(plan_.stages), {});
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto& row = plan_.of(rank);
      for (std::size_t i = 0; i < row.size(); ++i) check_action(rank, i, row[i]);
    }
    check_counts();
    if (plan_.lowered()) check_pairs();
    check_order_across_ranks(plan_);
  }

 private:
  struct StageState {
    bool unsharded = false, ever_unsharded = false, reduced = false;
    int weights = 0;
  };

  // 1. Numbers, rows and placement.
  void check_shape() const {
    if (plan_.ranks < 1 || plan_.ranks > max_ranks || plan_.stages < 1 || plan_.stages > max_stages)
      throw PlanError(
          fmt::format("a plan has 1 to {} ranks and 1 to {} stages, not {} and {}", max_ranks, max_stages, plan_.ranks, plan_.stages));
    if (plan_.microbatches < 1 || plan_.microbatches > max_microbatches)
      throw PlanError(fmt::format("microbatches must be 1 to {}, not {}", max_microbatches, plan_.microbatches));
    if (static_cast<int>(plan_.actions.size()) != plan_.ranks)
      throw PlanError(fmt::format("{} ranks, but {} rows; give a row for every rank", plan_.ranks, plan_.actions.size()));
    // A complete plan has at least one action per pair: more pairs than actions cannot be right, and may be a huge
    // number.
    std::int64_t actions = 0;
    for (const auto& row : plan_.actions) actions += static_cast<std::int64_t>(row.size());
    if (std::int64_t{plan_.stages} * plan_.microbatches > actions)
      throw PlanError(
          missing_stage_or(fmt::format("{} stages x {} microbatches need at least as many forwards, but the plan "
                                       "has only {} actions; is the number of microbatches right?",
                                       plan_.stages, plan_.microbatches, actions)));
    if (const auto text = missing_stage_or(""); !text.empty()) throw PlanError(text);
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto& row = plan_.of(rank);
      if (std::all_of(row.begin(), row.end(), [](const Action& a) { return a.type == ActionType::idle; }))
        throw PlanError(fmt::format("rank {} runs no stage: its row has no actions; give every rank a row", rank));
    }
  }
  std::string missing_stage_or(const std::string& otherwise) const {
    if (static_cast<int>(plan_.stage_rank.size()) != plan_.stages) return "the placement does not name every stage's rank";
    for (int s = 0; s < plan_.stages; ++s)
      if (plan_.rank_of(s) < 0 || plan_.rank_of(s) >= plan_.ranks)
        return fmt::format("stage {} of {} is run by no rank; add its actions to a row", s, plan_.stages);
    return otherwise;
  }

  std::uint8_t& seen(int stage, std::uint32_t microbatch) {
    return seen_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(plan_.microbatches) + microbatch];
  }
  bool on_other_rank(int stage, int neighbour) const { return plan_.rank_of(neighbour) != plan_.rank_of(stage); }

  // 2. The format, the stage's rank, the microbatch's range; then the rules of the type.
  void check_action(int rank, std::size_t i, const Action& a) {
    if (a.type == ActionType::idle) {
      if (plan_.lowered()) reject(plan_, rank, i, "a plan with communication has no idle cells; remove it");
      return;
    }
    if (a.joined && (i + 1 == plan_.of(rank).size() || a.type != F || !gives_input_gradient(plan_.of(rank)[i + 1].type) ||
                     plan_.of(rank)[i + 1].joined))
      throw PlanError(fmt::format("rank {}: {} is joined to no backward after it", rank, to_text(a)));
    if (!is_compute(a.type) && !plan_.lowered()) reject(plan_, rank, i, "a compute_only plan has no communication");
    if (a.stage >= plan_.stages) reject(plan_, rank, i, fmt::format("the plan has {} stages", plan_.stages));
    if (plan_.rank_of(a.stage) != rank)
      reject(plan_, rank, i,
             fmt::format("stage {} is run by rank {} already; a stage belongs to one rank", a.stage, plan_.rank_of(a.stage)));
    if (!has_microbatch(a.type)) return check_stage_action(rank, i, a);
    if (a.microbatch >= static_cast<std::uint32_t>(plan_.microbatches))
      reject(plan_, rank, i, fmt::format("microbatch {} is out of range, there are {}", a.microbatch, plan_.microbatches));
    std::uint8_t& done = seen(a.stage, a.microbatch);
    if (done & bit(a.type)) reject(plan_, rank, i, "the same action stands in this row before; remove one");
    if (is_compute(a.type))
      check_compute(rank, i, a, done);
    else
      check_message(rank, i, a, done);
    done |= bit(a.type);
  }

  // 3. F before B or I before W; not both B and I. In a lowered plan the input was received.
  void check_compute(int rank, std::size_t i, const Action& a, std::uint8_t done) {
    auto need = [&](ActionType t) {
      const bool same_cell = i > 0 && plan_.of(rank)[i - 1].joined && plan_.of(rank)[i - 1].type == t &&
                             plan_.of(rank)[i - 1].stage == a.stage && plan_.of(rank)[i - 1].microbatch == a.microbatch;
      if (!(done & bit(t)) || same_cell)
        reject(plan_, rank, i, fmt::format("needs {}{}{} earlier in this row", a.stage, type_name(t), a.microbatch));
    };
    if (a.type == B || a.type == I) {
      need(F);
      if (done & bit(a.type == B ? I : B))
        reject(plan_, rank, i, fmt::format("stage {} has both B and I for microbatch {}; keep B, or I with W", a.stage, a.microbatch));
    }
    if (a.type == W) need(I);
    if (plan_.lowered()) {
      if (a.type == F && a.stage > 0 && on_other_rank(a.stage, a.stage - 1)) need(ActionType::recv_forward);
      if ((a.type == B || a.type == I) && a.stage + 1 < plan_.stages && on_other_rank(a.stage, a.stage + 1))
        need(ActionType::recv_backward);
    }
    StageState& stage = stage_[a.stage];
    if (stage.ever_unsharded && !stage.unsharded)
      reject(plan_, rank, i, fmt::format("stage {} is resharded here; put {}UNSHARD before it", a.stage, a.stage));
    if (stage.reduced && a.type != F)
      reject(plan_, rank, i, fmt::format("stage {}'s gradients are reduced already; REDUCE_GRAD comes last", a.stage));
    if (gives_weight_gradient(a.type)) ++stage.weights;
  }

  // 5a. A message has a peer on another rank, and leaves after what it carries was made.
  void check_message(int rank, std::size_t i, const Action& a, std::uint8_t done) const {
    const int peer = peer_stage(a);
    if (peer < 0 || peer >= plan_.stages) reject(plan_, rank, i, fmt::format("there is no stage {}", peer));
    if (!on_other_rank(a.stage, peer))
      reject(plan_, rank, i, fmt::format("stages {} and {} are on the same rank: no message between them", a.stage, peer));
    if (a.type == ActionType::send_forward && !(done & bit(F)))
      reject(plan_, rank, i, fmt::format("needs {}F{} earlier in this row", a.stage, a.microbatch));
    if (a.type == ActionType::send_backward && !(done & (bit(B) | bit(I))))
      reject(plan_, rank, i, fmt::format("needs {}B{} or {}I{} earlier in this row", a.stage, a.microbatch, a.stage, a.microbatch));
  }

  // 6. UNSHARD, RESHARD and REDUCE_GRAD.
  void check_stage_action(int rank, std::size_t i, const Action& a) {
    StageState& stage = stage_[a.stage];
    if (a.type == ActionType::unshard) {
      if (stage.unsharded) reject(plan_, rank, i, fmt::format("stage {} is unsharded already", a.stage));
      stage.unsharded = stage.ever_unsharded = true;
    } else if (a.type == ActionType::reshard) {
      if (!stage.unsharded) reject(plan_, rank, i, fmt::format("stage {} is not unsharded here", a.stage));
      stage.unsharded = false;
    } else {
      if (stage.reduced) reject(plan_, rank, i, "the same action stands in this row before; remove one");
      if (stage.weights != plan_.microbatches)
        reject(plan_, rank, i,
               fmt::format("only {} of stage {}'s {} backwards are done here; it comes after the last", stage.weights, a.stage,
                           plan_.microbatches));
      stage.reduced = true;
    }
  }

  // 4. Everything is there.
  void check_counts() {
    const bool inference = is_inference(plan_);
    const bool reduces = std::any_of(stage_.begin(), stage_.end(), [](const StageState& s) { return s.reduced; });
    for (int s = 0; s < plan_.stages; ++s) {
      for (int mb = 0; mb < plan_.microbatches; ++mb) {
        const std::uint8_t done = seen(s, static_cast<std::uint32_t>(mb));
        if (!(done & bit(F))) missing(s, fmt::format("{}F{}", s, mb));
        if (inference) continue;
        if (!(done & (bit(B) | bit(I)))) missing(s, fmt::format("{}B{} (or {}I{} and {}W{})", s, mb, s, mb, s, mb));
        if ((done & bit(I)) && !(done & bit(W))) missing(s, fmt::format("{}W{}", s, mb));
      }
      if (reduces && !stage_[static_cast<std::size_t>(s)].reduced) missing(s, fmt::format("{}REDUCE_GRAD", s));
    }
  }
  [[noreturn]] void missing(int stage, const std::string& what) const {
    throw PlanError(fmt::format("rank {}: {} is missing from its row; every stage needs one forward and one backward of every microbatch",
                                plan_.rank_of(stage), what));
  }

  // 5b. Every SEND has its RECV and the other way round.
  void check_pairs() {
    for (int s = 0; s + 1 < plan_.stages; ++s) {
      for (std::uint32_t mb = 0; mb < static_cast<std::uint32_t>(plan_.microbatches); ++mb) {
        check_pair(s, ActionType::send_forward, s + 1, ActionType::recv_forward, mb);
        check_pair(s + 1, ActionType::send_backward, s, ActionType::recv_backward, mb);
      }
    }
  }
  void check_pair(int from, ActionType send, int to, ActionType recv, std::uint32_t mb) {
    const bool sent = seen(from, mb) & bit(send), received = seen(to, mb) & bit(recv);
    if (sent == received) return;
    const Action present = make_action(sent ? from : to, sent ? send : recv, static_cast<int>(mb));
    const int rank = plan_.rank_of(present.stage);
    const auto& row = plan_.of(rank);
    const auto index = static_cast<std::size_t>(std::find(row.begin(), row.end(), present) - row.begin());
    reject(plan_, rank, index,
           fmt::format("has no {}{}{} on rank {}: every SEND needs its RECV", sent ? to : from, type_name(sent ? recv : send), mb,
                       plan_.rank_of(sent ? to : from)));
  }

  const Plan& plan_;
  std::vector<std::uint8_t> seen_;
  std::vector<StageState> stage_;
};

}  // namespace

void validate(const Plan& plan) { Validator(plan).run(); }

}  // namespace ppengine::schedules
