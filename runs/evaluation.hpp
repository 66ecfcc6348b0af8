// Evaluation: the loss of a model over a data set, and its logits where they are asked for.
#pragma once

#include <functional>

#include <ppengine/engine/evaluator.hpp>
#include <ppengine/ops/kinds.hpp>
#include <ppengine/runs/training.hpp>

namespace ppengine::runs {

struct EvaluationResult {
  double loss_sum = 0;
  std::int64_t valid_tokens = 0;
  double loss() const { return valid_tokens > 0 ? loss_sum / double(valid_tokens) : 0.0; }
  double perplexity() const;
  // task:addition only: sums that training never shows, and how many of them the model answers right.
  std::int64_t sums = 0, right_sums = 0;
  std::string answer;  // to EvaluationOptions::ask: "23+58=81"
};

// Sequences of the source in order, each once. All ranks call it. limit 0: all of a file, 64 of made-up data.
EvaluationResult evaluate(const models::TokenSource& source, engine::Evaluator& evaluator, std::int64_t batch_size, std::int64_t limit = 0);

struct EvaluationOptions {
  std::string model;
  ProgramChoice program;
  std::string outputs;  // of a program: file for "output" [samples, ...]; empty: none
  std::string adapter;  // folder of a LoRA adapter; empty: none
  DataChoice data;
  engine::ParallelOptions parallel;
  ops::WeightStorage weights;   // how the linears' weights are stored
  bool cache_in_bytes = false;  // over keys and values as bytes, as generation with them
  std::int64_t sequences = 0;   // 0: all of a file, 64 of made-up data
  std::string logits;           // file for the tensor "logits" [sequences, length, vocabulary]; empty: none
  std::string ask;              // a sum for the model of the addition task to answer: "23+58"
  std::function<void(std::int64_t done, std::int64_t of)> progress;  // sequences, on rank 0
};

// From a model folder or preset; all ranks call it, all get the result.
EvaluationResult run_evaluation(const EvaluationOptions& options, comm::Communicator& world);

// The token source that a choice names, with the length that the model or the file gives.
std::unique_ptr<models::TokenSource> open_source(const models::ModelSource& model, const DataChoice& choice);

}  // namespace ppengine::runs
