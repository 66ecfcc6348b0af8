// The executor: one rank's plan, action by action, with the position in every error.
#include <ppengine/schedules/executor.hpp>

#include <fmt/format.h>

#include <utility>

namespace ppengine::schedules {
namespace {

void perform(const Plan& plan, const Action& a, ActionHandler& handler) {
  const StageId stage(a.stage);
  const int microbatch = static_cast<int>(a.microbatch);
  switch (a.type) {
    case ActionType::idle:
      break;
    case ActionType::forward:
      handler.forward(stage, microbatch);
      break;
    case ActionType::backward:
      handler.backward(stage, microbatch);
      break;
    case ActionType::backward_input:
      handler.backward_input(stage, microbatch);
      break;
    case ActionType::backward_weight:
      handler.backward_weight(stage, microbatch);
      break;
    case ActionType::send_forward:
      handler.send_forward(stage, microbatch, plan.rank_of(peer_stage(a)));
      break;
    case ActionType::recv_forward:
      handler.recv_forward(stage, microbatch, plan.rank_of(peer_stage(a)));
      break;
    case ActionType::send_backward:
      handler.send_backward(stage, microbatch, plan.rank_of(peer_stage(a)));
      break;
    case ActionType::recv_backward:
      handler.recv_backward(stage, microbatch, plan.rank_of(peer_stage(a)));
      break;
    case ActionType::unshard:
      handler.unshard(stage);
      break;
    case ActionType::reshard:
      handler.reshard(stage);
      break;
    case ActionType::reduce_grad:
      handler.reduce_grad(stage);
      break;
  }
}

thread_local const Position* current = nullptr;

std::string text_of(const Position& at) { return fmt::format("rank {}, plan position {}, {}", at.rank, at.column, at.text()); }

class Current {
 public:
  explicit Current(const Position& at) : before_(std::exchange(current, &at)) {}
  ~Current() { current = before_; }
  Current(const Current&) = delete;

 private:
  const Position* const before_;
};

template <class SomeError>
[[noreturn]] void throw_at(const Position& at, SomeError error) {
  error.set_position(text_of(at));
  throw error;
}

[[noreturn]] void rethrow_with(const Position& at) {
  const std::string where = text_of(at) + ": ";
  try {
    throw;
  } catch (const CommError& e) {
    throw with_position(e);
  } catch (const DeviceError& e) {
    throw_at(at, DeviceError(where + e.what(), e.exit_code()));
  } catch (const ConfigError& e) {
    throw_at(at, ConfigError(where + e.what()));
  } catch (const FileError& e) {
    throw_at(at, FileError(where + e.what()));
  } catch (const Error& e) {
    throw_at(at, Error(where + e.what(), e.exit_code()));
  } catch (const std::exception& e) {
    throw_at(at, Error(where + e.what()));
  }
}

}  // namespace

CommError with_position(const CommError& error) {
  if (!current || !current->cell) return error;
  CommError placed(error.peer(), error.operation(), error.tag(), fmt::format("{} (at {})", error.reason(), text_of(*current)));
  placed.set_position(text_of(*current));
  return placed;
}

void ActionHandler::overlap(const Action& forward_part, const Action& backward_part) {
  forward(StageId(forward_part.stage), static_cast<int>(forward_part.microbatch));
  const int microbatch = static_cast<int>(backward_part.microbatch);
  if (backward_part.type == ActionType::backward)
    backward(StageId(backward_part.stage), microbatch);
  else
    backward_input(StageId(backward_part.stage), microbatch);
}

void execute(const Plan& plan, int rank, ActionHandler& handler, ActionObserver* observer) {
  if (!plan.lowered()) throw ConfigError("only a lowered plan can be executed: lower() it first");
  if (rank < 0 || rank >= plan.ranks) throw ConfigError(fmt::format("the plan has no rank {}", rank));
  const auto& actions = plan.of(rank);
  Position at{rank, 0, 0, nullptr};
  const Current here(at);
  try {
    for (; at.index < actions.size(); ++at.column) {
      at.cell = &actions[at.index];
      if (observer) observer->begin(at);
      if (at.cell->joined)
        handler.overlap(at.cell[0], at.cell[1]);
      else
        perform(plan, *at.cell, handler);
      if (observer) observer->end(at);
      at.index += at.cell->joined ? 2 : 1;
    }
  } catch (...) {
    rethrow_with(at);
  }
}

}  // namespace ppengine::schedules
