// Random numbers that a program draws itself: seeded by step and sample as dropout is. Other numbers than PyTorch's, of the same
// distribution.
#include <fmt/core.h>

#include <cmath>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {

using engine::number_text;

std::optional<TensorRef> Lowering::lower_random(const std::string& op, const Arguments& in, char type) {
  static const std::set<std::string> known{"rand",    "rand_like",    "randn",  "randn_like", "uniform", "exponential",
                                           "randint", "randint_like", "normal", "bernoulli",  "rrelu"};
  if (!known.contains(op)) return {};
  const Dims shape = in.out_shape();
  const auto n = [](double value) { return number_text(value); };
  const auto of = [&](const std::string& value, bool normal) { return build_.apply(value, {""}, {build_.random(shape, normal)}, type); };
  if (op == "rand" || op == "rand_like") return build_.random(shape, false);
  if (op == "randn" || op == "randn_like") return build_.random(shape, true);
  if (op == "uniform")
    return of(fmt::format("{} + $0 * {}", n(in.number("from", 0.0)), n(in.number("to", 1.0) - in.number("from", 0.0))), false);
  if (op == "exponential") return of(fmt::format("-sycl::log(1.0f - $0) * {}", n(1.0 / in.number("lambd", 1.0))), false);
  if (op == "randint" || op == "randint_like") {
    const std::int64_t low = in.integer("low", 0), high = in.integer("high", 1);
    if (high <= low) Arguments::refuse("has no number to choose");
    const TensorRef whole =
        build_.apply(fmt::format("{} + (int)($0 * {})", low, n(double(high - low))), {""}, {build_.random(shape, false)}, 'i');
    return cast(whole, type);
  }
  if (op == "normal") {  // mean and std: numbers or tensors; in place: of all elements
    if (!in.is_tensor("mean") && !in.is_tensor("std"))
      return of(fmt::format("{} + $0 * {}", n(in.number("mean", 0.0)), n(in.number("std", 1.0))), true);
    return build_.apply("$0 + $1 * $2", {"", "", ""},
                        {cast(in.tensor("mean"), 'f'), build_.random(shape, true),
                         in.has("std") ? cast(in.tensor("std"), 'f') : build_.full({}, 1.0, 'f')});
  }
  if (op == "bernoulli") {
    const TensorRef drawn = build_.random(shape, false);
    if (in.has("p") && !in.is_tensor("p")) return build_.apply("$0 < " + n(in.number("p", 0.5)) + " ? 1 : 0", {""}, {drawn}, type);
    return build_.apply("$0 < $1 ? 1 : 0", {"", ""}, {drawn, build_.expand(in.tensor(in.has("p") ? "p" : "self"), shape)}, type);
  }
  if (op == "rrelu" && in.boolean("training", false)) {
    const double low = in.number("lower", 0.125), high = in.number("upper", 1.0 / 3.0);
    const TensorRef slope =
        options_.dropout ? of(fmt::format("{} + $0 * {}", n(low), n(high - low)), false) : build_.full(shape, 0.5 * (low + high), 'f');
    return build_.apply("$0 > 0 ? $0 : $0 * $1", {"$0 > 0 ? $g : $g * $1", ""}, {in.tensor("self"), slope});
  }
  return {};
}

}  // namespace ppengine::models
