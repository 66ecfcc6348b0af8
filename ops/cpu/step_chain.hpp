// Steps of decoding that follow one another on a CPU's stream, held back and run together by a team of threads: a launch of each costs as
// much as a megabyte of weights. Operands must stay where they are until the stream is waited for.
#pragma once

#include <atomic>
#include <variant>
#include <vector>

#include <ppengine/ops/cpu/loops_byte_cache.hpp>
#include <ppengine/ops/cpu/loops_steps.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops::cpu {

class StepChain final : public HeldBack {
 public:
  // The stream's own; where refusal() has no objection.
  static StepChain& of(Stream& stream);
  explicit StepChain(Stream& stream);

  // A linear over up to most_few_rows rows with weights in this format, but int4.
  void add(Stream& stream, const LinearStep& step, WeightFormat format, std::int64_t rows);
  void add(Stream& stream, const AttentionStep& step, std::int64_t tokens);
  void add(Stream& stream, const RotaryStep& step, std::int64_t tokens);
  // A linear with 4-bit weights over any number of rows, whose inputs are rounded to bytes.
  void add_by_bytes(Stream& stream, const LinearStep& step, std::int64_t rows);
  // Attention over a cache of bytes, of any number of tokens.
  void add_over_bytes(const ByteCacheStep& step, std::int64_t sequences);
  void launch(Stream::Impl& stream) override;

 private:
  // What linears read: rows that are normed, or bytes. Linears that follow one another often read the same.
  struct Inputs {
    const float *src = nullptr, *gamma = nullptr, *beta = nullptr;
    std::int64_t rows = 0, in = 0, group = 0;  // group: of bytes; 0 for f32
    bool operator==(const Inputs&) const = default;
  };
  struct NormRows {
    LinearStep of;
    float* dst;
  };
  struct QuantizeRows {
    LinearStep of;
    ByteRowShape shape;
    std::byte* dst;
    std::int64_t rows, at_once;
  };
  struct Linear {
    LinearStep step;
    WeightFormat format;
    std::int64_t rows, chunk;
  };
  struct ByteLinear {
    LinearStep step;
    ByteRowShape shape;
    const std::byte* bytes;
    std::int64_t rows, chunk;
  };
  struct RotateTokens {
    RotaryStep step;
    std::int64_t tokens, at_once;
  };
  struct ChainStep {
    std::int64_t chunks;
    std::variant<NormRows, QuantizeRows, Linear, ByteLinear, AttentionStep, ByteCacheStep, RotateTokens> what;
  };
  // Counts of one step's chunks; on a line of its own, since all threads look at it.
  struct alignas(64) Progress {
    std::atomic<std::int64_t> claimed{0}, finished{0};
  };

  static void run(const NormRows& norm, std::int64_t row);
  static void run(const QuantizeRows& quantize, std::int64_t part);
  static void run(const Linear& linear, std::int64_t part);
  static void run(const ByteLinear& linear, std::int64_t part);
  static void run(const AttentionStep& attention, std::int64_t chunk);
  static void run(const ByteCacheStep& attention, std::int64_t chunk);
  static void run(const RotateTokens& rotate, std::int64_t part);

  bool are_prepared(const Inputs& wanted);
  void forget_overwritten(const LinearStep& step, std::int64_t rows);
  void* memory_for_inputs(Stream& stream, std::size_t bytes);
  void work();

  std::int64_t threads_;
  std::vector<ChainStep> steps_, running_;
  std::vector<Progress> progress_;
  Buffer memory_;
  Inputs prepared_;
};

}  // namespace ppengine::ops::cpu
