// Steps of decoding, run by a team of threads: each takes chunks of a step until there are none, and waits for those of the step before
// that others have taken. Whoever has taken one is running, so nobody waits for a thread that has not begun.
#include <ppengine/ops/cpu/step_chain.hpp>

#include <oneapi/tbb/task_arena.h>

#include <thread>
#include <utility>

#include <ppengine/ops/cpu/parallel.hpp>

namespace ppengine::ops::cpu {
namespace {

constexpr std::int64_t chunks_per_thread = 6;  // of a linear: enough to even out threads that somebody else holds up
constexpr int looks_before_yielding = 2000;

std::int64_t chunk_of(std::int64_t outputs, std::int64_t threads) {
  return divide_up(divide_up(outputs, threads * chunks_per_thread), outputs_at_once) * outputs_at_once;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

Norms norm_of(const LinearStep& step) { return {step.in, step.epsilon, step.centered, step.gamma, step.beta}; }

// All heads of one token; src may be dst where heads stay in their places.
void rotate(const RotaryStep& step, std::int64_t token) {
  const RotaryShape& r = step.shape;
  const std::int64_t position = (step.first ? step.first[token / r.length] : 0) + token % r.length;
  const float *const cosines = step.cosines + position * r.half, *const sines = step.sines + position * r.half;
  for (std::int64_t head = 0; head < r.heads; ++head) {
    const float* const from = step.src + token * step.src_stride + own_head(r, head) * r.head_dim;
    float* const to = step.dst + token * step.dst_stride + head * r.head_dim;
    const std::int64_t half = head < r.turned ? r.half : 0;
    for (std::int64_t d = 0; d < half; ++d) {
      const float x = from[d], y = from[d + half];
      to[d] = x * cosines[d] - y * sines[d];
      to[d + half] = y * cosines[d] + x * sines[d];
    }
    for (std::int64_t d = 2 * half; d < r.head_dim; ++d) to[d] = from[d];
  }
}

}  // namespace

StepChain& StepChain::of(Stream& stream) {
  auto& held_back = stream.impl().held_back;
  if (!held_back) held_back = std::make_unique<StepChain>(stream);
  return static_cast<StepChain&>(*held_back);  // no other kind is there
}

StepChain::StepChain(Stream& stream) : threads_(oneapi::tbb::this_task_arena::max_concurrency()), memory_(stream.device_ptr(), 1 << 14) {}

void StepChain::run(const NormRows& norm, std::int64_t row) {
  const std::int64_t at = row * norm.of.in;
  norm_loops()->forward(norm_of(norm.of), norm.of.src + at, norm.dst + at, nullptr, nullptr, 1);
}

void StepChain::run(const QuantizeRows& quantize, std::int64_t part) {
  thread_local std::vector<float> normed;
  const LinearStep& of = quantize.of;
  if (of.gamma) normed.resize(std::max(normed.size(), static_cast<std::size_t>(of.in)));
  for (std::int64_t row = part * quantize.at_once, end = std::min(row + quantize.at_once, quantize.rows); row < end; ++row) {
    const float* const src = of.src + row * of.in;
    if (of.gamma) norm_loops()->forward(norm_of(of), src, normed.data(), nullptr, nullptr, 1);
    byte_loops()->quantize(quantize.shape, of.gamma ? normed.data() : src, quantize.dst + row * quantize.shape.bytes);
  }
}

void StepChain::run(const Linear& linear, std::int64_t part) {
  const std::int64_t begin = part * linear.chunk;
  decode_loops()->linear(linear.step, linear.format, linear.rows, begin, std::min<std::int64_t>(begin + linear.chunk, linear.step.out));
}

void StepChain::run(const ByteLinear& linear, std::int64_t part) {
  const std::int64_t begin = part * linear.chunk;
  byte_loops()->linear(linear.step, linear.shape, linear.bytes, linear.rows, begin,
                       std::min<std::int64_t>(begin + linear.chunk, linear.step.out));
}

void StepChain::run(const AttentionStep& attention, std::int64_t chunk) { decode_loops()->attend(attention, chunk); }
void StepChain::run(const ByteCacheStep& attention, std::int64_t chunk) { byte_cache_loops()->attend(attention, chunk); }
void StepChain::run(const RotateTokens& rotary, std::int64_t part) {
  for (std::int64_t token = part * rotary.at_once, end = std::min(token + rotary.at_once, rotary.tokens); token < end; ++token)
    rotate(rotary.step, token);
}

// Steps follow one another: the memory that one linear reads is free for the next.
void* StepChain::memory_for_inputs(Stream& stream, std::size_t bytes) {
  if (memory_.bytes() < bytes) {
    launch(stream.impl());
    memory_ = Buffer();
    memory_ = Buffer(stream.device_ptr(), bytes);
  }
  return memory_.data();
}

bool StepChain::are_prepared(const Inputs& wanted) {
  if (prepared_ == wanted) return true;
  prepared_ = wanted;
  return false;
}

void StepChain::forget_overwritten(const LinearStep& step, std::int64_t rows) {
  if (step.dst < prepared_.src + prepared_.rows * prepared_.in && prepared_.src < step.dst + rows * step.out) prepared_ = {};
}

void StepChain::add(Stream& stream, const LinearStep& step, WeightFormat format, std::int64_t rows) {
  Linear linear{step, format, rows, chunk_of(step.out, threads_)};
  if (step.gamma) {
    auto* const normed = static_cast<float*>(memory_for_inputs(stream, static_cast<std::size_t>(rows * step.in) * sizeof(float)));
    if (!are_prepared({step.src, step.gamma, step.beta, rows, step.in, 0})) steps_.push_back({rows, NormRows{step, normed}});
    linear.step.src = normed;
  }
  steps_.push_back({divide_up(step.out, linear.chunk), linear});
  forget_overwritten(step, rows);
}

void StepChain::add_by_bytes(Stream& stream, const LinearStep& step, std::int64_t rows) {
  constexpr std::int64_t most_outputs = 64;  // whose weights stay in the first cache while many rows meet them
  const ByteRowShape shape = byte_loops()->shape(step.in, step.group);
  auto* const bytes = static_cast<std::byte*>(memory_for_inputs(stream, static_cast<std::size_t>(rows * shape.bytes)));
  if (!are_prepared({step.src, step.gamma, step.beta, rows, step.in, step.group})) {
    const std::int64_t at_once = std::max<std::int64_t>(1, 4096 / step.in);
    steps_.push_back({divide_up(rows, at_once), QuantizeRows{step, shape, bytes, rows, at_once}});
  }
  const std::int64_t chunk = rows > most_few_rows ? std::min(chunk_of(step.out, threads_), most_outputs) : chunk_of(step.out, threads_);
  steps_.push_back({divide_up(step.out, chunk), ByteLinear{step, shape, bytes, rows, chunk}});
  forget_overwritten(step, rows);
}

void StepChain::add(Stream&, const AttentionStep& step, std::int64_t tokens) {
  steps_.push_back({tokens * step.shape.heads, step});
  prepared_ = {};
}

void StepChain::add_over_bytes(const ByteCacheStep& step, std::int64_t sequences) {
  steps_.push_back({sequences * step.of.shape.heads / step.of.shape.group, step});
  prepared_ = {};
}

void StepChain::add(Stream&, const RotaryStep& step, std::int64_t tokens) {
  const std::int64_t at_once = std::max<std::int64_t>(1, 4096 / (step.shape.heads * step.shape.head_dim));
  steps_.push_back({divide_up(tokens, at_once), RotateTokens{step, tokens, at_once}});
  prepared_ = {};
}

void StepChain::work() {
  for (std::size_t s = 0; s < running_.size(); ++s) {
    const ChainStep& step = running_[s];
    const auto before_done = [&] { return s == 0 || progress_[s - 1].finished.load(std::memory_order_acquire) == running_[s - 1].chunks; };
    for (std::int64_t chunk = progress_[s].claimed.fetch_add(1); chunk < step.chunks; chunk = progress_[s].claimed.fetch_add(1)) {
      for (int looks = 0; !before_done(); ++looks) looks < looks_before_yielding ? pause() : std::this_thread::yield();
      std::visit([&](const auto& what) { run(what, chunk); }, step.what);
      progress_[s].finished.fetch_add(1, std::memory_order_acq_rel);
    }
  }
}

void StepChain::launch(Stream::Impl& stream) {
  if (steps_.empty()) return;
  std::swap(steps_, running_);
  prepared_ = {};
  stream.wait();
  if (progress_.size() < running_.size()) progress_ = std::vector<Progress>(running_.size());
  for (std::size_t s = 0; s < running_.size(); ++s) progress_[s].claimed = progress_[s].finished = 0;
  for_parts(threads_, 1, [&](std::int64_t, std::int64_t) { work(); });
  running_.clear();
}

}  // namespace ppengine::ops::cpu
