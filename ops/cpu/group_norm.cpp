// Group norm in f32 on CPUs with vectors, in the calling thread: a group of a sample at a time.
#include <ppengine/ops/group_norm.hpp>

#include <algorithm>
#include <cmath>

#include <ppengine/ops/cpu/loops_channels.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/cpu/refusal.hpp>

namespace ppengine::ops {
namespace {

class CpuGroupNorm final : public GroupNorm {
 public:
  explicit CpuGroupNorm(const GroupNormSpec& spec)
      : s_(spec), loops_(*cpu::channel_loops()), each_(spec.channels / spec.groups), width_(each_ * spec.places) {}

  void forward(Stream& stream, const float* src, const float* gamma, const float* beta, float* dst, float* mean, float* rstd) override {
    for_groups(stream, [&](std::int64_t i) {
      const float* const x = src + i * width_;
      const float m = loops_.sum(x, width_) / static_cast<float>(width_);
      const float r = 1.0f / std::sqrt(loops_.squares(x, m, width_) / static_cast<float>(width_) + s_.epsilon);
      mean[i] = m, rstd[i] = r;
      for (std::int64_t k = 0; k < each_; ++k) {
        const std::int64_t c = i % s_.groups * each_ + k;
        const float a = r * (gamma ? gamma[c] : 1.0f), b = (beta ? beta[c] : 0.0f) - m * a;
        loops_.scale(x + k * s_.places, a, b, dst + i * width_ + k * s_.places, s_.places);
      }
    });
  }

  // With x̂ = (x - mean) · rstd and h = diff · gamma: diff_src = rstd (h - mean(h) - x̂ mean(h x̂)), means over the group.
  void backward(Stream& stream, const float* diff_dst, const float* src, const float* mean, const float* rstd, const float* gamma,
                float* diff_src, float* sums, float* products) override {
    for_groups(stream, [&](std::int64_t i) {
      const float m = mean[i], r = rstd[i], share = 1.0f / static_cast<float>(width_);
      float level = 0, along = 0;
      for (std::int64_t k = 0; k < each_; ++k) {
        const std::int64_t at = i * width_ + k * s_.places, row = i * each_ + k;
        float total = 0, dot = 0;
        loops_.products(diff_dst + at, src + at, m, s_.places, total, dot);
        sums[row] = total, products[row] = dot * r;
        level += scale_of(gamma, i, k) * total, along += scale_of(gamma, i, k) * products[row];
      }
      const float b = -r * r * along * share, c = -r * level * share - b * m;
      for (std::int64_t k = 0; k < each_; ++k) {
        const std::int64_t at = i * width_ + k * s_.places;
        loops_.combine(diff_dst + at, src + at, r * scale_of(gamma, i, k), b, c, diff_src + at, s_.places);
      }
    });
  }

  void backward_weight(Stream& stream, const float* sums, const float* products, float* diff_gamma, float* diff_beta,
                       bool accumulate) override {
    stream.wait();
    const auto add_up = [&](const float* rows, float* to) {
      if (!to) return;
      if (!accumulate) std::fill_n(to, s_.channels, 0.0f);
      for (std::int64_t n = 0; n < s_.samples; ++n)
        for (std::int64_t c = 0; c < s_.channels; ++c) to[c] += rows[n * s_.channels + c];
    };
    add_up(products, diff_gamma);
    add_up(sums, diff_beta);
  }

 private:
  float scale_of(const float* gamma, std::int64_t group, std::int64_t k) const {
    return gamma ? gamma[group % s_.groups * each_ + k] : 1.0f;
  }
  template <class Body>
  void for_groups(Stream& stream, const Body& body) const {
    stream.wait();
    cpu::for_parts(s_.samples * s_.groups, std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(1, width_)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) body(i);
                   });
  }

  GroupNormSpec s_;
  const cpu::ChannelLoops& loops_;
  std::int64_t each_, width_;  // channels and elements of a group
};

}  // namespace

std::unique_ptr<GroupNorm> GroupNorm::make(Device& device, const GroupNormSpec& spec) {
  return cpu::refusal(device, Type::f32) ? nullptr : std::make_unique<CpuGroupNorm>(spec);
}

}  // namespace ppengine::ops
