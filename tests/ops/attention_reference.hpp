// Attention in double, and the check of every implementation against it.
#pragma once

#include <ppengine/ops/attention.hpp>

#include "layers.hpp"

namespace ppengine::ops::support {

using Values = std::vector<double>;

// q, k, v in tensors with the spec's strides; what lies between the heads' ends and the stride is not touched.
struct Reference {
  explicit Reference(const AttentionSpec& spec) : s(spec) {}
  std::size_t q_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>((b * s.length + t) * s.q_stride + h * s.head_dim + d);
  }
  std::size_t k_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>((b * s.length + t) * s.k_stride + h / (s.heads / s.kv_heads) * s.head_dim + d);
  }
  std::size_t v_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>((b * s.length + t) * s.v_stride + h / (s.heads / s.kv_heads) * s.head_dim + d);
  }
  std::size_t o_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>(((b * s.length + t) * s.heads + h) * s.head_dim + d);
  }

  std::int64_t seen(std::int64_t t) const { return s.causal ? t + 1 : s.length; }
  // slopes: of scores by the products of query and key.
  Values probabilities(const Values& q, const Values& k, std::int64_t b, std::int64_t t, std::int64_t h, Values* slopes = nullptr) const {
    Values p(static_cast<std::size_t>(seen(t)));
    double largest = -1e300, sum = 0;
    const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, t - s.window + 1) : 0;
    if (slopes) slopes->assign(p.size(), s.scale);
    for (std::int64_t j = first; j < seen(t); ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < s.head_dim; ++d) score += s.scale * q[q_at(b, t, h, d)] * k[k_at(b, j, h, d)];
      if (s.cap > 0) {
        const double bent = std::tanh(score / s.cap);
        score = s.cap * bent;
        if (slopes) (*slopes)[static_cast<std::size_t>(j)] *= 1 - bent * bent;
      }
      p[static_cast<std::size_t>(j)] = score;
      largest = std::max(largest, score);
    }
    for (std::size_t j = static_cast<std::size_t>(first); j < p.size(); ++j) sum += p[j] = std::exp(p[j] - largest);
    for (std::size_t j = static_cast<std::size_t>(first); j < p.size(); ++j) p[j] /= sum;
    return p;
  }

  Values forward(const Values& q, const Values& k, const Values& v) const {
    Values dst(static_cast<std::size_t>(s.batch * s.length * s.heads * s.head_dim));
    each([&](std::int64_t b, std::int64_t t, std::int64_t h) {
      const Values p = probabilities(q, k, b, t, h);
      for (std::int64_t j = 0; j < seen(t); ++j)
        for (std::int64_t d = 0; d < s.head_dim; ++d) dst[o_at(b, t, h, d)] += p[static_cast<std::size_t>(j)] * v[v_at(b, j, h, d)];
    });
    return dst;
  }

  void backward(const Values& q, const Values& k, const Values& v, const Values& diff, Values& dq, Values& dk, Values& dv) const {
    dq.assign(q.size(), 0), dk.assign(k.size(), 0), dv.assign(v.size(), 0);
    each([&](std::int64_t b, std::int64_t t, std::int64_t h) {
      Values slopes;
      const Values p = probabilities(q, k, b, t, h, &slopes);
      Values dp(p.size());
      double delta = 0;
      for (std::int64_t j = 0; j < seen(t); ++j) {
        const auto at = static_cast<std::size_t>(j);
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          dp[at] += diff[o_at(b, t, h, d)] * v[v_at(b, j, h, d)];
          dv[v_at(b, j, h, d)] += p[at] * diff[o_at(b, t, h, d)];
        }
        delta += p[at] * dp[at];
      }
      for (std::int64_t j = 0; j < seen(t); ++j)
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          const double ds =
              slopes[static_cast<std::size_t>(j)] * p[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - delta);
          dq[q_at(b, t, h, d)] += ds * k[k_at(b, j, h, d)];
          dk[k_at(b, j, h, d)] += ds * q[q_at(b, t, h, d)];
        }
    });
  }

  template <class Body>
  void each(Body body) const {
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0; t < s.length; ++t)
        for (std::int64_t h = 0; h < s.heads; ++h) body(b, t, h);
  }
  AttentionSpec s;
};

inline AttentionSpec make_spec(std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                               Type type = Type::f32) {
  AttentionSpec spec{batch, length, heads, kv_heads, head_dim, heads * head_dim, kv_heads * head_dim, kv_heads * head_dim, 0, type};
  spec.scale = 1.0f / std::sqrt(float(head_dim));
  return spec;
}

inline std::size_t q_count(const AttentionSpec& s) { return static_cast<std::size_t>(s.batch * s.length * s.q_stride); }
inline std::size_t k_count(const AttentionSpec& s) { return static_cast<std::size_t>(s.batch * s.length * s.k_stride); }
inline std::size_t v_count(const AttentionSpec& s) { return static_cast<std::size_t>(s.batch * s.length * s.v_stride); }
inline std::size_t o_count(const AttentionSpec& s) { return static_cast<std::size_t>(s.batch * s.length * s.heads * s.head_dim); }

inline void check_on(const std::shared_ptr<Device>& device, const AttentionSpec& spec, double tolerance, float magnitude = 1.0f) {
  BOOST_TEST_CONTEXT("batch " << spec.batch << " length " << spec.length << " heads " << spec.heads << "/" << spec.kv_heads << " x "
                              << spec.head_dim << " window " << spec.window << " cap " << spec.cap << " causal " << spec.causal << " "
                              << name_of(spec.type) << " onednn " << device->onednn()) {
    Stream stream(device);
    const auto q = rounded(random_values(q_count(spec), 1, magnitude), spec.type),
               k = rounded(random_values(k_count(spec), 2, magnitude), spec.type);
    const auto v = rounded(random_values(v_count(spec), 3), spec.type), diff = rounded(random_values(o_count(spec), 4), spec.type);
    Array q_array(stream, q, spec.type), k_array(stream, k, spec.type), v_array(stream, v, spec.type), diff_array(stream, diff, spec.type);
    const Reference reference(spec);
    const auto expected = reference.forward(as_double(q), as_double(k), as_double(v));
    Values dq_expected, dk_expected, dv_expected;
    reference.backward(as_double(q), as_double(k), as_double(v), as_double(diff), dq_expected, dk_expected, dv_expected);
    for (const auto& [name, op] : every_implementation<Attention>(*device, spec)) {
      Array dst(stream, o_count(spec), spec.type), dq(stream, q.size(), spec.type), dk(stream, k.size(), spec.type),
          dv(stream, v.size(), spec.type);
      Buffer saved(device, op->saved_bytes()), workspace(device, op->workspace_bytes());
      op->forward(stream, q_array.data(), k_array.data(), v_array.data(), dst.data(), nullptr, workspace.data());
      check_close(name + " forward without saving", dst.get(), expected, tolerance);
      op->forward(stream, q_array.data(), k_array.data(), v_array.data(), dst.data(), saved.data(), workspace.data());
      check_close(name + " forward", dst.get(), expected, tolerance);
      op->backward(stream, q_array.data(), k_array.data(), v_array.data(), dst.data(), diff_array.data(), saved.data(), dq.data(),
                   dk.data(), dv.data(), workspace.data());
      check_close(name + " diff_q", dq.get(), dq_expected, tolerance);
      check_close(name + " diff_k", dk.get(), dk_expected, tolerance);
      check_close(name + " diff_v", dv.get(), dv_expected, tolerance);
    }
  }
}

}  // namespace ppengine::ops::support
