// Elementwise ops as lines of kernel code with their gradients: the long tail is a table.
#include <fmt/core.h>

#include <cmath>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::number_text;

struct Line {
  const char* value;
  std::vector<const char*> gradients;
};

// Of one operand, floats.
const std::map<std::string, Line>& unary() {
  static const std::map<std::string, Line> table{
      {"relu", {"$0 < 0 ? 0.0f : $0", {"$r > 0 ? $g : 0.0f"}}},
      {"silu", {"$0 * logistic($0)", {"$g * logistic($0) * (1.0f + $0 * (1.0f - logistic($0)))"}}},
      {"sigmoid", {"logistic($0)", {"$g * $r * (1.0f - $r)"}}},
      {"tanh", {"sycl::tanh($0)", {"$g * (1.0f - $r * $r)"}}},
      {"exp", {"sycl::exp($0)", {"$g * $r"}}},
      {"exp2", {"sycl::exp2($0)", {"$g * $r * 0.693147181f"}}},
      {"expm1", {"sycl::expm1($0)", {"$g * ($r + 1.0f)"}}},
      {"log", {"sycl::log($0)", {"$g / $0"}}},
      {"log2", {"sycl::log2($0)", {"$g / ($0 * 0.693147181f)"}}},
      {"log10", {"sycl::log10($0)", {"$g / ($0 * 2.30258509f)"}}},
      {"log1p", {"sycl::log1p($0)", {"$g / (1.0f + $0)"}}},
      {"sqrt", {"sycl::sqrt($0)", {"$g * 0.5f / $r"}}},
      {"rsqrt", {"1.0f / sycl::sqrt($0)", {"-0.5f * $g * $r / $0"}}},
      {"square", {"$0 * $0", {"2.0f * $g * $0"}}},
      {"reciprocal", {"1.0f / $0", {"-$g * $r * $r"}}},
      {"sin", {"sycl::sin($0)", {"$g * sycl::cos($0)"}}},
      {"cos", {"sycl::cos($0)", {"-$g * sycl::sin($0)"}}},
      {"tan", {"sycl::tan($0)", {"$g * (1.0f + $r * $r)"}}},
      {"asin", {"sycl::asin($0)", {"$g / sycl::sqrt(1.0f - $0 * $0)"}}},
      {"acos", {"sycl::acos($0)", {"-$g / sycl::sqrt(1.0f - $0 * $0)"}}},
      {"atan", {"sycl::atan($0)", {"$g / (1.0f + $0 * $0)"}}},
      {"sinh", {"sycl::sinh($0)", {"$g * sycl::cosh($0)"}}},
      {"cosh", {"sycl::cosh($0)", {"$g * sycl::sinh($0)"}}},
      {"erf", {"sycl::erf($0)", {"$g * 1.12837917f * sycl::exp(-$0 * $0)"}}},
      {"erfc", {"sycl::erfc($0)", {"-$g * 1.12837917f * sycl::exp(-$0 * $0)"}}},
      {"asinh", {"sycl::asinh($0)", {"$g / sycl::sqrt($0 * $0 + 1.0f)"}}},
      {"acosh", {"sycl::acosh($0)", {"$g / sycl::sqrt($0 * $0 - 1.0f)"}}},
      {"atanh", {"sycl::atanh($0)", {"$g / (1.0f - $0 * $0)"}}},
      {"frac", {"$0 - sycl::trunc($0)", {"$g"}}},
      {"erfinv", {"inverse_erf($0)", {"$g * 0.886226925f * sycl::exp($r * $r)"}}},
      {"lgamma", {"sycl::lgamma($0)", {"$g * digamma_of($0)"}}},
      {"digamma", {"digamma_of($0)", {"$g * trigamma_of($0)"}}},
      {"sinc",
       {"$0 == 0 ? 1.0f : sycl::sinpi($0) / (3.14159265f * $0)",
        {"$0 == 0 ? 0.0f : $g * (sycl::cospi($0) - sycl::sinpi($0) / (3.14159265f * $0)) / $0"}}},
      {"special_ndtr", {"0.5f * sycl::erfc(-0.707106781f * $0)", {"$g * 0.39894228f * sycl::exp(-0.5f * $0 * $0)"}}},
      {"special_entr", {"$0 > 0 ? -$0 * sycl::log($0) : $0 == 0 ? 0.0f : -__builtin_inff()", {"-$g * (sycl::log($0) + 1.0f)"}}},
      {"rad2deg", {"$0 * 57.2957795f", {"$g * 57.2957795f"}}},
      {"deg2rad", {"$0 * 0.0174532925f", {"$g * 0.0174532925f"}}},
      {"floor", {"sycl::floor($0)", {""}}},
      {"ceil", {"sycl::ceil($0)", {""}}},
      {"round", {"sycl::rint($0)", {""}}},
      {"trunc", {"sycl::trunc($0)", {""}}},
      {"relu6", {"$0 < 0 ? 0.0f : $0 > 6.0f ? 6.0f : $0", {"$0 > 0 && $0 < 6.0f ? $g : 0.0f"}}},
      {"hardsigmoid", {"$0 <= -3.0f ? 0.0f : $0 >= 3.0f ? 1.0f : $0 / 6.0f + 0.5f", {"$0 > -3.0f && $0 < 3.0f ? $g / 6.0f : 0.0f"}}},
      {"hardswish",
       {"$0 <= -3.0f ? 0.0f : $0 >= 3.0f ? $0 : $0 * ($0 + 3.0f) / 6.0f",
        {"$0 <= -3.0f ? 0.0f : $0 < 3.0f ? $g * ($0 / 3.0f + 0.5f) : $g"}}},
      {"mish",
       {"$0 * sycl::tanh(soft_plus($0))",
        {"$g * (sycl::tanh(soft_plus($0)) + $0 * logistic($0) * (1.0f - sycl::tanh(soft_plus($0)) * sycl::tanh(soft_plus($0))))"}}},
      {"log_sigmoid", {"-soft_plus(-$0)", {"$g * (1.0f - logistic($0))"}}},
      {"softsign", {"$0 / (1.0f + sycl::fabs($0))", {"$g / ((1.0f + sycl::fabs($0)) * (1.0f + sycl::fabs($0)))"}}},
      {"selu",
       {"1.05070099f * ($0 > 0 ? $0 : 1.67326324f * sycl::expm1($0))",
        {"$g * 1.05070099f * ($0 > 0 ? 1.0f : 1.67326324f * sycl::exp($0))"}}},
  };
  return table;
}

// Of two operands; types follow C's rules, which are PyTorch's for what occurs.
const std::map<std::string, Line>& binary() {
  static const std::map<std::string, Line> table{
      {"mul", {"$0 * $1", {"$g * $1", "$g * $0"}}},
      {"maximum", {"$0 > $1 ? $0 : $1", {"$0 > $1 ? $g : $0 == $1 ? 0.5f * $g : 0.0f", "$1 > $0 ? $g : $0 == $1 ? 0.5f * $g : 0.0f"}}},
      {"minimum", {"$0 < $1 ? $0 : $1", {"$0 < $1 ? $g : $0 == $1 ? 0.5f * $g : 0.0f", "$1 < $0 ? $g : $0 == $1 ? 0.5f * $g : 0.0f"}}},
      {"eq", {"$0 == $1 ? 1 : 0", {"", ""}}},
      {"ne", {"$0 != $1 ? 1 : 0", {"", ""}}},
      {"lt", {"$0 < $1 ? 1 : 0", {"", ""}}},
      {"le", {"$0 <= $1 ? 1 : 0", {"", ""}}},
      {"gt", {"$0 > $1 ? 1 : 0", {"", ""}}},
      {"ge", {"$0 >= $1 ? 1 : 0", {"", ""}}},
      {"logical_and", {"($0 != 0 && $1 != 0) ? 1 : 0", {"", ""}}},
      {"logical_or", {"($0 != 0 || $1 != 0) ? 1 : 0", {"", ""}}},
      {"logical_xor", {"($0 != 0) != ($1 != 0) ? 1 : 0", {"", ""}}},
      {"__and__", {"$0 & $1", {"", ""}}},
      {"__or__", {"$0 | $1", {"", ""}}},
      {"__xor__", {"$0 ^ $1", {"", ""}}},
      {"bitwise_and", {"$0 & $1", {"", ""}}},
      {"bitwise_or", {"$0 | $1", {"", ""}}},
      {"bitwise_xor", {"$0 ^ $1", {"", ""}}},
      {"__lshift__", {"$0 << $1", {"", ""}}},
      {"__rshift__", {"$0 >> $1", {"", ""}}},
      {"bitwise_left_shift", {"$0 << $1", {"", ""}}},
      {"bitwise_right_shift", {"$0 >> $1", {"", ""}}},
      {"logaddexp2",
       {"($0 > $1 ? $0 : $1) + 1.44269504f * sycl::log1p(sycl::exp2(-sycl::fabs($0 - $1)))",
        {"$g * logistic(0.693147181f * ($0 - $1))", "$g * logistic(0.693147181f * ($1 - $0))"}}},
      {"floor_divide", {"floor_div($0, $1)", {"", ""}}},
      {"remainder", {"floor_mod($0, $1)", {"$g", ""}}},
      {"logaddexp",
       {"($0 > $1 ? $0 : $1) + sycl::log1p(sycl::exp(-sycl::fabs($0 - $1)))", {"$g * logistic($0 - $1)", "$g * logistic($1 - $0)"}}},
      {"copysign", {"sycl::copysign($0, $1)", {"$0 == 0 ? 0.0f : $r == $0 ? $g : -$g", ""}}},
      {"ldexp", {"(float)$0 * sycl::exp2((float)$1)", {"$g * sycl::exp2((float)$1)", ""}}},
      {"hypot", {"sycl::hypot($0, $1)", {"$r > 0 ? $g * $0 / $r : 0.0f", "$r > 0 ? $g * $1 / $r : 0.0f"}}},
      {"xlogy", {"$0 == 0 ? 0.0f : $0 * sycl::log($1)", {"$g * sycl::log($1)", "$g * $0 / $1"}}},
      {"fmax", {"sycl::fmax($0, $1)", {"$0 >= $1 ? $g : 0.0f", "$1 > $0 ? $g : 0.0f"}}},
      {"fmin", {"sycl::fmin($0, $1)", {"$0 <= $1 ? $g : 0.0f", "$1 < $0 ? $g : 0.0f"}}},
      {"atan2", {"sycl::atan2((float)$0, (float)$1)", {"$g * $1 / ($0 * $0 + $1 * $1)", "-$g * $0 / ($0 * $0 + $1 * $1)"}}},
  };
  return table;
}

std::vector<std::string> texts(const std::vector<const char*>& from) { return {from.begin(), from.end()}; }

}  // namespace

std::optional<TensorRef> Lowering::lower_pointwise(const std::string& op, const Arguments& in, char type) {
  const auto floats = [&](const char* name) { return cast(in.tensor(name), 'f'); };
  if (const auto found = unary().find(op); found != unary().end()) {
    if (op == "round" && in.integer("decimals", 0) != 0) {
      const double scale = std::pow(10.0, double(in.integer("decimals", 0)));
      return build_.apply(fmt::format("sycl::rint($0 * {0}) / {0}", number_text(scale)), {""}, {floats("self")});
    }
    if (op == "relu" && type == 'i') return build_.apply("$0 < 0 ? 0 : $0", {""}, {in.tensor("self")}, 'i');
    return build_.apply(found->second.value, texts(found->second.gradients), {floats("self")});
  }
  if (const auto found = binary().find(op); found != binary().end()) {
    TensorRef a = in.tensor("self"), b = in.tensor("other");
    if (op == "floor_divide" || op == "remainder") {  // one type, so that the right function is found
      const char common = a.type == 'f' || b.type == 'f' ? 'f' : 'i';
      a = cast(a, common), b = cast(b, common);
    }
    return build_.apply(found->second.value, texts(found->second.gradients), {a, b}, type);
  }
  const auto n = [](double value) { return number_text(value); };
  if (op == "add" || op == "sub" || op == "rsub") {
    const double alpha = in.number("alpha", 1.0);
    TensorRef a = in.tensor("self"), b = in.tensor("other");
    if (op == "rsub") std::swap(a, b);
    const bool scaled = alpha != 1.0, minus = op != "add";
    if (type == 'b') return build_.apply("($0 != 0 || $1 != 0) ? 1 : 0", {"", ""}, {a, b}, 'b');
    const std::string factor = type == 'f' ? n(alpha) : std::to_string(static_cast<std::int64_t>(alpha));
    // rsub: other - alpha * self
    return build_.apply(fmt::format("$0 {} {}", minus ? "-" : "+", scaled ? factor + " * $1" : "$1"),
                        {"$g", fmt::format("{}$g{}", minus ? "-" : "", scaled ? " * " + factor : "")}, {a, b}, type);
  }
  if (op == "div" || op == "divide" || op == "true_divide") {
    const std::string rounding = in.text("rounding_mode", "");
    TensorRef a = in.tensor("self"), b = in.tensor("other");
    if (rounding.empty()) return build_.apply("(float)$0 / (float)$1", {"$g / $1", "-$g * $r / $1"}, {cast(a, 'f'), cast(b, 'f')});
    const char common = a.type == 'f' || b.type == 'f' ? 'f' : 'i';
    a = cast(a, common), b = cast(b, common);
    if (rounding == "floor") return build_.apply("floor_div($0, $1)", {"", ""}, {a, b}, type);
    return build_.apply(common == 'f' ? "sycl::trunc($0 / $1)" : "$0 / $1", {"", ""}, {a, b}, type);
  }
  if (op == "fmod") return build_.apply("sycl::fmod((float)$0, (float)$1)", {"$g", ""}, {in.tensor("self"), in.tensor("other")}, type);
  if (op == "pow" || op == "float_power") {
    if (!in.is_tensor("exponent")) {
      const double p = in.number("exponent", 1.0);
      const TensorRef x = in.tensor("self");
      if (type != 'f') return build_.apply(fmt::format("int_power($0, {})", static_cast<int>(p)), {""}, {x}, type);
      if (p == 2.0) return build_.apply("$0 * $0", {"2.0f * $g * $0"}, {cast(x, 'f')});
      if (p == 3.0) return build_.apply("$0 * $0 * $0", {"3.0f * $g * $0 * $0"}, {cast(x, 'f')});
      if (p == 0.0) return build_.apply("1.0f", {"0.0f"}, {cast(x, 'f')});
      if (p == 1.0) return build_.apply("$0", {"$g"}, {cast(x, 'f')});
      if (p == 0.5) return build_.apply("sycl::sqrt($0)", {"$g * 0.5f / $r"}, {cast(x, 'f')});
      if (p == std::floor(p) && std::abs(p) < 64)
        return build_.apply(fmt::format("sycl::pown($0, {})", static_cast<int>(p)),
                            {fmt::format("$g * {} * sycl::pown($0, {})", n(p), static_cast<int>(p) - 1)}, {cast(x, 'f')});
      return build_.apply(fmt::format("sycl::pow($0, {})", n(p)), {fmt::format("$g * {} * sycl::pow($0, {})", n(p), n(p - 1))},
                          {cast(x, 'f')});
    }
    return build_.apply("sycl::pow($0, $1)",
                        {"$1 == 0 ? 0.0f : $g * $1 * sycl::pow($0, $1 - 1.0f)", "$0 > 0 ? $g * $r * sycl::log($0) : 0.0f"},
                        {floats("self"), floats("exponent")});
  }
  if (op == "neg") return build_.apply("-$0", {"-$g"}, {in.tensor("self")}, type);
  if (op == "abs")
    return build_.apply(type == 'f' ? "sycl::fabs($0)" : "($0 < 0 ? -$0 : $0)", {"$g * sign_of($0)"}, {in.tensor("self")}, type);
  if (op == "sign" || op == "sgn")
    return build_.apply(type == 'f' ? "sign_of($0)" : "($0 > 0) - ($0 < 0)", {""}, {in.tensor("self")}, type);
  if (op == "logical_not") return build_.apply("$0 == 0 ? 1 : 0", {""}, {in.tensor("self")}, 'b');
  if (op == "bitwise_not") return build_.apply(type == 'b' ? "$0 == 0 ? 1 : 0" : "~$0", {""}, {in.tensor("self")}, type);
  if (op == "isfinite") return build_.apply("sycl::fabs((float)$0) < __builtin_inff() ? 1 : 0", {""}, {in.tensor("self")}, 'b');
  if (op == "signbit") return build_.apply("$0 < 0 ? 1 : 0", {""}, {in.tensor("self")}, 'b');
  if (op == "heaviside") return build_.apply("$0 > 0 ? 1.0f : $0 == 0 ? $1 : 0.0f", {"", ""}, {floats("self"), floats("values")});
  if (op == "isnan") return build_.apply("$0 != $0 ? 1 : 0", {""}, {in.tensor("self")}, 'b');
  if (op == "isinf") return build_.apply("sycl::fabs((float)$0) == __builtin_inff() ? 1 : 0", {""}, {in.tensor("self")}, 'b');
  if (op == "nan_to_num") {
    const double low = in.number("neginf", -3.4028234663852886e38), high = in.number("posinf", 3.4028234663852886e38);
    return build_.apply(fmt::format("$0 != $0 ? {0} : $0 > {2} ? {2} : $0 < {1} ? {1} : $0", n(in.number("nan", 0.0)), n(low), n(high)),
                        {fmt::format("$0 == $0 && $0 <= {1} && $0 >= {0} ? $g : 0.0f", n(low), n(high))}, {floats("self")});
  }
  if (op == "gelu") {
    if (in.text("approximate", "none") == "tanh")
      return build_.apply(
          "0.5f * $0 * (1.0f + sycl::tanh(0.797884561f * ($0 + 0.044715f * $0 * $0 * $0)))",
          {"$g * (0.5f * (1.0f + sycl::tanh(0.797884561f * ($0 + 0.044715f * $0 * $0 * $0))) + 0.5f * $0 * (1.0f - "
           "sycl::tanh(0.797884561f * ($0 + 0.044715f * $0 * $0 * $0)) * sycl::tanh(0.797884561f * ($0 + 0.044715f * $0 * $0 * "
           "$0))) * 0.797884561f * (1.0f + 0.134145f * $0 * $0))"},
          {in.tensor("self")});
    return build_.apply("0.5f * $0 * (1.0f + sycl::erf($0 * 0.707106781f))",
                        {"$g * (0.5f * (1.0f + sycl::erf($0 * 0.707106781f)) + $0 * 0.39894228f * sycl::exp(-0.5f * $0 * $0))"},
                        {in.tensor("self")});
  }
  if (op == "leaky_relu") {
    const std::string slope = n(in.number("negative_slope", 0.01));
    return build_.apply(fmt::format("$0 > 0 ? $0 : $0 * {}", slope), {fmt::format("$0 > 0 ? $g : $g * {}", slope)}, {in.tensor("self")});
  }
  if (op == "rrelu" && !in.boolean("training", false)) {
    const std::string slope = n(0.5 * (in.number("lower", 0.125) + in.number("upper", 1.0 / 3.0)));
    return build_.apply(fmt::format("$0 > 0 ? $0 : $0 * {}", slope), {fmt::format("$0 > 0 ? $g : $g * {}", slope)}, {in.tensor("self")});
  }
  if (op == "prelu" || op == "_prelu_kernel") {
    const TensorRef x = in.tensor("self");
    TensorRef w = in.tensor("weight");
    if (w.rank() == 1 && x.rank() > 1) {
      Dims shape(static_cast<std::size_t>(x.rank()), Dim(1));
      shape[1] = w.shape[0];
      w = build_.reshape(w, shape);
    }
    return build_.apply("$0 > 0 ? $0 : $0 * $1", {"$0 > 0 ? $g : $g * $1", "$0 > 0 ? 0.0f : $g * $0"}, {x, w});
  }
  if (op == "elu" || op == "celu") {
    const double alpha = in.number("alpha", 1.0), scale = in.number("scale", 1.0),
                 inner = op == "celu" ? 1.0 / alpha : in.number("input_scale", 1.0);
    return build_.apply(fmt::format("$0 > 0 ? $0 * {1} : {0} * {1} * sycl::expm1($0 * {2})", n(alpha), n(scale), n(inner)),
                        {fmt::format("$0 > 0 ? $g * {1} : $g * {0} * {1} * {2} * sycl::exp($0 * {2})", n(alpha), n(scale), n(inner))},
                        {in.tensor("self")});
  }
  if (op == "softplus") {
    const std::string beta = n(in.number("beta", 1.0)), limit = n(in.number("threshold", 20.0));
    return build_.apply(fmt::format("$0 * {0} > {1} ? $0 : sycl::log1p(sycl::exp($0 * {0})) / {0}", beta, limit),
                        {fmt::format("$0 * {0} > {1} ? $g : $g * logistic($0 * {0})", beta, limit)}, {in.tensor("self")});
  }
  if (op == "softshrink" || op == "hardshrink") {
    const std::string l = n(in.number("lambd", 0.5));
    const std::string inside = fmt::format("$0 >= -{0} && $0 <= {0}", l);
    const std::string value = op == "hardshrink" ? "$0" : fmt::format("($0 > 0 ? $0 - {0} : $0 + {0})", l);
    return build_.apply(inside + " ? 0.0f : " + value, {inside + " ? 0.0f : $g"}, {in.tensor("self")});
  }
  if (op == "logit") {
    TensorRef x = in.tensor("self");
    if (const auto eps = in.number("eps"))
      x = build_.apply(fmt::format("$0 < {0} ? {0} : $0 > {1} ? {1} : $0", n(*eps), n(1.0 - *eps)),
                       {fmt::format("$0 >= {} && $0 <= {} ? $g : 0.0f", n(*eps), n(1.0 - *eps))}, {x});
    return build_.apply("sycl::log($0 / (1.0f - $0))", {"$g / ($0 * (1.0f - $0))"}, {x});
  }
  if (op == "threshold") {
    const std::string limit = n(in.number("threshold", 0.0)), value = n(in.number("value", 0.0));
    return build_.apply(fmt::format("$0 > {} ? $0 : {}", limit, value), {fmt::format("$0 > {} ? $g : 0.0f", limit)}, {in.tensor("self")});
  }
  if (op == "clamp" || op == "clip" || op == "hardtanh" || op == "clamp_min" || op == "clamp_max") {
    const bool hard = op == "hardtanh";  // which has no gradient at its bounds; clamp has
    if (in.is_tensor("min") || in.is_tensor("max")) {
      TensorRef x = in.tensor("self");
      if (in.has("min")) x = build_.apply("$0 < $1 ? $1 : $0", {"$0 < $1 ? 0.0f : $g", "$0 < $1 ? $g : 0.0f"}, {x, in.tensor("min")}, type);
      if (in.has("max")) x = build_.apply("$0 > $1 ? $1 : $0", {"$0 > $1 ? 0.0f : $g", "$0 > $1 ? $g : 0.0f"}, {x, in.tensor("max")}, type);
      return x;
    }
    const auto low = hard ? std::optional(in.number("min_val", -1.0)) : in.number("min");
    const auto high = hard ? std::optional(in.number("max_val", 1.0)) : in.number("max");
    const auto t = [&](double v) { return type == 'f' ? n(v) : std::to_string(static_cast<std::int64_t>(v)); };
    std::string value = "$0", inside;
    if (low) value = fmt::format("($0 < {0} ? {0} : {1})", t(*low), value), inside = fmt::format("$0 {} {}", hard ? ">" : ">=", t(*low));
    if (high)
      value = fmt::format("($0 > {0} ? {0} : {1})", t(*high), value),
      inside += fmt::format("{}$0 {} {}", inside.empty() ? "" : " && ", hard ? "<" : "<=", t(*high));
    return build_.apply(value, {inside.empty() ? "$g" : inside + " ? $g : 0.0f"}, {in.tensor("self")}, type);
  }
  if (op == "where" && in.has("other"))
    return build_.apply("$0 != 0 ? $1 : $2", {"", "$0 != 0 ? $g : 0.0f", "$0 != 0 ? 0.0f : $g"},
                        {in.tensor("condition"), cast(in.tensor("self"), type), cast(in.tensor("other"), type)}, type);
  if (op == "masked_fill")
    return build_.apply("$1 != 0 ? $2 : $0", {"$1 != 0 ? 0.0f : $g", "", "$1 != 0 ? $g : 0.0f"},
                        {in.tensor("self"), in.tensor("mask"), cast(in.tensor("value"), type)}, type);
  if (op == "lerp")
    return build_.apply("$0 + $2 * ($1 - $0)", {"$g * (1.0f - $2)", "$g * $2", "$g * ($1 - $0)"},
                        {floats("self"), floats("end"), floats("weight")});
  if (op == "addcmul" || op == "addcdiv") {
    const std::string value = n(in.number("value", 1.0));
    if (op == "addcmul")
      return build_.apply(fmt::format("$0 + {} * $1 * $2", value),
                          {"$g", fmt::format("$g * {} * $2", value), fmt::format("$g * {} * $1", value)},
                          {in.tensor("self"), in.tensor("tensor1"), in.tensor("tensor2")});
    return build_.apply(fmt::format("$0 + {} * $1 / $2", value),
                        {"$g", fmt::format("$g * {} / $2", value), fmt::format("-$g * {} * $1 / ($2 * $2)", value)},
                        {in.tensor("self"), in.tensor("tensor1"), in.tensor("tensor2")});
  }
  if (op == "dropout" || op == "native_dropout" || op == "feature_dropout" || op == "alpha_dropout" || op == "feature_alpha_dropout") {
    const double p = in.number("p", 0.5);
    const TensorRef x = in.tensor(in.has("input") ? "input" : "self");
    if (p == 0.0 || !in.boolean("train", true) || !options_.dropout) return x;
    if (op.ends_with("alpha_dropout")) {  // dropped elements become the value that keeps mean and variance of SELU
      constexpr double dropped = -1.7580993408473766;
      const double scale = 1.0 / std::sqrt((1.0 - p) * (1.0 + p * dropped * dropped)), shift = -scale * p * dropped;
      Dims thin = x.shape;  // of whole channels: one number each
      for (std::size_t i = 2; op.starts_with("feature") && i < thin.size(); ++i) thin[i] = 1;
      const TensorRef kept = build_.random(thin, false);
      const std::string keep = "$1 >= " + n(p);
      return build_.apply(fmt::format("({} ? $0 : {}) * {} + {}", keep, n(dropped), n(scale), n(shift)),
                          {fmt::format("{} ? $g * {} : 0.0f", keep, n(scale)), ""}, {x, kept});
    }
    if (op == "feature_dropout") {  // whole channels
      Dims thin = x.shape;
      for (std::size_t i = 2; i < thin.size(); ++i) thin[i] = 1;
      const TensorRef ones = build_.dense(build_.full(thin, 1.0, 'f'));
      return build_.apply("$0 * $1", {"$g * $1", ""}, {x, p >= 1.0 ? build_.full({}, 0.0, 'f') : build_.dropout(ones, p)});
    }
    if (p >= 1.0) return build_.apply("0.0f * $0", {"0.0f"}, {x});
    return build_.dropout(x, p);
  }
  return {};
}

}  // namespace ppengine::models
