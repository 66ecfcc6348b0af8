// Any bytes as a plan file: parsed, validated, and what is valid lowered, simulated and written again. Only our own
// errors may come out, and a valid plan must survive the round trip.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/simulate.hpp>

using namespace ppengine::schedules;

namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

void use(const Plan& plan) {
  expect(parse_csv(to_csv(plan), plan.microbatches) == plan);
  const Simulation simulation = simulate(plan);
  critical_path(plan, simulation, {});
  if (plan.lowered()) return;
  for (const bool defer : {false, true}) {
    const Plan lowered = lower(plan, {.defer_recv = defer});
    validate(lowered);
    simulate(lowered, {}, {.send = SendMode::rendezvous_unbatched});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first byte chooses between a given number of microbatches and the file's own.
  const int microbatches = size > 0 ? data[0] % 4 : 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + (size > 0 ? 1 : 0), size > 0 ? size - 1 : 0);
  try {
    const Plan plan = parse_csv(text, microbatches);
    validate(plan);
    use(plan);
  } catch (const PlanError&) {
    // What a broken file deserves.
  }
  return 0;
}
