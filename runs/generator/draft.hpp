// Draft: a small model that guesses what a larger one goes on with. It keeps a cache of its own for every place of the generator, and fills
// it when a guess is wanted. Tokens are drawn as the larger model's are, with the same random numbers, so that both agree as often as they
// can.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ppengine/engine/decoder.hpp>
#include <ppengine/runs/generator.hpp>

namespace ppengine::runs {

class Draft {
 public:
  // The whole model on one rank; `places` sequences of up to `capacity` tokens, or as many as the model's positions.
  Draft(engine::ModelRank& model, std::int64_t capacity, std::int64_t places);

  // At most so many tokens that may follow; none where the text is too long for the model or has tokens that it does not know.
  std::vector<std::int32_t> guess(std::size_t place, std::uint64_t number, const GenerationRequest& request,
                                  std::span<const std::int32_t> generated, std::int64_t most);

 private:
  struct Cached {
    std::uint64_t number = ~std::uint64_t{0};  // of the request
    std::vector<std::int32_t> tokens;          // whose keys and values are there
  };
  // Lets what is not in the cache go through the model; gives the logits behind the last token.
  std::span<float> feed(std::size_t place, std::span<const std::int32_t> text);

  static constexpr std::int64_t chunk = 128;
  engine::Decoder decoder_;
  std::int64_t vocabulary_;
  std::vector<Cached> cached_;  // by place
};

}  // namespace ppengine::runs
