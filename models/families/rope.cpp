// The inverse frequencies of rotary embedding, in transformers' order of operations (modeling_rope_utils.py).
#include <algorithm>
#include <cmath>
#include <numbers>

#include <ppengine/models/config.hpp>

namespace ppengine::models {
namespace {

// Yarn: pairs that turn often stay as they are, those that turn less than once are slowed down by the factor, a ramp lies between.
struct YarnRamp {
  double low, high;
  YarnRamp(const RopeConfig& rope, double size) {
    const auto pair_of = [&](double turns) {
      return size * std::log(double(rope.original_positions) / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
    };
    low = pair_of(rope.beta_fast);
    high = pair_of(rope.beta_slow);
    if (rope.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, size - 1);
    if (low == high) high += 0.001;
  }
  float slowed(std::size_t pair) const {
    const float ramp = (static_cast<float>(pair) - static_cast<float>(low)) / static_cast<float>(high - low);
    return std::clamp(ramp, 0.0f, 1.0f);
  }
};

float llama3(float frequency, const RopeConfig& rope) {
  const auto original = static_cast<float>(rope.original_positions);
  const auto low = static_cast<float>(rope.low_frequency_factor), high = static_cast<float>(rope.high_frequency_factor);
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const DecoderConfig& config, const RopeConfig& rope, std::int64_t sequence_length) {
  const std::int64_t turned = config.rotary_size > 0 ? config.rotary_size : config.head_size;
  const auto size = static_cast<double>(turned);
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::dynamic) {
    const auto positions = static_cast<double>(config.positions);
    const double length = std::max(positions, static_cast<double>(sequence_length));
    theta *= std::pow(rope.factor * length / positions - (rope.factor - 1), size / (size - 2));
  }
  const YarnRamp yarn(rope, size);
  const std::vector<float>& factors = sequence_length > rope.original_positions ? rope.long_factors : rope.short_factors;

  std::vector<float> frequencies(static_cast<std::size_t>((turned + 1) / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(size);
    const auto period = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    float frequency = 1.0f / period;
    if (rope.scaling == RopeScaling::linear) frequency /= static_cast<float>(rope.factor);
    if (rope.scaling == RopeScaling::llama3) frequency = llama3(frequency, rope);
    if (rope.scaling == RopeScaling::longrope) frequency = 1.0f / (factors[i] * period);
    if (rope.scaling == RopeScaling::yarn) {
      const float kept = 1 - yarn.slowed(i);
      frequency = 1.0f / (static_cast<float>(rope.factor) * period) * (1 - kept) + frequency * kept;
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace ppengine::models
