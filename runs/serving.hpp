// Serving: a model folder behind HTTP, as OpenAI's clients expect it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ppengine/engine/parallel.hpp>
#include <ppengine/models/source.hpp>
#include <ppengine/ops/kinds.hpp>
#include <ppengine/runs/generator.hpp>

namespace ppengine::runs {

struct ServingOptions {
  std::string model;
  std::vector<std::string> adapters;  // LoRA adapters, as --adapter names them (runs/adapters.hpp)
  std::string name;                   // as clients call it; empty: the folder's
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any that is free
  std::string api_key;
  std::int64_t max_sequences = 0;   // that are generated at once; 0: 8 per rank of the pipeline
  std::int64_t max_queue = 256;     // that wait
  std::int64_t max_per_client = 0;  // of one address, that wait or run; 0: any number
  std::int64_t cache_memory = 0;    // bytes of keys and values on a rank; 0: as many as the sequences need
  bool cache_in_bytes = false;      // keys and values as bytes
  std::int64_t context = 0;         // tokens of a sequence; 0: the model's, 4096 at most
  std::int64_t max_body = std::int64_t{16} << 20, max_connections = 4096;
  bool lookup = false;  // a sequence alone is decoded several tokens at a time where its text repeats itself
  std::string draft;    // folder of a small model that guesses what follows; empty: none
  double grace = 30;    // seconds that requests under way have after SIGTERM
  engine::ParallelOptions parallel;
  std::optional<ops::WeightStorage> weights;  // none: as load_for_inference() does
  std::uint64_t weight_seed = 0;              // of presets
  // On the first rank, when requests are taken.
  std::function<void(const std::string& address)> on_listening{};
};

// Everything that can be refused is refused by the constructor, before ranks start: ConfigError, FileError.
class ServingRun {
 public:
  explicit ServingRun(ServingOptions options);

  // All ranks call it. Returns on the first rank after SIGTERM or SIGINT, when what was under way is finished, and then on the others.
  void run(comm::Communicator& world) const;

 private:
  GeneratorOptions generator_options() const;

  ServingOptions options_;
  models::ModelSource source_;
  std::optional<models::ModelSource> draft_;
  GeneratorOptions how_;
};

}  // namespace ppengine::runs
