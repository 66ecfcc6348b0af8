// Evaluation over a cache of keys and values, as generation computes it.
#include <ppengine/runs/cached_evaluation.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/mesh.hpp>
#include <ppengine/engine/decoder.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/runs/generation.hpp>
#include <ppengine/runs/program.hpp>

namespace ppengine::runs {
namespace {

constexpr std::int64_t chunk = 128;             // tokens that go in at once
constexpr std::int64_t made_up_sequences = 64;  // as evaluation without a cache reads of data that has no end

double cross_entropy(std::span<const float> logits, std::int32_t target) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - largest);
  return largest + std::log(sum) - logits[static_cast<std::size_t>(target)];
}

void check_options(const EvaluationOptions& options) {
  if (models::Program::is_program(options.model)) throw ConfigError("--cache-type: a program has no cache of keys and values");
  if (options.parallel.data != 1) throw ConfigError("--cache-type: with a cache there is one copy of the model; leave --dp out");
  if (options.data.pack) throw ConfigError("--cache-type: a cache holds one document; leave --pack out");
  if (!options.logits.empty() || !options.outputs.empty() || !options.ask.empty())
    throw ConfigError("--cache-type gives the loss alone; leave --logits, --outputs and --ask out");
}

}  // namespace

EvaluationResult run_cached_evaluation(const EvaluationOptions& options, comm::Communicator& world) {
  check_options(options);
  check(options.weights, options.parallel);
  const models::ModelSource model = open_model_with_adapter(options.model, options.adapter);
  const auto source = open_source(model, options.data);
  const comm::Mesh mesh(world, options.parallel.mesh());
  const auto rank = load_for_inference(model, options.parallel, mesh.pipeline(), options.data.seed, options.weights, mesh.place().tensor);
  const std::int64_t length = source->length();
  engine::Decoder::Options how;
  how.capacity = length;
  how.chunk = std::min(chunk, length);
  how.peers = &mesh.pipeline();
  how.tensor = options.parallel.tensor > 1 ? &mesh.tensor() : nullptr;
  how.cache_in_bytes = options.cache_in_bytes;
  engine::Decoder decoder(*rank, how);

  const bool is_file = std::filesystem::exists(source->name());
  const auto all = static_cast<std::int64_t>(std::min<std::uint64_t>(source->sequences(), INT64_MAX));
  const std::int64_t sequences = std::min(all, options.sequences > 0 ? options.sequences : is_file ? all : made_up_sequences);
  const bool counts = mesh.place().tensor == 0;  // of ranks that all have the output
  const auto width = static_cast<std::size_t>(model.config.vocabulary());
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(length)), targets(inputs.size());
  double loss = 0;
  std::int64_t tokens = 0;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    if (options.progress && world.rank() == 0) options.progress(sequence, sequences);
    source->read(static_cast<std::uint64_t>(sequence), inputs, targets);
    for (std::int64_t at = 0; at < length; at += how.chunk) {
      const std::int64_t count = std::min(how.chunk, length - at);
      const auto first = static_cast<std::size_t>(at);
      const std::span<const float> logits =
          decoder.read(0, 0, at, count, std::span(inputs).subspan(first, static_cast<std::size_t>(count)), length);
      if (logits.empty() || !counts) continue;
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const std::int32_t target = targets[first + i];
        if (target < 0) continue;
        loss += cross_entropy(logits.subspan(i * width, width), target);
        ++tokens;
      }
    }
  }
  EvaluationResult result;
  result.loss_sum = world.allreduce_value(loss);
  result.valid_tokens = static_cast<std::int64_t>(world.allreduce_value(double(tokens)));
  return result;
}

}  // namespace ppengine::runs
