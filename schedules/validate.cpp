// temporary
#include <ppengine/schedules/validate.hpp>
namespace ppengine::schedules {
void validate(const Plan&) {}
}  // namespace ppengine::schedules
