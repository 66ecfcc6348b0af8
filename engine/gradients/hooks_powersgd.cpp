// PowerSGD (Vogels et al. 2019): matrices travel as two thin factors, and what that loses is added to the next step's gradients.
#include <ppengine/engine/gradients/hooks_powersgd.hpp>

#include <cmath>
#include <map>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/matmul.hpp>

namespace ppengine::engine {
namespace {

ops::Tensor matrix(std::int64_t rows, std::int64_t columns, bool transposed = false) {
  ops::Tensor tensor(nullptr, ops::Type::f32, {rows, columns});
  if (!transposed) return tensor;
  std::swap(tensor.shape[0], tensor.shape[1]);
  std::swap(tensor.strides[0], tensor.strides[1]);
  return tensor;
}

// Gram and Schmidt over the columns of p[rows,columns]; a column that is zero but for rounding becomes zero.
void orthonormalize(std::vector<float>& p, std::size_t rows, std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c) {
    double before = 0, length = 0;
    for (std::size_t i = 0; i < rows; ++i) before += double(p[i * columns + c]) * p[i * columns + c];
    for (std::size_t b = 0; b < c; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < rows; ++i) dot += double(p[i * columns + b]) * p[i * columns + c];
      for (std::size_t i = 0; i < rows; ++i) p[i * columns + c] -= static_cast<float>(dot * p[i * columns + b]);
    }
    for (std::size_t i = 0; i < rows; ++i) length += double(p[i * columns + c]) * p[i * columns + c];
    const double factor = length > 1e-10 * before && length > 1e-60 ? 1.0 / std::sqrt(length) : 0.0;
    for (std::size_t i = 0; i < rows; ++i) p[i * columns + c] = static_cast<float>(factor * p[i * columns + c]);
  }
}

// One gradient that is a matrix M[n,m], P = M Q [n,r], Q = Mᵀ P [m,r].
struct Factored {
  std::size_t gradient;  // element of the bucket
  std::int64_t n, m;
  std::size_t p, q;                                         // elements of the factors' buffers
  std::unique_ptr<ops::Matmul> left, right, product, lost;  // M Q, Mᵀ P, P Qᵀ, error - P Qᵀ / ranks
};

struct Prepared {
  std::vector<Factored> matrices;
  std::vector<std::pair<std::size_t, std::size_t>> plain;  // element of the bucket, count: vectors, and matrices too small to gain
  std::size_t p_count = 0, q_count = 0, plain_count = 0;
  ops::Buffer error, p, q, rest;
};

class PowerSgd final : public GradientHook {
 public:
  explicit PowerSgd(const HookOptions& options) : options_(options) {
    if (options.rank < 1) throw ConfigError("powersgd needs a rank of at least 1");
  }
  const char* name() const override { return "powersgd"; }
  void check(bool sharded) const override {
    if (sharded) throw ConfigError("powersgd sums whole buckets: it does not go with --shard; use allreduce, bf16 or fp16");
  }

  void reduce(const GradientBucket& bucket, HookContext& context) override {
    State& state = states_[{bucket.stage, bucket.index}];
    if (state.steps++ < options_.warmup) return sum_bucket(bucket, context);
    if (!state.prepared) state.prepared = prepare(bucket, context);
    Prepared& all = *state.prepared;
    ops::Stream& stream = context.stream;
    float *const data = bucket.data, *const error = all.error.as<float>(), *const p = all.p.as<float>(), *const q = all.q.as<float>();
    const auto count = [](const Factored& one) { return one.n * one.m; };

    for (const Factored& one : all.matrices) {
      ops::add(stream, ops::Type::f32, data + one.gradient, error + one.gradient, data + one.gradient, count(one));
      one.left->run(stream, data + one.gradient, q + one.q, p + one.p);
    }
    sum(all.p, all.p_count, context);
    std::vector<float> host;
    for (const Factored& one : all.matrices) {
      host.resize(static_cast<std::size_t>(one.n * options_.rank));
      stream.copy(host.data(), p + one.p, host.size() * sizeof(float));
      stream.wait();
      orthonormalize(host, static_cast<std::size_t>(one.n), static_cast<std::size_t>(options_.rank));
      stream.copy(p + one.p, host.data(), host.size() * sizeof(float));
      stream.wait();
      one.right->run(stream, data + one.gradient, p + one.p, q + one.q);
    }
    sum(all.q, all.q_count, context);
    for (const Factored& one : all.matrices) {
      stream.copy(error + one.gradient, data + one.gradient, static_cast<std::size_t>(count(one)) * sizeof(float));
      one.lost->run(stream, p + one.p, q + one.q, error + one.gradient);
      one.product->run(stream, p + one.p, q + one.q, data + one.gradient);
    }
    sum_plain(bucket, all, context);
  }

 private:
  struct State {
    int steps = 0;
    std::unique_ptr<Prepared> prepared;
  };

  static void sum(ops::Buffer& buffer, std::size_t count, HookContext& context) {
    if (count > 0) context.data.allreduce(buffer.data(), count, ops::Type::f32, context.stream).wait();
  }

  void sum_plain(const GradientBucket& bucket, Prepared& all, HookContext& context) {
    ops::Stream& stream = context.stream;
    std::size_t at = 0;
    for (const auto& [offset, count] : all.plain) {
      stream.copy(all.rest.as<float>() + at, bucket.data + offset, count * sizeof(float));
      at += count;
    }
    sum(all.rest, all.plain_count, context);
    at = 0;
    for (const auto& [offset, count] : all.plain) {
      stream.copy(bucket.data + offset, all.rest.as<float>() + at, count * sizeof(float));
      at += count;
    }
    stream.wait();
  }

  std::unique_ptr<Prepared> prepare(const GradientBucket& bucket, HookContext& context) const {
    auto all = std::make_unique<Prepared>();
    ops::Device& device = context.stream.device();
    const std::int64_t r = options_.rank;
    std::vector<float> first;
    for (const auto& gradient : bucket.gradients) {
      const auto count = static_cast<std::size_t>(gradient.shape.count());
      const std::int64_t n = gradient.shape.rank() == 2 ? gradient.shape[0] : 0, m = n > 0 ? gradient.shape[1] : 0;
      if (n == 0 || 2 * r * (n + m) > n * m) {
        all->plain.emplace_back(gradient.offset, count);
        all->plain_count += count;
        continue;
      }
      Factored one{gradient.offset, n, m, all->p_count, all->q_count, {}, {}, {}, {}};
      one.left = ops::Matmul::make(device, {matrix(n, m), matrix(m, r), matrix(n, r)});
      one.right = ops::Matmul::make(device, {matrix(n, m, true), matrix(n, r), matrix(m, r)});
      one.product = ops::Matmul::make(device, {matrix(n, r), matrix(m, r, true), matrix(n, m)});
      one.lost = ops::Matmul::make(device,
                                   {matrix(n, r), matrix(m, r, true), matrix(n, m), -1.0f / static_cast<float>(context.data.size()), true});
      all->p_count += static_cast<std::size_t>(n * r);
      all->q_count += static_cast<std::size_t>(m * r);
      all->matrices.push_back(std::move(one));
      // The first Q: the same numbers on every rank, from the parameter's name. Later ones are those of the step before.
      const std::uint64_t key = mix(options_.seed) ^ hash_text(gradient.parameter->name);
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(m * r); ++i)
        first.push_back(static_cast<float>(mix(key + i) >> 40) * 0x1p-23f - 1.0f);
    }
    const auto buffer = [&](std::size_t count) {
      return ops::Buffer(context.stream.device_ptr(), std::max<std::size_t>(count, 1) * sizeof(float), &context.memory);
    };
    all->error = buffer(bucket.count);
    all->p = buffer(all->p_count);
    all->q = buffer(all->q_count);
    all->rest = buffer(all->plain_count);
    context.stream.zero(all->error.data(), all->error.bytes());
    context.stream.copy(all->q.data(), first.data(), first.size() * sizeof(float));
    context.stream.wait();
    return all;
  }

  HookOptions options_;
  std::map<std::pair<StageId, std::size_t>, State> states_;  // by stage and bucket
};

}  // namespace

std::shared_ptr<GradientHook> make_powersgd(const HookOptions& options) { return std::make_shared<PowerSgd>(options); }

}  // namespace ppengine::engine
