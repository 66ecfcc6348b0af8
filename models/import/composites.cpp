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
      const std::size_t begin = equation.rfind(',', i) == std::string::npos ? 0 : equation.rfind(',', i) + 1, end = std::min({equation.find(',', i), arrow, equation.size()});
      for (std::size_t k = begin; k < end; ++k) named += std::isalpha(static_cast<unsigned char>(equation[k])) ? 1 : 0;
      const std::size_t rank = operands[operand].shape.size(), count = rank > named ? rank - named : 0;
      if (count > 8 || free.size() < 8 || (most != 0 && count != most)) Arguments::refuse(fmt::format("has dots of several lengths in '{}'", equation));
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

TensorRef Lowering::resize(const TensorRef& src, const std::vector<std::int64_t>& size, bool linear, bool align, const std::vector<double>& scales) {
  TensorRef x = build_.dense(build_.read(src));
  for (std::size_t i = 0; i < size.size(); ++i) {  // one dimension after the other
    const std::size_t d = 2 + i;
    const std::int64_t from = x.shape[d].fixed, to = size[i];
    if (from == to) continue;
    const double step = align && linear ? (to > 1 ? double(from - 1) / double(to - 1) : 0.0)
                                        : i < scales.size() && scales[i] > 0 ? 1.0 / scales[i] : double(from) / double(to);
    std::vector<std::int32_t> low, high;
    std::vector<float> share;
    for (std::int64_t k = 0; k < to; ++k) {
      const float at = linear ? static_cast<float>(align ? step * double(k) : std::max(0.0, step * (double(k) + 0.5) - 0.5)) : static_cast<float>(step * double(k));
      const auto below = std::min<std::int64_t>(static_cast<std::int64_t>(at), from - 1);
      low.push_back(static_cast<std::int32_t>(below)), high.push_back(static_cast<std::int32_t>(std::min(below + 1, from - 1)));
      share.push_back(at - static_cast<float>(below));
    }
    const Dim before = count_of({x.shape.begin(), x.shape.begin() + static_cast<long>(d)}), behind = count_of({x.shape.begin() + static_cast<long>(d) + 1, x.shape.end()});
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
      if (mode == "reflect") at = k < 0 ? -k : k >= size ? 2 * (size - 1) - k : k;
      else if (mode == "replicate") at = std::clamp<std::int64_t>(k, 0, size - 1);
      else if (mode == "circular") at = ((k % size) + size) % size;
      else Arguments::refuse(fmt::format("pads by {}", mode));
      if (at < 0 || at >= size) Arguments::refuse("pads by more than there is");
      places.push_back(static_cast<std::int32_t>(at));
    }
    const auto count = static_cast<std::int64_t>(places.size());
    const Dim outer = count_of({x.shape.begin(), x.shape.begin() + static_cast<long>(d)}), inner = count_of({x.shape.begin() + static_cast<long>(d) + 1, x.shape.end()});
    Dims shape = x.shape;
    shape[d] = count;
    x = build_.reshape(build_.take(build_.reshape(x, {outer, size, inner}), build_.constant(std::move(places), {1, count, 1}, 'i')), shape);
  }
  return x;
}

TensorRef Lowering::distance(const TensorRef& a, const TensorRef& b, double p, double eps, bool keep) {
  if (p != 2.0) Arguments::refuse(fmt::format("of order {}", p));
  const TensorRef apart = build_.apply("$0 - $1 + " + number_text(eps), {"$g", "-$g"}, {a, b});
  const TensorRef square = build_.apply("$0 * $0", {"2.0f * $g * $0"}, {apart});
  return build_.apply("sycl::sqrt($0)", {"$r > 0 ? $g * 0.5f / $r : 0.0f"}, {build_.sum(square, {apart.rank() - 1}, keep)});
}

TensorRef Lowering::cosine(const TensorRef& a, const TensorRef& b, int dim, double eps) {
  const auto total = [&](const TensorRef& x, const TensorRef& y) { return build_.sum(build_.apply("$0 * $1", {"$g * $1", "$g * $0"}, {x, y}), {dim}, false); };
  const std::string least = number_text(eps * eps);
  const auto length = [&](const TensorRef& square) {
    return build_.apply(fmt::format("sycl::sqrt(sycl::fmax($0, {}))", least), {fmt::format("$0 > {} ? $g * 0.5f / $r : 0.0f", least)}, {square});
  };
  return build_.apply("$0 / ($1 * $2)", {"$g / ($1 * $2)", "-$g * $r / $1", "-$g * $r / $2"}, {total(a, b), length(total(a, a)), length(total(b, b))});
}

std::optional<std::vector<TensorRef>> Lowering::lower_composites(const std::string& op, const Arguments& in) {
  const auto one = [](TensorRef ref) { return std::optional(std::vector<TensorRef>{std::move(ref)}); };
  const auto reduced = [&](const TensorRef& each) {
    const std::int64_t how = in.integer("reduction", 1);
    return one(how == 0 ? each : how == 1 ? build_.mean(each, {}, false) : build_.sum(each, {}, false));
  };
  const auto floats = [&](const char* name) { return cast(in.tensor(name), 'f'); };
  const auto above_zero = [&](const std::string& value, std::vector<std::string> gradients, std::vector<TensorRef> inputs) {
    for (std::string& gradient : gradients) gradient = gradient.empty() ? "" : fmt::format("({}) > 0 ? {} : 0.0f", value, gradient);
    return build_.apply(fmt::format("({0}) > 0 ? ({0}) : 0.0f", value), std::move(gradients), std::move(inputs));
  };
  if (op == "cosine_similarity") {
    const TensorRef a = floats("x1"), b = floats("x2");
    const Dims shape = broadcast(a.shape, b.shape);
    return one(cosine(build_.expand(a, shape), build_.expand(b, shape), in.dim("dim", 1, static_cast<int>(shape.size())), in.number("eps", 1e-8)));
  }
  if (op == "pairwise_distance") return one(distance(floats("x1"), floats("x2"), in.number("p", 2.0), in.number("eps", 1e-6), in.boolean("keepdim", false)));
  if (op == "cosine_embedding_loss") {
    const TensorRef a = floats("input1"), target = in.tensor("target");
    const TensorRef near = cosine(a, floats("input2"), a.rank() - 1, 1e-8);
    const std::string margin = number_text(in.number("margin", 0.0));
    return reduced(build_.apply(fmt::format("$1 > 0 ? 1.0f - $0 : $0 > {0} ? $0 - {0} : 0.0f", margin), {fmt::format("$1 > 0 ? -$g : $0 > {} ? $g : 0.0f", margin), ""}, {near, target}));
  }
  if (op == "triplet_margin_loss") {
    const double p = in.number("p", 2.0), eps = in.number("eps", 1e-6);
    if (in.boolean("swap", false)) Arguments::refuse("swaps");
    const TensorRef a = floats("anchor"), near = distance(a, floats("positive"), p, eps, false), far = distance(a, floats("negative"), p, eps, false);
    return reduced(above_zero("$0 - $1 + " + number_text(in.number("margin", 1.0)), {"$g", "-$g"}, {near, far}));
  }
  if (op == "margin_ranking_loss")
    return reduced(above_zero("-$2 * ($0 - $1) + " + number_text(in.number("margin", 0.0)), {"-$2 * $g", "$2 * $g", ""}, {floats("input1"), floats("input2"), floats("target")}));
  if (op == "hinge_embedding_loss") {
    const std::string margin = number_text(in.number("margin", 1.0));
    return reduced(build_.apply(fmt::format("$1 > 0 ? $0 : $0 < {0} ? {0} - $0 : 0.0f", margin), {fmt::format("$1 > 0 ? $g : $0 < {} ? -$g : 0.0f", margin), ""}, {floats("self"), in.tensor("target")}));
  }
  if (op == "soft_margin_loss")
    return reduced(build_.apply("sycl::log1p(sycl::exp(-$1 * $0))", {"-$1 * $g * logistic(-$1 * $0)", ""}, {floats("self"), floats("target")}));
  if (op == "poisson_nll_loss") {
    if (in.boolean("full", false)) Arguments::refuse("adds Stirling's term");
    const std::string eps = number_text(in.number("eps", 1e-8));
    if (in.boolean("log_input", true)) return reduced(build_.apply("sycl::exp($0) - $1 * $0", {"$g * (sycl::exp($0) - $1)", ""}, {floats("input"), floats("target")}));
    return reduced(build_.apply(fmt::format("$0 - $1 * sycl::log($0 + {})", eps), {fmt::format("$g * (1.0f - $1 / ($0 + {}))", eps), ""}, {floats("input"), floats("target")}));
  }
  if (op == "bilinear") {
    const TensorRef a = in.tensor("input1"), b = in.tensor("input2"), w = in.tensor("weight");
    const Dim outs = w.shape[0], left = w.shape[1], right = w.shape[2], rows = count_of({a.shape.begin(), a.shape.end() - 1});
    const TensorRef half = build_.matmul(build_.reshape(a, {rows, left}), build_.reshape(build_.permute(w, {1, 0, 2}), {left, outs * right}));
    const TensorRef whole = build_.matmul(build_.reshape(half, {rows, outs, right}), build_.reshape(b, {rows, right, 1}));
    const TensorRef out = build_.reshape(whole, in.out_shape());
    return one(in.has("bias") ? build_.apply("$0 + $1", {"$g", "$g"}, {out, in.tensor("bias")}) : out);
  }
  if (op == "tensordot" || op == "inner") {
    const TensorRef a = floats("self"), b = floats("other");
    const auto of_a = op == "inner" ? std::vector<int>{a.rank() - 1} : in.dims("dims_self", a.rank()), of_b = op == "inner" ? std::vector<int>{b.rank() - 1} : in.dims("dims_other", b.rank());
    if (of_a.size() != of_b.size() || a.rank() + b.rank() > 26) Arguments::refuse("does not fit its operands");
    std::string left, right, result;
    for (int i = 0; i < a.rank(); ++i) left += static_cast<char>('a' + i);
    for (int i = 0; i < b.rank(); ++i) right += static_cast<char>('a' + a.rank() + i);
    for (std::size_t i = 0; i < of_a.size(); ++i) right[static_cast<std::size_t>(of_b[i])] = left[static_cast<std::size_t>(of_a[i])];
    for (char c : left + right)
      if (left.find(c) == std::string::npos || right.find(c) == std::string::npos) result += c;
    return one(einsum(left + "," + right + "->" + result, {a, b}));
  }
  if (op == "cdist" && in.number("p", 2.0) == 2.0) {
    TensorRef a = floats("x1"), b = floats("x2");
    a.shape.insert(a.shape.end() - 1, Dim(1)), a.strides.insert(a.strides.end() - 1, Dim(0));
    b.shape.insert(b.shape.end() - 2, Dim(1)), b.strides.insert(b.strides.end() - 2, Dim(0));
    return one(distance(a, b, 2.0, 0.0, false));
  }
  if (op == "cross" || op == "linalg_cross") {
    const TensorRef a = floats("self"), b = floats("other");
    const int d = in.dim("dim", -1, a.rank());
    const auto turned = [&](const TensorRef& x, int by) {
      const auto part = [&](int i) { return build_.slice(x, d, (i + by) % 3, 1); };
      return build_.cat({part(0), part(1), part(2)}, d);
    };
    return one(build_.apply("$0 * $1 - $2 * $3", {"$g * $1", "$g * $0", "-$g * $3", "-$g * $2"}, {turned(a, 1), turned(b, 2), turned(a, 2), turned(b, 1)}));
  }
  if (op == "diag_embed") {
    const TensorRef x = in.tensor("self");
    if (in.integer("offset", 0) != 0 || in.integer("dim1", -2) != -2 || in.integer("dim2", -1) != -1) Arguments::refuse("is off the middle");
    const Dim size = x.shape.back();
    const TensorRef i = build_.reshape(build_.arange(size, 0, 1, 'i'), {size, 1}), j = build_.reshape(build_.arange(size, 0, 1, 'i'), {1, size});
    TensorRef wide = x;
    wide.shape.emplace_back(1), wide.strides.emplace_back(0);
    return one(build_.apply("$1 == $2 ? $0 : 0", {"$1 == $2 ? $g : 0.0f", "", ""}, {wide, i, j}, in.out_type()));
  }
  if (op == "addmv") return one(build_.apply("$0 + $1", {"$g", "$g"}, {in.tensor("self"), product(in.tensor("mat"), in.tensor("vec"))}));
  if (op == "hstack" || op == "vstack") {
    auto parts = in.tensors("tensors");
    for (TensorRef& part : parts) {
      part = cast(part, in.out_type());
      if (op == "vstack" && part.rank() < 2) part = build_.reshape(part, {1, count_of(part.shape)});
    }
    return one(build_.cat(parts, op == "hstack" && parts[0].rank() > 1 ? 1 : 0));
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
