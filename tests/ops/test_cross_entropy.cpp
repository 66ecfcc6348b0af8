// Cross entropy: against PyTorch, a double reference and its finite differences; masked rows, large magnitudes, large vocabularies.
#include <ppengine/ops/cross_entropy.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

double loss_in_double(const double* x, std::size_t classes, std::int32_t target) {
  if (target < 0) return 0;
  const double top = *std::max_element(x, x + classes);
  double total = 0;
  for (std::size_t i = 0; i < classes; ++i) total += std::exp(x[i] - top);
  return std::log(total) + top - x[target];
}

struct Results {
  std::vector<float> losses, diff;
};

Results run(Stream& stream, const CrossEntropySpec& spec, const std::vector<float>& logits, const std::vector<std::int32_t>& targets,
            float weight) {
  const auto op = CrossEntropy::make(stream.device(), spec);
  const Array x(stream, logits, spec.type), t(stream, targets), losses(stream, targets.size()), again(stream, targets.size()),
      diff(stream, logits.size(), spec.type);
  op->forward(stream, x.data(), t.i32(), losses.f32());
  op->forward_backward(stream, x.data(), t.i32(), weight, again.f32(), diff.data());
  BOOST_TEST(losses.get() == again.get());
  op->forward_backward(stream, x.data(), t.i32(), weight, again.f32(), x.data());  // in place
  BOOST_TEST(losses.get() == again.get());
  BOOST_TEST((x.get() == diff.get()), "in place gives the same bits");
  return {losses.get(), diff.get()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cross_entropy)

BOOST_AUTO_TEST_CASE(equals_pytorch_with_masked_rows_and_large_logits) {
  Stream stream(device());
  for (const auto& one : reference("cross_entropy")) {
    const CrossEntropySpec spec{.rows = one["rows"], .classes = one["classes"]};
    const Results r = run(stream, spec, floats(one["x"]), one["targets"].get<std::vector<std::int32_t>>(), one["weight"]);
    check_close("losses", r.losses, floats(one["losses"]), 1e-6);
    check_close("diff", r.diff, floats(one["diff"]), 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(gradients_equal_finite_differences_at_odd_sizes) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, classes] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 5}, {9, 17}, {3, 259}, {2, 1030}}) {
      const auto c = static_cast<std::size_t>(classes);
      const auto logits = rounded(random_values(static_cast<std::size_t>(rows) * c, 1, 5), type);
      std::vector<std::int32_t> targets;
      for (std::int64_t row = 0; row < rows; ++row) targets.push_back(row % 3 == 1 ? -1 : static_cast<std::int32_t>(row * 7 % classes));
      std::vector<double> losses;
      for (std::size_t row = 0; row < targets.size(); ++row)
        losses.push_back(loss_in_double(as_double(logits).data() + row * c, c, targets[row]));
      const auto diff = numeric_gradient(
          [&](const std::vector<double>& at) {
            double sum = 0;
            for (std::size_t row = 0; row < targets.size(); ++row) sum += loss_in_double(at.data() + row * c, c, targets[row]) * 0.5;
            return sum;
          },
          as_double(logits));
      const Results r = run(stream, {rows, classes, type}, logits, targets, 0.5f);
      check_close(label("losses", type, rows, classes), r.losses, losses, 1e-6);
      check_close(label("diff", type, rows, classes), r.diff, diff, tolerance(type));
    }
}

BOOST_AUTO_TEST_CASE(parts_of_the_classes_put_together_equal_finite_differences) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, sizes] :
         {std::pair<std::int64_t, std::vector<std::int64_t>>{1, {1, 1}}, {9, {9, 8}}, {3, {87, 86, 86}}, {5, {515, 515}}}) {
      std::int64_t classes = 0;
      for (std::int64_t size : sizes) classes += size;
      const auto logits = rounded(random_values(static_cast<std::size_t>(rows * classes), 1, 5), type);
      std::vector<std::int32_t> targets;
      for (std::int64_t row = 0; row < rows; ++row) targets.push_back(row % 3 == 1 ? -100 : static_cast<std::int32_t>(row * 7 % classes));
      const auto c = static_cast<std::size_t>(classes);
      const auto all_losses = [&](const std::vector<double>& at) {
        std::vector<double> losses;
        for (std::size_t row = 0; row < targets.size(); ++row) losses.push_back(loss_in_double(at.data() + row * c, c, targets[row]));
        return losses;
      };
      const auto x = as_double(logits);
      const auto expected = numeric_gradient(
          [&](const std::vector<double>& at) {
            double sum = 0;
            for (double one : all_losses(at)) sum += one * 0.5;
            return sum;
          },
          x);

      struct Rank {
        std::unique_ptr<SplitCrossEntropy> op;
        Array logits, diff;
      };
      const Array t(stream, targets);
      std::vector<Rank> ranks;
      std::vector<float> figures;
      std::int64_t first = 0;
      for (std::int64_t size : sizes) {
        std::vector<float> part;
        for (std::int64_t row = 0; row < rows; ++row)
          part.insert(part.end(), logits.begin() + row * classes + first, logits.begin() + row * classes + first + size);
        const SplitCrossEntropySpec spec{rows, size, first, classes, static_cast<int>(sizes.size()), type};
        ranks.push_back({SplitCrossEntropy::make(stream.device(), spec), Array(stream, part, type), Array(stream, part.size(), type)});
        const Array mine(stream, ranks.back().op->figures());
        ranks.back().op->part(stream, ranks.back().logits.data(), t.i32(), mine.f32());
        const auto got = mine.get();
        figures.insert(figures.end(), got.begin(), got.end());
        first += size;
      }
      const Array all(stream, figures), losses(stream, targets.size());
      std::vector<float> diff(logits.size()), first_losses;
      first = 0;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        Rank& rank = ranks[r];
        rank.op->join(stream, rank.logits.data(), t.i32(), all.f32(), 0.0f, losses.f32(), nullptr);
        const auto without = losses.get();
        rank.op->join(stream, rank.logits.data(), t.i32(), all.f32(), 0.5f, losses.f32(), rank.diff.data());
        rank.op->join(stream, rank.logits.data(), t.i32(), all.f32(), 0.5f, losses.f32(), rank.logits.data());  // in place
        BOOST_TEST(losses.get() == without);
        if (r == 0) first_losses = without;
        BOOST_TEST((without == first_losses), "all ranks have the same bits");
        const auto part = rank.diff.get();
        BOOST_TEST((rank.logits.get() == part), "in place gives the same bits");
        for (std::int64_t row = 0; row < rows; ++row)
          std::copy_n(part.begin() + row * sizes[r], sizes[r], diff.begin() + row * classes + first);
        first += sizes[r];
      }
      check_close(label("losses", type, rows, classes), first_losses, all_losses(x), 1e-6);
      check_close(label("diff", type, rows, classes), diff, expected, tolerance(type));
    }
}

BOOST_AUTO_TEST_CASE(a_vocabulary_of_50257_and_magnitudes_of_1e4_are_stable) {
  Stream stream(device());
  constexpr std::size_t classes = 50257;
  for (const float scale : {1.0f, 1e4f}) {
    const auto logits = random_values(2 * classes, 8, scale);
    const std::vector<std::int32_t> targets{50256, 17};
    const Results r = run(stream, {2, classes}, logits, targets, 1.0f);
    const auto x = as_double(logits);
    for (std::size_t row = 0; row < 2; ++row) {
      const double expected = loss_in_double(x.data() + row * classes, classes, targets[row]);
      BOOST_TEST(std::abs(r.losses[row] - expected) <= 1e-6 * std::max(1.0, expected));
      double sum = 0, largest = 0;
      const double top = *std::max_element(x.begin() + row * classes, x.begin() + (row + 1) * classes);
      double total = 0;
      for (std::size_t i = 0; i < classes; ++i) total += std::exp(x[row * classes + i] - top);
      for (std::size_t i = 0; i < classes; ++i) {
        const double p = std::exp(x[row * classes + i] - top) / total - (static_cast<std::int32_t>(i) == targets[row] ? 1 : 0);
        largest = ppengine::test::worse(largest, std::abs(r.diff[row * classes + i] - p) / (std::abs(p) + 1e-7));
        sum += r.diff[row * classes + i];
      }
      BOOST_TEST(largest < 1e-5);
      BOOST_TEST(std::abs(sum) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(only_masked_rows_and_no_rows) {
  Stream stream(device());
  const Results r = run(stream, {3, 20}, random_values(60, 1), {-1, -100, -1}, 1.0f);
  BOOST_TEST(r.losses == std::vector<float>(3, 0.0f));
  BOOST_TEST(r.diff == std::vector<float>(60, 0.0f));
  run(stream, {0, 20}, {}, {}, 1.0f);
}

BOOST_AUTO_TEST_SUITE_END()
