// Ops that are made of others: einsum, distances, bilinear forms, resizing, padding by what is there.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include <ppengine/models/import/lowering.hpp>

namespace ppengine::models {
namespace {

using engine::number_text;

// The dots of an equation as letters that it does not use: as many as the operand with the most dimensions behind them needs.
std::string without_dots(const std::string& equation, const std::vector<TensorRef>& operands) {
  if (equation.find("...") == std::string::npos) return equation;
  std::string letters, free;
  for (char c : equation)
    if (std::isalpha(static_cast<unsigned char>(c))) letters += c;
  for (char c = 'A'; c <= 'z'; ++c)
    if (std::isalpha(static_cast<unsigned char>(c)) && letters.find(c) == std::string::npos) free += c;
  std::string out;
  std::size_t operand = 0, most = 0;
  const std::size_t arrow = equation.find("->");
  for (std::size_t i = 0; i < equation.size();) {
    if (equation.compare(i, 3, "...") != 0) {
      operand += equation[i] == ',' ? 1 : 0;
      out += equation[i++];
      continue;
    }
    if (i < arrow && operand < operands.size()) {
      std::size_t named = 0;
      const std::size_t begin = equation.rfind(',', i) == std::string::npos ? 0 : equation.rfind(',', i) + 1,
                        end = std::min({equation.find(',', i), arrow, equation.size()});
      for (std::size_t k = begin; k < end; ++k) named += std::isalpha(static_cast<unsigned char>(equation[k])) ? 1 : 0;
      const std::size_t rank = operands[operand].shape.size(), count = rank > named ? rank - named : 0;
      if (count > 8 || free.size() < 8 || (most != 0 && count != most))
        Arguments::refuse(fmt::format("has dots of several lengths in '{}'", equation));
      most = count;
    }
    out += free.substr(0, most);
    i += 3;
  }
  if (arrow == std::string::npos) Arguments::refuse(fmt::format("has dots and no arrow in '{}'", equation));
  return out;
}

}  // namespace

TensorRef Lowering::einsum(const std::string& equation, std::vector<TensorRef> operands) {
  std::string text;
  for (char c : equation)
    if (c != ' ') text += c;
  text = without_dots(text, operands);
  const std::size_t arrow = text.find("->");
  std::vector<std::string> names(1);
  for (char c : text.substr(0, arrow)) {
    if (c == ',')
      names.emplace_back();
    else
      names.back() += c;
  }
  if (names.size() != operands.size()) Arguments::refuse(fmt::format("'{}' does not fit its operands", equation));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i].size() != operands[i].shape.size()) Arguments::refuse(fmt::format("'{}' does not fit its operands", equation));
  std::map<char, int> times;
  for (const std::string& one : names)
    for (char c : one) ++times[c];
  std::string result;
  if (arrow != std::string::npos)
    result = text.substr(arrow + 2);
  else
    for (const auto& [c, count] : times)
      if (count == 1) result += c;
  const auto has = [](const std::string& s, char c) { return s.find(c) != std::string::npos; };
  // A letter twice in one operand is its diagonal.
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t a = 0; a < names[i].size(); ++a)
      for (std::size_t b = a + 1; b < names[i].size();) {
        if (names[i][a] != names[i][b]) {
          ++b;
          continue;
        }
        TensorRef& t = operands[i];
        t.strides[a] = t.strides[a] + t.strides[b];
        t.shape.erase(t.shape.begin() + static_cast<long>(b)), t.strides.erase(t.strides.begin() + static_cast<long>(b));
        names[i].erase(b, 1);
      }
  TensorRef left = operands[0];
  std::string have = names[0];
  for (std::size_t i = 1; i <= operands.size(); ++i) {
    std::string later = result;
    for (std::size_t k = i; k < names.size(); ++k) later += names[k];
    // What nobody needs any more is summed.
    std::vector<int> gone;
    std::string kept;
    for (std::size_t d = 0; d < have.size(); ++d) {
      if (has(later, have[d]))
        kept += have[d];
      else
        gone.push_back(static_cast<int>(d));
    }
    if (!gone.empty()) left = build_.sum(left, gone, false), have = kept;
    if (i == operands.size()) break;
    // [batch, rows, inner] · [batch, inner, columns]
    const std::string& other = names[i];
    std::string after = result, batch, rows, inner, columns;
    for (std::size_t k = i + 1; k < names.size(); ++k) after += names[k];
    for (char c : have) (has(other, c) ? (has(after, c) ? batch : inner) : rows) += c;
    for (char c : other)
      if (!has(have, c)) columns += c;
    const auto arranged = [&](const TensorRef& t, const std::string& from, const std::string& to, Dims shape) {
      std::vector<int> order;
      for (char c : to) order.push_back(static_cast<int>(from.find(c)));
      return build_.reshape(build_.permute(t, order), shape);
    };
    const auto size = [&](const std::string& letters, const TensorRef& t, const std::string& from) {
      Dims sizes;
      for (char c : letters) sizes.push_back(t.shape[from.find(c)]);
      return sizes;
    };
    const TensorRef right = cast(operands[i], 'f');
    left = cast(left, 'f');
    const Dims b = size(batch, left, have), r = size(rows, left, have), c = size(columns, right, other), n = size(inner, left, have);
    const TensorRef x = arranged(left, have, batch + rows + inner, {count_of(b), count_of(r), count_of(n)});
    const TensorRef y = arranged(right, other, batch + inner + columns, {count_of(b), count_of(n), count_of(c)});
    Dims shape = b;
    shape.insert(shape.end(), r.begin(), r.end()), shape.insert(shape.end(), c.begin(), c.end());
    left = build_.reshape(build_.matmul(x, y), shape);
    have = batch + rows + columns;
  }
  std::vector<int> order;
  for (char c : result) {
    if (!has(have, c)) Arguments::refuse(fmt::format("'{}' has a result that no operand has", equation));
    order.push_back(static_cast<int>(have.find(c)));
  }
  return build_.permute(left, order);
}

TensorRef Lowering::resize(const TensorRef& src, const std::vector<std::int64_t>& size, bool linear, bool align,
                           const std::vector<double>& scales) {
  TensorRef x = build_.dense(build_.read(src));
  for (std::size_t i = 0; i < size.size(); ++i) {  // one dimension after the other
    const std::size_t d = 2 + i;
    const std::int64_t from = x.shape[d].fixed, to = size[i];
    if (from == to) continue;
    const double step = align && linear                      ? (to > 1 ? double(from - 1) / double(to - 1) : 0.0)
                        : i < scales.size() && scales[i] > 0 ? 1.0 / scales[i]
                                                             : double(from) / double(to);
    std::vector<std::int32_t> low, high;
    std::vector<float> share;
    for (std::int64_t k = 0; k < to; ++k) {
      const float at = linear ? static_cast<float>(align ? step * double(k) : std::max(0.0, step * (double(k) + 0.5) - 0.5))
                              : static_cast<float>(step * double(k));
      const auto below = std::min<std::int64_t>(static_cast<std::int64_t>(at), from - 1);
      low.push_back(static_cast<std::int32_t>(below)), high.push_back(static_cast<std::int32_t>(std::min(below + 1, from - 1)));
      share.push_back(at - static_cast<float>(below));
    }
    const Dim before = count_of({x.shape.begin(), x.shape.begin() + static_cast<long>(d)}),
              behind = count_of({x.shape.begin() + static_cast<long>(d) + 1, x.shape.end()});
    const TensorRef flat = build_.reshape(x, {before, from, behind});
    TensorRef out = build_.take(flat, build_.constant(low, {1, to, 1}, 'i'));
    if (linear) {
      std::vector<std::int32_t> bits;
      for (float s : share) bits.push_back(std::bit_cast<std::int32_t>(s));
      out = build_.apply("$0 + $2 * ($1 - $0)", {"$g * (1.0f - $2)", "$g * $2", ""},
                         {out, build_.take(flat, build_.constant(high, {1, to, 1}, 'i')), build_.constant(bits, {1, to, 1}, 'f')});
    }
    Dims shape = x.shape;
    shape[d] = to;
    x = build_.reshape(out, shape);
  }
  return x;
}

// Padding by elements of the tensor itself: each dimension is read through a list of places.
TensorRef Lowering::pad_by_places(const TensorRef& src, const std::vector<std::int64_t>& pads, const std::string& mode) {
  TensorRef x = src;
  for (std::size_t i = 0; 2 * i + 1 < pads.size(); ++i) {
    const std::size_t d = x.shape.size() - 1 - i;
    const std::int64_t before = pads[2 * i], after = pads[2 * i + 1];
    if (before == 0 && after == 0) continue;
    if (!x.shape[d].constant()) Arguments::refuse("pads along the batch");
    const std::int64_t size = x.shape[d].fixed;
    std::vector<std::int32_t> places;
    for (std::int64_t k = -before; k < size + after; ++k) {
      std::int64_t at = k;
      if (mode == "reflect")
        at = k < 0 ? -k : k >= size ? 2 * (size - 1) - k : k;
      else if (mode == "replicate")
        at = std::clamp<std::int64_t>(k, 0, size - 1);
      else if (mode == "circular")
        at = ((k % size) + size) % size;
      else
        Arguments::refuse(fmt::format("pads by {}", mode));
      if (at < 0 || at >= size) Arguments::refuse("pads by more than there is");
      places.push_back(static_cast<std::int32_t>(at));
    }
    x = take_places(x, d, std::move(places));
  }
  return x;
}

TensorRef Lowering::distance(const TensorRef& a, const TensorRef& b, double p, double eps, bool keep) {
  const TensorRef apart = build_.apply("$0 - $1 + " + number_text(eps), {"$g", "-$g"}, {a, b});
  const std::vector<int> last{apart.rank() - 1};
  if (std::isinf(p) || p == 1.0) {
    const TensorRef size = build_.apply("sycl::fabs($0)", {"$g * sign_of($0)"}, {apart});
    return p == 1.0 ? build_.sum(size, last, keep) : build_.reduce(size, last, keep, engine::Reduction::largest);
  }
  if (p != 2.0) {
    const std::string order = number_text(p), less = number_text(p - 1.0), root = number_text(1.0 / p);
    const TensorRef powers = build_.apply(fmt::format("sycl::pow(sycl::fabs($0), {})", order),
                                          {fmt::format("$g * {} * sycl::pow(sycl::fabs($0), {}) * sign_of($0)", order, less)}, {apart});
    return build_.apply(fmt::format("sycl::pow($0, {})", root), {fmt::format("$0 > 0 ? $g * {} * $r / $0 : 0.0f", root)},
                        {build_.sum(powers, last, keep)});
  }
  const TensorRef square = build_.apply("$0 * $0", {"2.0f * $g * $0"}, {apart});
  return build_.apply("sycl::sqrt($0)", {"$r > 0 ? $g * 0.5f / $r : 0.0f"}, {build_.sum(square, {apart.rank() - 1}, keep)});
}

TensorRef Lowering::cosine(const TensorRef& a, const TensorRef& b, int dim, double eps) {
  const auto total = [&](const TensorRef& x, const TensorRef& y) {
    return build_.sum(build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {x, y}), {dim}, false);
  };
  const std::string least = number_text(eps * eps);
  const auto length = [&](const TensorRef& square) {
    return build_.apply(fmt::format("sycl::sqrt(sycl::fmax($0, {}))", least), {fmt::format("$0 > {} ? $g * 0.5f / $r : 0.0f", least)},
                        {square});
  };
  return build_.apply("$0 / ($1 * $2)", {"$g / ($1 * $2)", "-$g * $r / $1", "-$g * $r / $2"},
                      {total(a, b), length(total(a, a)), length(total(b, b))});
}

std::optional<std::vector<TensorRef>> Lowering::lower_composites(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  const auto reduced = [&](const TensorRef& each) {
    const std::int64_t how = in.integer("reduction", 1);
    return one(how == 0 ? each : how == 1 ? build_.mean(each, {}, false) : build_.sum(each, {}, false));
  };
  const auto floats = [&](const char* name) { return cast(in.tensor(name), 'f'); };
  // At zero itself there is a gradient, as clamp_min has it.
  const auto above_zero = [&](const std::string& value, std::vector<std::string> gradients, std::vector<TensorRef> inputs,
                              bool strict = false) {
    for (std::string& gradient : gradients)
      gradient = gradient.empty() ? "" : fmt::format("({}) {} 0 ? {} : 0.0f", value, strict ? ">" : ">=", gradient);
    return build_.apply(fmt::format("({0}) > 0 ? ({0}) : 0.0f", value), std::move(gradients), std::move(inputs));
  };
  if (op == "cosine_similarity") {
    const TensorRef a = floats("x1"), b = floats("x2");
    const Dims shape = broadcast(a.shape, b.shape);
    return one(
        cosine(build_.expand(a, shape), build_.expand(b, shape), in.dim("dim", 1, static_cast<int>(shape.size())), in.number("eps", 1e-8)));
  }
  if (op == "pairwise_distance")
    return one(distance(floats("x1"), floats("x2"), in.number("p", 2.0), in.number("eps", 1e-6), in.boolean("keepdim", false)));
  if (op == "cosine_embedding_loss") {
    const TensorRef a = floats("input1"), target = in.tensor("target");
    const TensorRef near = cosine(a, floats("input2"), a.rank() - 1, 1e-8);
    const std::string margin = number_text(in.number("margin", 0.0));
    return reduced(build_.apply(fmt::format("$1 > 0 ? 1.0f - $0 : $0 > {0} ? $0 - {0} : 0.0f", margin),
                                {fmt::format("$1 > 0 ? -$g : $0 >= {} ? $g : 0.0f", margin), ""}, {near, target}));
  }
  if (op == "triplet_margin_loss") {
    const double p = in.number("p", 2.0), eps = in.number("eps", 1e-6);
    const TensorRef a = floats("anchor"), near = distance(a, floats("positive"), p, eps, false);
    TensorRef far = distance(a, floats("negative"), p, eps, false);
    if (in.boolean("swap", false))
      far = build_.apply("$0 < $1 ? $0 : $1", {"$0 < $1 ? $g : $0 == $1 ? 0.5f * $g : 0.0f", "$1 < $0 ? $g : $0 == $1 ? 0.5f * $g : 0.0f"},
                         {far, distance(floats("positive"), floats("negative"), p, eps, false)});
    return reduced(above_zero("$0 - $1 + " + number_text(in.number("margin", 1.0)), {"$g", "-$g"}, {near, far}));
  }
  if (op == "margin_ranking_loss")
    return reduced(above_zero("-$2 * ($0 - $1) + " + number_text(in.number("margin", 0.0)), {"-$2 * $g", "$2 * $g", ""},
                              {floats("input1"), floats("input2"), floats("target")}));
  if (op == "hinge_embedding_loss") {
    const std::string margin = number_text(in.number("margin", 1.0));
    return reduced(build_.apply(fmt::format("$1 > 0 ? $0 : $0 < {0} ? {0} - $0 : 0.0f", margin),
                                {fmt::format("$1 > 0 ? $g : $0 <= {} ? -$g : 0.0f", margin), ""}, {floats("self"), in.tensor("target")}));
  }
  if (op == "soft_margin_loss")
    return reduced(
        build_.apply("sycl::log1p(sycl::exp(-$1 * $0))", {"-$1 * $g * logistic(-$1 * $0)", ""}, {floats("self"), floats("target")}));
  if (op == "poisson_nll_loss") {
    const std::string eps = number_text(in.number("eps", 1e-8));
    if (in.boolean("full", false)) {  // with Stirling's approximation of log(target!)
      const TensorRef x = floats("input"), t = floats("target");
      const TensorRef each = in.boolean("log_input", true)
                                 ? build_.apply("sycl::exp($0) - $1 * $0", {"$g * (sycl::exp($0) - $1)", ""}, {x, t})
                                 : build_.apply(fmt::format("$0 - $1 * sycl::log($0 + {})", eps),
                                                {fmt::format("$g * (1.0f - $1 / ($0 + {}))", eps), ""}, {x, t});
      return reduced(
          build_.apply("$0 + ($1 > 1.0f ? $1 * sycl::log($1) - $1 + 0.5f * sycl::log(6.28318531f * $1) : 0.0f)", {"$g", ""}, {each, t}));
    }
    if (in.boolean("log_input", true))
      return reduced(build_.apply("sycl::exp($0) - $1 * $0", {"$g * (sycl::exp($0) - $1)", ""}, {floats("input"), floats("target")}));
    return reduced(build_.apply(fmt::format("$0 - $1 * sycl::log($0 + {})", eps), {fmt::format("$g * (1.0f - $1 / ($0 + {}))", eps), ""},
                                {floats("input"), floats("target")}));
  }
  if (op == "bilinear") {
    const TensorRef a = in.tensor("input1"), b = in.tensor("input2"), w = in.tensor("weight");
    const Dim outs = w.shape[0], left = w.shape[1], right = w.shape[2], rows = count_of({a.shape.begin(), a.shape.end() - 1});
    const TensorRef half =
        build_.matmul(build_.reshape(a, {rows, left}), build_.reshape(build_.permute(w, {1, 0, 2}), {left, outs * right}));
    const TensorRef whole = build_.matmul(build_.reshape(half, {rows, outs, right}), build_.reshape(b, {rows, right, 1}));
    const TensorRef out = build_.reshape(whole, in.out_shape());
    return one(in.has("bias") ? build_.apply("$0 + $1", {"$g", "$g"}, {out, in.tensor("bias")}) : out);
  }
  if (op == "tensordot" || op == "inner") {
    const TensorRef a = floats("self"), b = floats("other");
    const auto of_a = op == "inner" ? std::vector<int>{a.rank() - 1} : in.dims("dims_self", a.rank()),
               of_b = op == "inner" ? std::vector<int>{b.rank() - 1} : in.dims("dims_other", b.rank());
    if (of_a.size() != of_b.size() || a.rank() + b.rank() > 26) Arguments::refuse("does not fit its operands");
    std::string left, right, result;
    for (int i = 0; i < a.rank(); ++i) left += static_cast<char>('a' + i);
    for (int i = 0; i < b.rank(); ++i) right += static_cast<char>('a' + a.rank() + i);
    for (std::size_t i = 0; i < of_a.size(); ++i) right[static_cast<std::size_t>(of_b[i])] = left[static_cast<std::size_t>(of_a[i])];
    for (char c : left + right)
      if (left.find(c) == std::string::npos || right.find(c) == std::string::npos) result += c;
    return one(einsum(left + "," + right + "->" + result, {a, b}));
  }
  if (op == "multi_margin_loss") {  // how far each class comes within a margin of the right one
    const TensorRef x = floats("self"), target = in.tensor("target");
    const Dim classes = x.shape.back(), rows = count_of({x.shape.begin(), x.shape.end() - 1});
    const TensorRef flat = build_.reshape(x, {rows, classes}), by = build_.reshape(target, {rows, 1});
    const std::string margin = number_text(in.number("margin", 1.0)), scale = number_text(1.0 / double(classes.fixed));
    TensorRef over = above_zero("$0 - $1 + " + margin, {"$g", "-$g"}, {flat, gather(flat, by, 1)}, true);
    if (in.number("p", 1.0) == 2.0) over = build_.apply("$0 * $0", {"2.0f * $g * $0"}, {over});
    if (in.has("weight")) over = build_.apply("$0 * $1", {"$g * $1", ""}, {over, index(in.tensor("weight"), {by})});
    const TensorRef others = build_.apply("$1 == $2 ? 0.0f : $0 * " + scale, {"$1 == $2 ? 0.0f : $g * " + scale, "", ""},
                                          {over, by, build_.arange(classes, 0, 1, 'i')});
    return reduced(build_.reshape(build_.sum(others, {1}, false), target.shape));
  }
  if (op == "cdist") {
    TensorRef a = floats("x1"), b = floats("x2");
    a.shape.insert(a.shape.end() - 1, Dim(1)), a.strides.insert(a.strides.end() - 1, Dim(0));
    b.shape.insert(b.shape.end() - 2, Dim(1)), b.strides.insert(b.strides.end() - 2, Dim(0));
    return one(distance(a, b, in.number("p", 2.0), 0.0, false));
  }
  if (op == "cross" || op == "linalg_cross") {
    const TensorRef a = floats("self"), b = floats("other");
    const int d = in.dim("dim", -1, a.rank());
    const auto turned = [&](const TensorRef& x, int by) {
      const auto part = [&](int i) { return build_.slice(x, d, (i + by) % 3, 1); };
      return build_.cat({part(0), part(1), part(2)}, d);
    };
    return one(build_.apply("$0 * $1 - $2 * $3", {"$g * $1", "$g * $0", "-$g * $3", "-$g * $2"},
                            {turned(a, 1), turned(b, 2), turned(a, 2), turned(b, 1)}));
  }
  if (op == "diag_embed") {
    const TensorRef x = in.tensor("self");
    const int rank = x.rank() + 1;
    const std::int64_t offset = in.integer("offset", 0), shift = std::max<std::int64_t>(0, -offset);
    if (in.dim("dim1", -2, rank) != rank - 2 || in.dim("dim2", -1, rank) != rank - 1)
      Arguments::refuse("puts its diagonal into other dimensions than the last two");
    const Dim size = x.shape.back() + Dim(std::abs(offset));
    const TensorRef i = build_.reshape(build_.arange(size, 0, 1, 'i'), {size, 1}),
                    j = build_.reshape(build_.arange(size, 0, 1, 'i'), {1, size});
    std::vector<std::pair<std::int64_t, std::int64_t>> pads(x.shape.size());
    pads.back() = {shift, std::abs(offset) - shift};
    TensorRef wide = build_.read(offset == 0 ? x : build_.pad(x, pads, 0.0));  // by rows
    wide.shape.emplace_back(1), wide.strides.emplace_back(0);
    const std::string on = fmt::format("$2 - $1 == {}", offset);
    return one(build_.apply(on + " ? $0 : 0", {on + " ? $g : 0.0f", "", ""}, {wide, i, j}, in.out_type()));
  }
  if (op == "dist") {
    const TensorRef a = floats("self"), b = floats("other");
    const Dims shape = broadcast(a.shape, b.shape);
    const auto flat = [&](const TensorRef& x) { return build_.reshape(build_.expand(x, shape), {1, count_of(shape)}); };
    return one(build_.reshape(distance(flat(a), flat(b), in.number("p", 2.0), 0.0, false), {}));
  }
  if (op == "addmv") return one(build_.apply("$0 + $1", {"$g", "$g"}, {in.tensor("self"), product(in.tensor("mat"), in.tensor("vec"))}));
  if (op == "hstack" || op == "vstack" || op == "dstack" || op == "column_stack") {
    auto parts = in.tensors("tensors");
    for (TensorRef& part : parts) {
      part = cast(part, in.out_type());
      if (op == "vstack" && part.rank() < 2) part = build_.reshape(part, {1, count_of(part.shape)});
      if (op == "column_stack" && part.rank() < 2) part = build_.reshape(part, {count_of(part.shape), 1});
      if (op == "dstack" && part.rank() < 2) part = build_.reshape(part, {1, count_of(part.shape), 1});
      if (op == "dstack" && part.rank() == 2) part = build_.reshape(part, {part.shape[0], part.shape[1], 1});
    }
    return one(build_.cat(parts, op == "dstack" ? 2 : op == "column_stack" || (op == "hstack" && parts[0].rank() > 1) ? 1 : 0));
  }
  if (op == "meshgrid") {
    auto parts = in.tensors("tensors");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Dims shape = in.out_shape(i);
      const std::size_t d = in.text("indexing", "ij") == "xy" && i < 2 ? 1 - i : i;
      Dims thin(shape.size(), Dim(1));
      thin[d] = shape[d];
      parts[i] = build_.expand(build_.reshape(parts[i], thin), shape);
    }
    return parts;
  }
  return {};
}

}  // namespace ppengine::models
