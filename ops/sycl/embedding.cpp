// Token and position embedding: our kernels serve every device (oneDNN has none).
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

class SyclEmbedding final : public Embedding {
 public:
  SyclEmbedding(Device& device, const EmbeddingSpec& spec)
      : spec_(spec),
        tokens_(spec.batch * spec.length),
        forward_(typed_kernel(device, "loss", "embedding", spec.type)),
        chain_(device.kernels().get("loss", "embedding_chain")),
        backward_tokens_(typed_kernel(device, "loss", "embedding_backward_tokens", spec.type)),
        backward_positions_(typed_kernel(device, "loss", "embedding_backward_positions", spec.type)),
        rows_(split_rows(device, tokens_, spec.width)),
        positions_(split_rows(device, spec.length, spec.width)),
        chain_size_(device.info().is_cpu ? cpu_lanes : 256),
        next_(device.shared_from_this(), static_cast<std::size_t>(std::max<std::int64_t>(tokens_, 1)) * sizeof(std::int32_t)) {}

  void forward(Stream& stream, const std::int32_t* ids, const void* token_table, const void* position_table, const std::int32_t* first,
               void* dst) override {
    forward_.launch(stream, rows_.groups, rows_.size, ids, token_table, spec_.positions > 0 ? position_table : nullptr, first, dst, tokens_,
                    spec_.length, spec_.width, spec_.vocabulary, spec_.positions, spec_.first_token, rows_.chunk);
  }

  void backward_weight(Stream& stream, const std::int32_t* ids, const void* diff_dst, float* diff_tokens, float* diff_positions,
                       bool accumulate) override {
    if (!accumulate) stream.zero(diff_tokens, table_bytes(spec_.vocabulary));
    chain_.launch(stream, static_cast<std::size_t>(divide_up(tokens_, static_cast<std::int64_t>(chain_size_))), chain_size_, ids,
                  next_.as<std::int32_t>(), tokens_, spec_.first_token, spec_.vocabulary, spec_.padding);
    backward_tokens_.launch(stream, rows_.groups, rows_.size, ids, static_cast<const std::int32_t*>(next_.data()), diff_dst, diff_tokens,
                            tokens_, spec_.width, spec_.first_token, rows_.chunk);
    if (spec_.positions == 0 || !diff_positions) return;
    if (!accumulate) stream.zero(diff_positions + spec_.length * spec_.width, table_bytes(spec_.positions - spec_.length));
    backward_positions_.launch(stream, positions_.groups, positions_.size, diff_dst, diff_positions, spec_.batch, spec_.length, spec_.width,
                               int{accumulate}, positions_.chunk);
  }

 private:
  std::size_t table_bytes(std::int64_t rows) const { return static_cast<std::size_t>(rows * spec_.width) * sizeof(float); }

  EmbeddingSpec spec_;
  std::int64_t tokens_;
  const Kernel &forward_, &chain_, &backward_tokens_, &backward_positions_;
  Split rows_, positions_;
  std::size_t chain_size_;
  Buffer next_;  // per token: the next one with the same id
};

}  // namespace

constexpr Implementation<Embedding, EmbeddingSpec> sycl_embedding{"sycl", takes_all, construct<SyclEmbedding>};

}  // namespace ppengine::ops
