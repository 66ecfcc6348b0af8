// Mixtures of experts: rows sorted by expert, each multiplied by its own expert's matrix. Computed densely: every row meets every expert,
// and what its own one gave is taken. How many rows an expert has depends on data; the shapes of this do not.
#include <fmt/core.h>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

using engine::number_text;

// src [rows, in], weights [experts, in, out], ends [experts]: rows up to ends[0] belong to the first expert. Rows behind all ends give
// zeros.
TensorRef Lowering::grouped_product(const TensorRef& given, const TensorRef& weights, const TensorRef& ends) {
  const TensorRef src = cast(given, 'f');
  if (src.rank() != 2 || weights.rank() != 3 || ends.rank() != 1) Arguments::refuse("is no product of rows by experts");
  const Dim rows = src.shape[0], experts = weights.shape[0], in = weights.shape[1], out = weights.shape[2];
  const TensorRef wide = build_.reshape(build_.permute(build_.read(weights), {1, 0, 2}), {in, experts * out});
  const TensorRef all = build_.reshape(build_.matmul(src, wide), {rows, experts, out});
  const TensorRef row = build_.reshape(build_.arange(rows, 0, 1, 'i'), {rows, 1});
  const TensorRef own = build_.reshape(
      build_.sum(build_.apply("$1 <= $0 ? 1 : 0", {"", ""}, {row, build_.reshape(ends, {1, experts})}, 'i'), {1}, false), {rows, 1, 1});
  const std::string last = fmt::format("{}", experts.fixed - 1);
  const TensorRef inside = build_.apply(fmt::format("$0 > {0} ? {0} : $0", last), {""}, {own}, 'i');
  const std::string belongs = fmt::format("$1 <= {}", last);
  return build_.reshape(build_.apply(belongs + " ? $0 : 0.0f", {belongs + " ? $g : 0.0f", ""}, {build_.take(all, inside), own}),
                        {rows, out});
}

std::optional<TensorRef> Lowering::lower_experts(const std::string& op, const Arguments& in) {
  if (op == "_grouped_mm" || op == "grouped_mm_fallback") {
    const bool native = op == "_grouped_mm";
    if (native && in.has("bias")) Arguments::refuse("has a bias");
    if (!in.has("offs")) return product(in.tensor("self"), in.tensor("mat2"));
    return grouped_product(in.tensor(native ? "self" : "input"), in.tensor(native ? "mat2" : "weight"), in.tensor("offs"));
  }
  if (op == "histc") {  // how many elements fall into each of even parts of [min, max]
    const double low = in.number("min", 0.0), high = in.number("max", 0.0);
    const std::int64_t bins = in.integer("bins", 100);
    if (!(low < high) || bins < 1) Arguments::refuse("takes its range from the data");
    const TensorRef x = cast(in.tensor("self"), 'f');
    const TensorRef each = build_.reshape(x, {count_of(x.shape), 1}), bin = build_.reshape(build_.arange(bins, 0, 1, 'i'), {1, bins});
    const std::string least = number_text(low), most = number_text(high);
    const std::string place = fmt::format("(int)(($0 - {0}) / ({1} - {0}) * {2})", least, most, number_text(double(bins)));
    const TensorRef counts =
        build_.apply(fmt::format("$0 >= {0} && $0 <= {1} && ({2} < {3} ? {2} : {3}) == $1 ? 1.0f : 0.0f", least, most, place, bins - 1),
                     {"", ""}, {each, bin});
    return build_.sum(counts, {0}, false);
  }
  return {};
}

}  // namespace ppengine::models
