// Layers that normalize: layer, RMS, group, instance and batch norm, and weights given as direction and length.
#include <fmt/core.h>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

using engine::number_text;

TensorRef Lowering::by_channel(TensorRef y, const TensorRef& gamma, const TensorRef& beta) {
  Dims shape(y.shape.size(), Dim(1));
  shape[1] = y.shape[1];
  if (gamma.exists()) y = build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {y, build_.reshape(gamma, shape)});
  if (beta.exists()) y = build_.apply("$0 + $1", {"$g", "$g"}, {y, build_.reshape(beta, shape)});
  return y;
}

TensorRef Lowering::group_norm(const TensorRef& src, const Dim& groups, const TensorRef& gamma, const TensorRef& beta, double epsilon) {
  const auto weight = [](const TensorRef& one) { return one.parameter >= 0 && one.dense(); };
  const bool plain = gamma.exists() == beta.exists() && (!gamma.exists() || (weight(gamma) && weight(beta)));
  if (options_.patterns && groups.constant()) {
    if (plain) return build_.group_norm(src, groups.fixed, gamma, beta, epsilon);
    return by_channel(build_.group_norm(src, groups.fixed, {}, {}, epsilon), gamma, beta);
  }
  const Dim rows = src.shape[0] * groups;
  const std::int64_t width = (count_of(src.shape) / rows).fixed;
  return by_channel(build_.reshape(build_.layer_norm(build_.reshape(src, {rows, width}), width, {}, {}, epsilon), src.shape), gamma, beta);
}

// Batch norm, and instance norm that keeps statistics.
TensorRef Lowering::running_norm(const Arguments& in, bool per_sample) {
  if (in.tensor("input").rank() < 2) Arguments::refuse("has no channels");
  engine::TensorBuilder::BatchNorm how;
  const auto buffer = [&](const char* name) -> TensorRef {
    if (!in.has(name)) return {};
    const auto found = buffers_.find(in.first_name(name));
    if (found == buffers_.end()) Arguments::refuse(fmt::format("its {} is no buffer", name));
    return build_.parameter(parameter_of(found->second, true));
  };
  how.gamma = in.tensor_or_none("weight"), how.beta = in.tensor_or_none("bias");
  how.mean = buffer("running_mean"), how.variance = buffer("running_var");
  how.training = in.boolean(per_sample ? "use_input_stats" : "training", false);
  how.momentum = in.number("momentum", 0.1), how.epsilon = in.number("eps", 1e-5);
  how.per_sample = per_sample, how.over_ranks = !per_sample && options_.sync_batchnorm;
  const TensorRef gamma = how.gamma, beta = how.beta;
  const bool plain = gamma.exists() == beta.exists() && (!gamma.exists() || (gamma.parameter >= 0 && beta.parameter >= 0));
  if (plain && !per_sample) return build_.batch_norm(in.tensor("input"), how);
  how.gamma = how.beta = {};
  return by_channel(build_.batch_norm(in.tensor("input"), how), gamma, beta);
}

std::optional<TensorRef> Lowering::lower_norms(const std::string& op, const Arguments& in) {
  if (op == "layer_norm") {
    std::int64_t width = 1;
    for (std::int64_t size : in.integers("normalized_shape")) width *= size;
    return build_.layer_norm(in.tensor("input"), width, in.tensor_or_none("weight"), in.tensor_or_none("bias"), in.number("eps", 1e-5));
  }
  if (op == "rms_norm") {
    std::int64_t width = 1;
    for (std::int64_t size : in.integers("normalized_shape")) width *= size;
    const TensorRef src = in.tensor("input"), x = build_.reshape(src, {count_of(src.shape) / Dim(width), width});
    const std::string eps = number_text(in.number("eps", 1.1920929e-07));
    if (options_.patterns && in.has("weight") && in.tensor("weight").parameter >= 0 && in.tensor("weight").dense())
      return build_.rms_norm(src, width, in.tensor("weight"), 0.0, in.number("eps", 1.1920929e-07));
    const TensorRef square = build_.mean(build_.apply("$0 * $0", {"2.0f * $g * $0"}, {x}), {1}, true);
    TensorRef y =
        build_.apply(fmt::format("$0 / sycl::sqrt($1 + {})", eps),
                     {fmt::format("$g / sycl::sqrt($1 + {})", eps), fmt::format("-0.5f * $g * $r / ($1 + {})", eps)}, {x, square});
    if (in.has("weight")) y = build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {y, build_.reshape(in.tensor("weight"), {width})});
    return build_.reshape(y, src.shape);
  }
  if ((op == "group_norm" || op == "instance_norm") && in.tensor("input").rank() < 2) Arguments::refuse("has no channels");
  if (op == "group_norm")
    return group_norm(in.tensor("input"), in.integer("num_groups", 1), in.tensor_or_none("weight"), in.tensor_or_none("bias"),
                      in.number("eps", 1e-5));
  if (op == "instance_norm") {
    if (in.has("running_mean")) return running_norm(in, true);
    const TensorRef src = in.tensor("input");
    return group_norm(src, src.shape[1], in.tensor_or_none("weight"), in.tensor_or_none("bias"), in.number("eps", 1e-5));
  }
  if (op == "batch_norm" || op == "_native_batch_norm_legit_functional" || op == "cudnn_batch_norm") return running_norm(in, false);
  if (op == "_weight_norm") {  // v, and its length along all dimensions but one
    const TensorRef v = in.tensor("v"), g = in.tensor("g");
    const int d = in.dim("dim", 0, v.rank());
    std::vector<int> others;
    for (int i = 0; i < v.rank(); ++i)
      if (i != d) others.push_back(i);
    const TensorRef square = build_.sum(build_.apply("$0 * $0", {"2.0f * $g * $0"}, {v}), others, true);
    return build_.apply("$0 * $1 / sycl::sqrt($2)", {"$g * $1 / sycl::sqrt($2)", "$g * $0 / sycl::sqrt($2)", "-0.5f * $g * $r / $2"},
                        {v, g, square});
  }
  return {};
}

}  // namespace ppengine::models
