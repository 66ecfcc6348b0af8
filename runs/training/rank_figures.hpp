// What every rank of a training run did and uses.
#pragma once

#include <ppengine/runs/training.hpp>

namespace ppengine::runs {

// Memory and idle time of all ranks, and the plan, for a result whose `last` is there. All ranks call it.
void gather_ranks(engine::Trainer& trainer, TrainingResult& result);

// With TrainingOptions::observe, after a step and on all ranks: these and the step's timelines, where the listener wants them.
void show_ranks(engine::Trainer& trainer, const TrainingOptions& options, const engine::StepResult& last, TrainingListener& listener);

}  // namespace ppengine::runs
