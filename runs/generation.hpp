// Generation from a model folder: prompts as text or ids in, text and ids out.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/engine/parallel.hpp>
#include <ppengine/models/source.hpp>
#include <ppengine/runs/generator.hpp>

namespace ppengine::runs {

struct GenerationOptions {
  std::string model;
  std::vector<std::string> adapters;  // LoRA adapters, as --adapter names them (runs/adapters.hpp): of several each continues every prompt
  std::vector<std::string> texts;     // the prompts, or
  std::vector<std::vector<std::int32_t>> ids;  // their tokens
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stops;  // text that ends a request and is not shown
  bool ignore_eos = false;
  std::int64_t batch_size = 0;  // requests that run at once; 0: chosen
  std::int64_t cache_memory =
      0;                        // bytes that keys and values may take on a rank: fewer requests run at once where it is short; 0: no limit
  bool cache_in_bytes = false;  // keys and values as bytes
  engine::ParallelOptions parallel;
  std::optional<ops::WeightStorage> weights;  // how the linears' weights are stored; none: as load_for_inference() does
  std::uint64_t weight_seed = 0;              // of presets
  // On the first rank: text that is certain by now (empty without a tokenizer), with the token that brought it; and the
  // end of a request.
  std::function<void(std::size_t prompt, std::int32_t id, std::string_view text)> on_token{};
  std::function<void(std::size_t prompt, const struct GeneratedText& result)> on_finished{};
};

struct GeneratedText {
  std::vector<std::int32_t> prompt_ids;
  Generated generated;
  std::optional<std::string> text;  // none without a tokenizer
  bool stopped = false;             // by a stop string
  std::string adapter = {};         // its name, of several
};

// Everything that can be refused is refused by the constructor, before ranks start: ConfigError, FileError.
class GenerationRun {
 public:
  explicit GenerationRun(GenerationOptions options);

  // All ranks call it; the first one's on_token and on_finished are called.
  void run(comm::Communicator& world) const;

  bool has_tokenizer() const { return tokenizer_.has_value(); }
  std::size_t requests() const { return prompts_.size() * variants(); }
  // New tokens that the model's context leaves room for in the longest prompt, where that is less than asked for.
  std::optional<std::int64_t> shortened_to() const;

 private:
  GeneratorOptions generator_options() const;
  std::int64_t capacity() const;
  // Of a prompt: one per adapter that has a name.
  std::size_t variants() const { return std::max<std::size_t>(1, source_.adapters.size()); }
  void submit(Generator& generator) const;

  GenerationOptions options_;
  models::ModelSource source_;
  std::optional<models::Tokenizer> tokenizer_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::size_t longest_ = 0;
};

// Bytes of keys and values on a rank. Layers with a window keep that, and the tokens of a prompt that go in at once, for each sequence
// apart.
struct CacheBytes {
  std::int64_t place = 0;  // of a sequence, beside its pages
  std::int64_t page = 0;
};
// By rank of the pipeline, for such sequences, chunks and types of keys.
std::vector<CacheBytes> cache_bytes(const models::ModelSource& source, const engine::ParallelOptions& parallel,
                                    const GeneratorOptions& how);
// Sets the pages, and fewer sequences where even those would take too much, so that no rank has more bytes of keys and values than `limit`.
// ConfigError where not one sequence of `how.capacity` tokens fits.
void fit_cache(const std::vector<CacheBytes>& bytes, std::int64_t limit, GeneratorOptions& how);

// The ranks' stages for inference, loaded: contiguous stages, so that tokens go through the ranks once. tensor_rank: of parallel.tensor
// that divide each stage. Where nobody says how weights are stored, those that the folder has in bf16 stay so, which are the same values in
// half the memory; others are f32.
std::unique_ptr<engine::ModelRank> load_for_inference(const models::ModelSource& source, const engine::ParallelOptions& parallel,
                                                      comm::Communicator& pipeline, std::uint64_t weight_seed,
                                                      std::optional<ops::WeightStorage> weights = {}, int tensor_rank = 0);
// ConfigError for what does not go together.
void check(const ops::WeightStorage& weights, const engine::ParallelOptions& parallel);

}  // namespace ppengine::runs
