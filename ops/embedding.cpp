// Embedding: checks and the list of implementations.
#include <ppengine/ops/embedding.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::unique_ptr<Embedding> Embedding::make(Device& device, const EmbeddingSpec& spec) {
  if (spec.batch < 0 || spec.length < 0 || spec.width <= 0 || spec.vocabulary <= 0)
    throw ConfigError(fmt::format("embedding: [{},{}] tokens of width {} from a table of {} are not possible", spec.batch, spec.length,
                                  spec.width, spec.vocabulary));
  if (spec.positions != 0 && spec.positions < spec.length)
    throw ConfigError(fmt::format("embedding: sequences of {} tokens are longer than the {} positions", spec.length, spec.positions));
  if (spec.type == Type::i32) throw ConfigError("embedding: only f32 and bf16");
  static const std::array list{sycl_embedding};
  return make_first<Embedding, EmbeddingSpec>("embedding", list, device, spec);
}

}  // namespace ppengine::ops
