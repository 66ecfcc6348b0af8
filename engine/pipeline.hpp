// Pipeline: carries out one rank's part of a plan on its stages. The executor drives it action by action.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/gradients/gradient_sink.hpp>
#include <ppengine/engine/measure/recorder.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/stage/stage_runtime.hpp>
#include <ppengine/ops/device/host_memory.hpp>
#include <ppengine/schedules/executor.hpp>

namespace ppengine::engine {

struct PipelineOptions {
  CompileOptions compile = {};           // but what follows from model, plan and microbatches
  int spare_blocks = 0;                  // of activations: so many messages of one run may still be on their way in the next
  comm::Communicator* peers = nullptr;   // the ranks of the plan; may be null for one rank
  comm::Communicator* tensor = nullptr;  // the ranks that divide this rank's work with it; may be null for one
  comm::Communicator* data = nullptr;    // the data-parallel ranks, where ops measure over all of them (batch norm); null: they do not
};

// What changes from step to step.
struct StepInputs {
  const Batch* batch = nullptr;
  std::function<void(StageRuntime& stage, int microbatch)> fill = {};  // puts the inputs into a stage's memory, where there is no batch
  std::vector<MicrobatchRange> microbatches;                           // sequences of the batch, one per microbatch of the plan
  Output output = Output::none;                                        // of inference: see Pipeline::on_output
  std::int64_t output_row = 0;
  float loss_weight = 1.0f;
  std::uint64_t dropout_key = 0;
  bool accumulate = false;       // add to the gradients of an earlier step instead of starting anew
  GradientSink* sink = nullptr;  // null: this step's gradients are not complete yet
};

class Pipeline final : public schedules::ActionHandler {
 public:
  // The plan must be lowered; it is validated here. An inference plan compiles forward only.
  Pipeline(ModelRank& model, schedules::Plan plan, const PipelineOptions& options);
  ~Pipeline() override;

  // Compiles for the microbatches' shapes where that has not happened yet (primitives, memory).
  void prepare(const std::vector<MicrobatchRange>& microbatches, std::int64_t length, Output output = Output::none);
  // Runs the plan once. Blocks until this rank's work is done. What goes wrong ends the run for the ranks of the plan too: messages that
  // they wait for will not come, and this rank's memory may be gone soon.
  void run(const StepInputs& inputs, TimelineRecorder* recorder = nullptr);
  // Takes part in what the plan does with the data-parallel ranks, without data of its own: gathers sharded stages and, with a sink, gives
  // the gradients that are there, or zeros.
  void shadow(GradientSink* sink, bool zeros = true);

  // Sum of the losses of each microbatch's valid tokens, where this rank has the stage that computes it; empty elsewhere.
  const std::vector<double>& losses() const { return losses_; }
  // Called after the forward of a microbatch on the last rank that has the graph's output, with its memory on the device.
  std::function<void(int microbatch, const ops::Tensor& output, ops::Stream& stream)> on_output;

  // Measures every instruction from now on (slower); null: no more.
  void set_profile(Profile* profile) { profile_ = profile; }

  ops::Stream& stream() { return stream_; }
  const schedules::Plan& plan() const { return plan_; }
  // Bytes of activations and gradients blocks, by local stage: what the plan's count of live microbatches costs.
  std::size_t block_bytes() const;
  std::size_t cache_bytes() const;

  void forward(StageId stage, int microbatch) override;
  void backward(StageId stage, int microbatch) override;
  void backward_input(StageId stage, int microbatch) override;
  void backward_weight(StageId stage, int microbatch) override;
  void send_forward(StageId stage, int microbatch, int peer) override;
  void recv_forward(StageId stage, int microbatch, int peer) override;
  void send_backward(StageId stage, int microbatch, int peer) override;
  void recv_backward(StageId stage, int microbatch, int peer) override;
  void unshard(StageId stage) override;
  void reshard(StageId stage) override;
  void reduce_grad(StageId stage) override;
  void overlap(const schedules::Action& forward_part, const schedules::Action& backward_part) override;

 private:
  StageRuntime& at(StageId stage);
  bool is_here(StageId stage) const { return model_.cuts().contains(stage) && model_.has_stage(stage); }
  Run make_run(StageRuntime& stage, int microbatch, ops::Stream& stream);
  void carry_out(const StepInputs& inputs);
  void upload_inputs(const StepInputs& inputs);
  void upload(void* to, const ValueInfo& value, const Batch& batch, const MicrobatchRange& range);
  void begin_forward(StageRuntime& stage, int microbatch);
  void end_forward(StageRuntime& stage, int microbatch);
  void begin_backward(StageRuntime& stage, int microbatch);
  void end_input_gradient(StageRuntime& stage, int microbatch);
  void end_weight_gradient(StageRuntime& stage, int microbatch);
  void wait_for_message(comm::Pending& message);
  // What to do after each instruction of a program: null but in the stage's last weight gradient of the step.
  AfterInstruction watch(StageRuntime& stage, const std::vector<CompiledStage::Final>& finals, ops::Stream& stream);
  void end_gradients(StageId stage, GradientSink& sink);
  void finish_action();
  // Of the message that stage `to` receives.
  int tag(StageId to, int microbatch, bool backward) const;
  comm::Pending send(ops::Buffer& block, std::size_t bytes, bool kept, int peer, int tag);
  comm::Pending receive(ops::Buffer& block, std::size_t bytes, int peer, int tag);
  // From one stage of this rank to another.
  void pass_on(ops::Buffer& from, std::size_t bytes, bool kept, ops::Buffer& to);

  ModelRank& model_;
  schedules::Plan plan_;
  PipelineOptions options_;
  bool training_;
  std::vector<std::unique_ptr<StageRuntime>> stages_;
  ops::Buffer workspace_, second_workspace_, staging_;
  ops::HostMemory pinned_;                // what GPUs are given in this step, and give back
  const StepInputs* step_ = nullptr;      // null outside of run()
  TimelineRecorder* recorder_ = nullptr;  // likewise
  Profile* profile_ = nullptr;
  std::vector<double> losses_;
  // The second runs the backward of an overlapped pair. Last: their destructors wait for work that uses the memory above.
  ops::Stream stream_, second_;
};

}  // namespace ppengine::engine
