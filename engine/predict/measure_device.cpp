// The figures of a device that is there, measured.
#include <algorithm>
#include <chrono>
#include <functional>

#include <ppengine/engine/measure/measure.hpp>
#include <ppengine/engine/predict/device_model.hpp>
#include <ppengine/ops/attention.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/linear.hpp>
#include <ppengine/ops/optimizer.hpp>

namespace ppengine::engine {
namespace {

class Bench {
 public:
  Bench(ops::Stream& stream, comm::Communicator& world) : stream_(stream), world_(world) {}

  // Seconds of one call: the median of a few rounds, each begun by all ranks together; of the slowest rank.
  double seconds(int times, const std::function<void()>& run) const {
    std::vector<double> rounds;
    for (int round = 0; round < 6; ++round) {
      world_.barrier();
      stream_.wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) run();
      stream_.wait();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round > 0)
        rounds.push_back(world_.allreduce_value(took.count() / times, comm::Reduce::max));  // the first warms up
      else
        world_.allreduce_value(0.0, comm::Reduce::max);
    }
    return spread_of(rounds).median;
  }

 private:
  ops::Stream& stream_;
  comm::Communicator& world_;
};

// Seconds of a product of square matrices: the mean of a linear layer's forward and of both halves of its backward, on the implementation
// that models run on. (Matmul, which nothing but attention uses, has other costs of a call.)
double product_seconds(const Bench& bench, ops::Stream& stream, ops::Type type, std::int64_t size, int times) {
  const auto op = ops::Linear::make(
      stream.device(), {.rows = size, .in = size, .out = size, .layout = ops::preferred_layout(stream.device(), size, size), .type = type});
  const std::size_t bytes = static_cast<std::size_t>(size * size) * ops::size_of(type);
  ops::Buffer memory(stream.device_ptr(), 3 * bytes), gradient(stream.device_ptr(), static_cast<std::size_t>(size * size) * sizeof(float));
  stream.zero(memory.data(), memory.bytes());
  std::byte *const src = memory.at(0), *const weight = memory.at(bytes), *const dst = memory.at(2 * bytes);
  const double taken = bench.seconds(times, [&] {
    op->forward(stream, src, weight, nullptr, nullptr, dst);
    op->backward_input(stream, dst, weight, nullptr, src);
    op->backward_weight(stream, src, dst, gradient.as<float>(), nullptr, false);
  });
  return taken / 3;
}

// Bytes read and written in a second by a sum of two vectors of so many elements.
double add_rate(const Bench& bench, ops::Stream& stream, std::int64_t count, int times) {
  ops::Buffer memory(stream.device_ptr(), 3 * static_cast<std::size_t>(count) * sizeof(float));
  stream.zero(memory.data(), memory.bytes());
  float* const a = memory.as<float>();
  const double taken = bench.seconds(times, [&] { ops::add(stream, ops::Type::f32, a, a + count, a + 2 * count, count); });
  return 3.0 * double(count) * sizeof(float) / taken;
}

double attention_rate(const Bench& bench, ops::Stream& stream, ops::Type type) {
  const ops::AttentionSpec spec{.batch = 1,
                                .length = 256,
                                .heads = 8,
                                .kv_heads = 8,
                                .head_dim = 64,
                                .q_stride = 1536,
                                .k_stride = 1536,
                                .v_stride = 1536,
                                .scale = 0.125f,
                                .type = type};
  const auto op = ops::Attention::make(stream.device(), spec);
  const std::size_t element = ops::size_of(type), row = 512 * element, packed = 256 * 3 * row, out = 256 * row;
  ops::Buffer memory(stream.device_ptr(), 2 * packed + 2 * out + ops::align_up(op->saved_bytes()) + op->workspace_bytes() + 64);
  stream.zero(memory.data(), memory.bytes());
  std::byte* const qkv = memory.at(0);
  std::byte *const dst = memory.at(packed), *const diff_dst = memory.at(packed + out), *const diff = memory.at(packed + 2 * out);
  std::byte *const saved = memory.at(2 * packed + 2 * out), *const workspace =
                                                                memory.at(2 * packed + 2 * out + ops::align_up(op->saved_bytes()));
  const double taken = bench.seconds(4, [&] {
    op->forward(stream, qkv, qkv + row, qkv + 2 * row, dst, saved, workspace);
    op->backward(stream, qkv, qkv + row, qkv + 2 * row, dst, diff_dst, saved, diff, diff + row, diff + 2 * row, workspace);
  });
  return 3.5 * 4.0 * 512 * (256.0 * 257 / 2) / taken;
}

double optimizer_rate(const Bench& bench, ops::Stream& stream) {
  constexpr std::int64_t count = 4 << 20;
  ops::Buffer memory(stream.device_ptr(), 4 * count * sizeof(float));
  stream.zero(memory.data(), memory.bytes());
  float* const p = memory.as<float>();
  return double(count) / bench.seconds(1, [&] { ops::adamw(stream, {}, p, p + count, p + 2 * count, p + 3 * count, nullptr, count); });
}

}  // namespace

DeviceModel measure_device(ops::Stream& stream, ops::Type type, comm::Communicator& world) {
  const Bench bench(stream, world);
  DeviceModel model;
  model.name = "measured";
  model.title = stream.device().info().name;
  model.source = "measured";
  const auto flops = [](double size) { return 2 * size * size * size; };
  const double rate = flops(2048) / product_seconds(bench, stream, type, 2048, 1);
  model.product_launch = std::max(0.0, product_seconds(bench, stream, type, 256, 32) - flops(256) / rate);
  model.peak[type == ops::Type::bf16 ? "bf16" : "f32"] = rate;
  model.attention = std::min(1.0, attention_rate(bench, stream, type) / rate);
  model.bandwidth = add_rate(bench, stream, 32 << 20, 1);
  model.cache = 4 << 20;
  model.cache_bandwidth = std::max(model.bandwidth, add_rate(bench, stream, 256 << 10, 16));
  model.optimizer = optimizer_rate(bench, stream);
  ops::Buffer memory(stream.device_ptr(), 8 << 20);
  stream.zero(memory.data(), memory.bytes());
  float* const data = memory.as<float>();
  model.launch = bench.seconds(64, [&] { ops::add(stream, ops::Type::f32, data, data, data + 16, 16); });
  if (world.size() > 1) {
    const auto message = [&](std::size_t bytes) {
      return bench.seconds(4, [&] {
        if (world.rank() > 1) return;
        if (world.rank() == 0)
          world.send(memory.data(), bytes, 1, 1).wait();
        else
          world.recv(memory.data(), bytes, 0, 1).wait();
      });
    };
    model.latency = message(64);
    model.link = double(4 << 20) / std::max(message(4 << 20) - model.latency, 1e-9);
    const double sum = bench.seconds(2, [&] { world.allreduce(memory.data(), memory.bytes() / sizeof(float), comm::Type::f32).wait(); });
    model.reduction = 2.0 * (world.size() - 1) / world.size() * double(memory.bytes()) / sum;
  }
  return model;
}

DeviceModel between(const DeviceModel& a, const DeviceModel& b) {
  DeviceModel mean = a;
  const auto rate = [](double x, double y) { return x > 0 && y > 0 ? 2 / (1 / x + 1 / y) : 0.0; };  // as many bytes at either rate
  for (auto& [type, peak] : mean.peak) peak = rate(peak, b.peak_of(type));
  mean.attention = (a.attention + b.attention) / 2;
  mean.bandwidth = rate(a.bandwidth, b.bandwidth);
  mean.cache_bandwidth = rate(a.cache_bandwidth, b.cache_bandwidth);
  mean.launch = (a.launch + b.launch) / 2;
  mean.product_launch = (a.product_launch + b.product_launch) / 2;
  mean.link = rate(a.link, b.link);
  mean.latency = (a.latency + b.latency) / 2;
  mean.reduction = rate(a.reduction, b.reduction);
  mean.optimizer = rate(a.optimizer, b.optimizer);
  return mean;
}

}  // namespace ppengine::engine
