// Products of matrices and vectors beyond plain ones, and their norms.
#include <fmt/core.h>

#include <algorithm>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

using engine::number_text;

std::optional<std::vector<TensorRef>> Lowering::lower_algebra(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  const auto floats = [&](const char* name) { return cast(in.tensor(name), 'f'); };
  if (op == "kron") {
    const TensorRef a = floats("self"), b = floats("other");
    const std::size_t rank = std::max(a.shape.size(), b.shape.size());
    const auto between = [&](const TensorRef& x, bool first) {  // [a0, 1, a1, 1, ...] or [1, b0, 1, b1, ...]
      Dims shape;
      for (std::size_t i = 0; i < rank; ++i) {
        const Dim size = i + x.shape.size() < rank ? Dim(1) : x.shape[i + x.shape.size() - rank];
        shape.push_back(first ? size : Dim(1)), shape.push_back(first ? Dim(1) : size);
      }
      return build_.reshape(x, shape);
    };
    return one(build_.reshape(build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {between(a, true), between(b, false)}), in.out_shape()));
  }
  if (op == "linalg_vecdot") {
    const TensorRef product = build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {floats("x"), floats("y")});
    return one(build_.sum(product, {in.dim("dim", -1, product.rank())}, false));
  }
  if (op == "linalg_multi_dot" || op == "chain_matmul") {
    const auto parts = in.tensors(op == "chain_matmul" ? "matrices" : "tensors");
    TensorRef all = parts.at(0);
    for (std::size_t i = 1; i < parts.size(); ++i) all = product(all, parts[i]);
    return one(all);
  }
  if (op == "linalg_matrix_power" || op == "matrix_power") {
    const std::int64_t n = in.integer("n", 1);
    if (n < 1 || n > 64) Arguments::refuse(fmt::format("to the power {}", n));
    const TensorRef x = floats("self");
    TensorRef all = x;
    for (std::int64_t i = 1; i < n; ++i) all = build_.matmul(all, x);
    return one(all);
  }
  if (op == "addbmm") {
    const TensorRef sum = build_.sum(build_.matmul(in.tensor("batch1"), in.tensor("batch2"), in.number("alpha", 1.0)), {0}, false);
    const std::string beta = number_text(in.number("beta", 1.0));
    return one(build_.apply("$0 + " + beta + " * $1", {"$g", "$g * " + beta}, {sum, in.tensor("self")}));
  }
  if (op == "linalg_matrix_norm" && in.text("ord", "fro") == "fro") {
    const TensorRef x = floats("self");
    const auto dims = in.has("dim") ? in.dims("dim", x.rank()) : std::vector<int>{x.rank() - 2, x.rank() - 1};
    const TensorRef total = build_.sum(build_.apply("$0 * $0", {"2.0f * $g * $0"}, {x}), dims, in.boolean("keepdim", false));
    return one(build_.apply("sycl::sqrt($0)", {"$r > 0 ? $g * 0.5f / $r : 0.0f"}, {total}));
  }
  if ((op == "trapezoid" || op == "trapz") && !in.is_tensor("x")) {
    const TensorRef y = floats("y");
    const int d = in.dim("dim", -1, y.rank());
    const Dim fewer = y.shape[static_cast<std::size_t>(d)] - Dim(1);
    const std::string half = number_text(0.5 * in.number("dx", 1.0));
    return one(build_.sum(
        build_.apply("($0 + $1) * " + half, {"$g * " + half, "$g * " + half}, {build_.slice(y, d, 0, fewer), build_.slice(y, d, 1, fewer)}),
        {d}, false));
  }
  return {};
}

}  // namespace ppengine::models
