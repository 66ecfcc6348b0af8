// A stage at run time: compiled for the shapes that its microbatches have, the blocks of memory that they use, and what is in flight on it.
// Pipeline, and through it Trainer, Evaluator and Decoder, has one per stage of the rank.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/stage/block_pool.hpp>
#include <ppengine/engine/stage/compiled_stage.hpp>
#include <ppengine/engine/stage/plan_memory.hpp>

namespace ppengine::engine {

// What of the graph's output a forward gives: nothing, the rows of all tokens, or one (Run::output_row).
enum class Output { none, all, one_row };

class StageRuntime {
 public:
  struct Options {
    CompileOptions compile;  // but batch, length and output: these are the microbatches'
    BlockCount blocks;       // that are in use at once, at most
  };
  StageRuntime(ModelRank& model, StageId id, const Options& options);

  StageId id() const { return id_; }
  const StageCut& cut() const { return cut_; }
  ParameterStore& parameters() const { return parameters_; }

  // Compiles for the microbatches' shapes where that has not happened yet, makes room for them, and begins with none in flight. What is in
  // the cache stays.
  void prepare(std::span<const MicrobatchRange> microbatches, std::int64_t length, Output output);
  std::size_t workspace_bytes() const;  // of the shape that needs most
  std::size_t block_bytes() const { return activations_.bytes() + gradients_.bytes(); }
  std::size_t cache_bytes() const { return cache_.bytes(); }

  const CompiledStage& shape(int microbatch) const { return *by_microbatch_[static_cast<std::size_t>(microbatch)]; }
  // Where an input of the model lies for a microbatch; null when the stage does not read it.
  std::byte* input(int microbatch, Value value) const;
  std::byte* positions(int microbatch) const;              // of a stage with a cache: Emitter::positions()
  const ops::Buffer& results() const { return results_; }  // a loss per microbatch

  // A microbatch's block of activations lives from its first message or forward until B or W (in inference: until its result is sent), its
  // block of gradients until the weights' are in and the input's is on its way.
  Block& begin_activations(int microbatch);
  Block& activations(int microbatch) { return activations_.at(flight(microbatch).activations); }
  void end_activations(int microbatch);
  Block& begin_gradients(int microbatch);
  Block& gradients(int microbatch) { return gradients_.at(flight(microbatch).gradients); }
  // Weight gradients of the microbatch are in: ends its activations, and its gradients unless they are still to be sent.
  void weights_done(int microbatch, bool sends_gradient);

  // Messages on their way in; the block's memory is the communicator's until they are there.
  comm::Pending& received_activation(int microbatch) { return flight(microbatch).received_activation; }
  comm::Pending& received_gradient(int microbatch) { return flight(microbatch).received_gradient; }
  // Messages on their way out: likewise.
  void activation_sent(int microbatch, comm::Pending message);
  void gradient_sent(int microbatch, comm::Pending message);

  int weight_gradients() const { return weight_gradients_; }  // microbatches whose weight gradients are in

  // A run of the microbatch: all that belongs to stage and microbatch is set; what belongs to the step is the caller's.
  Run start(int microbatch, ops::Stream& stream, const ops::Buffer& workspace);
  // Until all messages out are through; nothing is in flight then.
  void finish();

 private:
  // One microbatch, from its first message or forward to its last backward.
  struct InFlight {
    int activations = -1, gradients = -1;  // blocks
    comm::Pending received_activation, received_gradient, sent_activation, sent_gradient;
    bool activation_sent = false, gradient_sent = false;
    bool weights_done = false;  // B or W has run
  };
  struct Shape {
    std::int64_t sequences, length;  // of a microbatch
    Output output;
    auto operator<=>(const Shape&) const = default;
  };
  const CompiledStage& compiled(const Shape& shape);
  std::byte* inputs(int microbatch) const { return inputs_.at(static_cast<std::size_t>(microbatch) * input_stride_); }
  InFlight& flight(int microbatch) { return flights_[static_cast<std::size_t>(microbatch)]; }
  void end_gradients(InFlight& flight);

  ModelRank& model_;
  StageId id_;
  const StageCut& cut_;
  ParameterStore& parameters_;
  Options options_;
  std::map<Shape, std::unique_ptr<CompiledStage>> shapes_;
  std::vector<const CompiledStage*> by_microbatch_;
  BlockPool activations_, gradients_;
  ops::Buffer inputs_, results_, cache_;
  std::size_t input_stride_ = 0;
  std::vector<InFlight> flights_;
  int weight_gradients_ = 0;
};

}  // namespace ppengine::engine
