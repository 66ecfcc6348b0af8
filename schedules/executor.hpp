// Walks one rank's lowered plan and drives what carries the actions out. Knows nothing of devices: the engine
// implements ActionHandler, tests fake it.
#pragma once

#include <string>

#include <ppengine/base/error.hpp>
#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// What a rank can do. Calls come in plan order, on the calling thread; they may start work and return (the engine keeps
// its own events), as long as the result is there when a later action of the plan needs it.
class ActionHandler {
 public:
  virtual ~ActionHandler() = default;

  virtual void forward(StageId stage, int microbatch) = 0;
  virtual void backward(StageId stage, int microbatch) = 0;         // B: input and weight gradients
  virtual void backward_input(StageId stage, int microbatch) = 0;   // I
  virtual void backward_weight(StageId stage, int microbatch) = 0;  // W, after the I of the same pair

  // `peer` is the rank at the other end. A receive names the stage that gets the message.
  virtual void send_forward(StageId stage, int microbatch, int peer) = 0;
  virtual void recv_forward(StageId stage, int microbatch, int peer) = 0;
  virtual void send_backward(StageId stage, int microbatch, int peer) = 0;
  virtual void recv_backward(StageId stage, int microbatch, int peer) = 0;

  virtual void unshard(StageId stage) = 0;
  virtual void reshard(StageId stage) = 0;
  virtual void reduce_grad(StageId stage) = 0;

  // OVERLAP_F_B: both at once where the device can; one after the other is always right, and the default.
  virtual void overlap(const Action& forward_part, const Action& backward_part);
};

// Where the executor is: handed to the observer and part of every error.
struct Position {
  int rank = 0;
  std::size_t index = 0;  // of the first part in the rank's action list
  int column = 0;         // of the cell in the plan file
  const Action* cell = nullptr;
  std::string text() const { return cell_text(cell); }
};

// Called around every cell, for timelines and deadlines.
class ActionObserver {
 public:
  virtual ~ActionObserver() = default;
  virtual void begin(const Position& position) = 0;
  virtual void end(const Position& position) = 0;
};

// Runs one step: every action of `rank` once. What the handler throws comes out again with its type kept where it is
// one of ours (CommError, DeviceError, ...) and the text "rank 2, plan position 17, 2RECV_F5: ..." in front (Error::position). The plan
// must be lowered and valid; validate() it once where it comes from.
void execute(const Plan& plan, int rank, ActionHandler& handler, ActionObserver* observer = nullptr);

// The same error, with the place in the plan that this thread carries out; as it is outside of execute().
CommError with_position(const CommError& error);

}  // namespace ppengine::schedules
