// Embeddings of texts: the model's last hidden states, of the last token or their mean.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <ppengine/models/source.hpp>
#include <ppengine/ops/device/device.hpp>

namespace ppengine::runs::serving {

// Holds a copy of the model of its own, which is loaded when it is first used: generation fuses the norm before the head into it, so that
// the hidden states exist nowhere there.
class Embedder {
 public:
  Embedder(const models::ModelSource& source, std::shared_ptr<ops::Device> device, std::uint64_t weight_seed);
  ~Embedder();
  std::vector<std::vector<float>> embed(const std::vector<std::vector<std::int32_t>>& ids, bool last_token, int adapter);

 private:
  struct Loaded;
  const models::ModelSource& source_;
  std::shared_ptr<ops::Device> device_;
  std::uint64_t weight_seed_;
  std::mutex mutex_;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace ppengine::runs::serving
