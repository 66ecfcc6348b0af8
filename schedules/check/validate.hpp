// Every rule a plan must keep, checked on every plan before it runs, made or loaded.
#pragma once

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// Throws PlanError naming rank, column and action at the first broken rule:
//  1. sane numbers; a row for every rank and a stage on every rank; every stage run by exactly one rank
//  2. the format: compute_only has no messages, compute_comms no idle cells
//  3. every action once, microbatches in range, F before B or I before W, not both B and I for a pair
//  4. m forwards and m backwards (or none at all: inference) for every stage
//  5. SEND and RECV pair, each at the right place: after its producer, before its consumer, only between ranks
//  6. stages are unsharded and reduced in a sensible order where that is in the plan at all
//  7. the order across ranks: nothing waits in a circle
void validate(const Plan& plan);

}  // namespace ppengine::schedules
