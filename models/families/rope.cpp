// The inverse frequencies of rotary embedding, in transformers' order of operations (modeling_rope_utils.py).
#include <cmath>
#include <numbers>

#include <ppengine/models/config.hpp>

namespace ppengine::models {

std::vector<float> rope_inverse_frequencies(const LlamaConfig& config, std::int64_t sequence_length) {
  const RopeConfig& rope = config.rope;
  const auto size = static_cast<double>(config.head_size);
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::dynamic) {
    const auto positions = static_cast<double>(config.positions);
    const double length = std::max(positions, static_cast<double>(sequence_length));
    theta *= std::pow(rope.factor * length / positions - (rope.factor - 1), size / (size - 2));
  }

  std::vector<float> frequencies(static_cast<std::size_t>(config.head_size / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(size);
    float frequency = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    if (rope.scaling == RopeScaling::linear) frequency /= static_cast<float>(rope.factor);
    if (rope.scaling == RopeScaling::llama3) {
      const auto original = static_cast<float>(rope.original_positions);
      const auto low = static_cast<float>(rope.low_frequency_factor), high = static_cast<float>(rope.high_frequency_factor);
      const auto factor = static_cast<float>(rope.factor);
      const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
      if (wavelength > original / low) {
        frequency /= factor;
      } else if (wavelength >= original / high) {
        const float smooth = (original / wavelength - low) / (high - low);
        frequency = (1 - smooth) * frequency / factor + smooth * frequency;
      }
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace ppengine::models
