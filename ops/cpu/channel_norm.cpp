// Batch norm's work in f32 on CPUs with vectors, in the calling thread: a channel at a time, all samples of it.
#include <algorithm>
#include <cmath>

#include <ppengine/ops/cpu/loops_channels.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

class CpuChannelNorm final : public ChannelNorm {
 public:
  explicit CpuChannelNorm(const ChannelNormSpec& spec)
      : s_(spec), loops_(*cpu::channel_loops()), share_(1.0f / static_cast<float>(std::max<std::int64_t>(1, spec.samples * spec.places))) {}

  void mean(Stream& stream, const float* src, float* mean) override {
    for_channels(stream, [&](std::int64_t c) {
      float sum = 0;
      for_samples(c, [&](std::int64_t at) { sum += loops_.sum(src + at, s_.places); });
      mean[c] = share_ * sum;
    });
  }
  void variance(Stream& stream, const float* src, const float* mean, float* variance) override {
    for_channels(stream, [&](std::int64_t c) {
      float sum = 0;
      for_samples(c, [&](std::int64_t at) { sum += loops_.squares(src + at, mean[c], s_.places); });
      variance[c] = share_ * sum;
    });
  }
  void forward(Stream& stream, const float* src, const float* mean, const float* variance, const float* gamma, const float* beta,
               float* dst) override {
    for_channels(stream, [&](std::int64_t c) {
      const float a = rstd(variance[c]) * (gamma ? gamma[c] : 1.0f), b = (beta ? beta[c] : 0.0f) - mean[c] * a;
      for_samples(c, [&](std::int64_t at) { loops_.scale(src + at, a, b, dst + at, s_.places); });
    });
  }
  void sums(Stream& stream, const float* diff_dst, const float* src, const float* mean, const float* variance, float* sum,
            float* product) override {
    for_channels(stream, [&](std::int64_t c) {
      float total = 0, dot = 0;
      for_samples(c, [&](std::int64_t at) { loops_.products(diff_dst + at, src + at, mean[c], s_.places, total, dot); });
      sum[c] = total;
      product[c] = dot * rstd(variance[c]);
    });
  }
  void backward_input(Stream& stream, const float* diff_dst, const float* src, const float* mean, const float* variance, const float* sum,
                      const float* product, const float* gamma, float* diff_src) override {
    for_channels(stream, [&](std::int64_t c) {
      const float r = rstd(variance[c]), a = r * (gamma ? gamma[c] : 1.0f);
      const float b = sum ? -a * r * product[c] * share_ : 0.0f, offset = sum ? -a * sum[c] * share_ - b * mean[c] : 0.0f;
      for_samples(c, [&](std::int64_t at) {
        if (sum)
          loops_.combine(diff_dst + at, src + at, a, b, offset, diff_src + at, s_.places);
        else
          loops_.scale(diff_dst + at, a, 0.0f, diff_src + at, s_.places);
      });
    });
  }

 private:
  float rstd(float variance) const { return 1.0f / std::sqrt(variance + s_.epsilon); }
  template <class Body>
  void for_channels(Stream& stream, const Body& body) const {
    stream.wait();
    cpu::for_parts(s_.channels, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, s_.samples * s_.places)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t c = begin; c < end; ++c) body(c);
                   });
  }
  template <class Body>
  void for_samples(std::int64_t channel, const Body& body) const {
    for (std::int64_t n = 0; n < s_.samples; ++n) body((n * s_.channels + channel) * s_.places);
  }

  ChannelNormSpec s_;
  const cpu::ChannelLoops& loops_;
  float share_;
};

}  // namespace

constexpr Implementation<ChannelNorm, ChannelNormSpec> cpu_channel_norm{
    "cpu", [](const Device& device, const ChannelNormSpec&) { return cpu::refusal(device, Type::f32); }, construct<CpuChannelNorm>};

}  // namespace ppengine::ops
