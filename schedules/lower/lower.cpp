// All lowering passes in order.
#include <ppengine/schedules/lower.hpp>

namespace ppengine::schedules {

Plan lower(Plan plan, const LowerOptions& options) {
  if (plan.lowered()) throw ConfigError("the plan has communication already: it cannot be lowered again");
  if (options.merge) plan = merge_backward(std::move(plan));
  if (options.unshard) plan = add_unshard(std::move(plan), options.max_active_stages);
  if (options.reduce_grad && !is_inference(plan)) plan = add_reduce_grad(std::move(plan));
  plan = add_send_recv(std::move(plan));
  if (options.defer_recv) plan = defer_recv(std::move(plan));
  return plan;
}

}  // namespace ppengine::schedules
