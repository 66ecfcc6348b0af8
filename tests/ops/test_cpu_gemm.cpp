// Products on CPUs with vectors: every size of tile, panel and part against products in double, and bits that depend on k alone.
#include <unistd.h>

#include <fstream>

#include <ppengine/ops/cpu/product_choice.hpp>
#include <ppengine/ops/weights.hpp>

#include "support.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

struct Case {
  std::int64_t m, n, k;
  bool transposed_a, transposed_b, bias, add;
};

struct Matrices {
  explicit Matrices(const Case& c)
      : a(random_values(static_cast<std::size_t>(c.m * c.k), 1)),
        b(random_values(static_cast<std::size_t>(c.k * c.n), 2)),
        bias(random_values(static_cast<std::size_t>(c.n), 3)),
        add(random_values(static_cast<std::size_t>(c.m * c.n), 4)) {}
  std::vector<float> a, b, bias, add;
};

std::vector<float> product(const Case& c, const Matrices& of) {
  std::vector<float> result(of.add.size(), 7.0f);
  cpu::gemm({c.m, c.n, c.k, of.a.data(), c.transposed_a, of.b.data(), c.transposed_b, c.bias ? of.bias.data() : nullptr,
             c.add ? of.add.data() : nullptr, result.data()});
  return result;
}

std::vector<double> product_in_double(const Case& c, const Matrices& of) {
  std::vector<double> result;
  for (std::int64_t m = 0; m < c.m; ++m)
    for (std::int64_t n = 0; n < c.n; ++n) {
      double sum = (c.bias ? of.bias[static_cast<std::size_t>(n)] : 0) + (c.add ? of.add[static_cast<std::size_t>(m * c.n + n)] : 0);
      for (std::int64_t k = 0; k < c.k; ++k)
        sum += double(of.a[static_cast<std::size_t>(c.transposed_a ? k * c.m + m : m * c.k + k)]) *
               of.b[static_cast<std::size_t>(c.transposed_b ? n * c.k + k : k * c.n + n)];
      result.push_back(sum);
    }
  return result;
}

bool missing() {
  if (cpu::has_vectors()) return false;
  BOOST_TEST_MESSAGE("skipped: this CPU has no vectors that the loops are compiled for");
  return true;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cpu_gemm)

BOOST_AUTO_TEST_CASE(every_size_matches_products_in_double) {
  if (missing()) return;
  std::vector<Case> cases;
  for (bool transposed_a : {false, true}) {
    for (std::int64_t m = 1; m <= 25; ++m)
      cases.push_back({m, 33, 17, transposed_a, m % 2 == 0, m % 3 == 0, m % 5 == 0});                              // heights of tiles
    for (std::int64_t n = 1; n <= 70; n += 3) cases.push_back({13, n, 20, transposed_a, n % 2 == 0, true, true});  // parts of panels
    for (std::int64_t k : {1, 7, 8, 9, 15, 16, 31, 383, 384, 385, 800}) cases.push_back({14, 40, k, transposed_a, k % 2 == 0, false, true});
    for (bool transposed_b : {false, true}) cases.push_back({300, 1300, 401, transposed_a, transposed_b, true, true});  // several parts
  }
  for (const Case& c : cases)
    BOOST_TEST_CONTEXT(c.m << " x " << c.n << " x " << c.k << " transposed " << c.transposed_a << c.transposed_b << " bias " << c.bias
                           << " add " << c.add) {
      const Matrices of(c);
      check_close("product", product(c, of), product_in_double(c, of), 1e-5);
    }
}

BOOST_AUTO_TEST_CASE(the_sum_may_be_added_in_place) {
  if (missing()) return;
  const Case c{70, 90, 500, false, true, true, true};
  Matrices of(c);
  const auto apart = product(c, of);
  cpu::gemm({c.m, c.n, c.k, of.a.data(), false, of.b.data(), true, of.bias.data(), of.add.data(), of.add.data()});
  BOOST_TEST((of.add == apart));
}

BOOST_AUTO_TEST_CASE(a_row_has_the_same_bits_in_any_company) {
  if (missing()) return;
  const Case all{270, 130, 450, false, true, true, false};
  Matrices of(all);
  const auto together = product(all, of);
  for (std::int64_t row : {0, 5, 131, 269}) {
    Matrices alone = of;
    alone.a.assign(of.a.begin() + row * all.k, of.a.begin() + (row + 1) * all.k);
    alone.add.resize(static_cast<std::size_t>(all.n));
    const auto one = product({1, all.n, all.k, false, true, true, false}, alone);
    BOOST_TEST(std::equal(one.begin(), one.end(), together.begin() + row * all.n));
  }
}

BOOST_AUTO_TEST_CASE(rows_are_summed) {
  if (missing()) return;
  for (std::int64_t columns : {1, 15, 16, 17, 127, 128, 129, 300})
    for (std::int64_t rows : {0, 1, 37})
      for (bool accumulate : {false, true}) {
        const auto a = random_values(static_cast<std::size_t>(rows * columns), 5);
        std::vector<float> sums(static_cast<std::size_t>(columns), 2.0f);
        std::vector<double> expected(sums.size(), accumulate ? 2.0 : 0.0);
        for (std::size_t i = 0; i < a.size(); ++i) expected[i % sums.size()] += a[i];
        cpu::sum_rows(a.data(), rows, columns, sums.data(), accumulate);
        check_close("sums", sums, expected, 1e-5);
      }
}

// The reference: the same product with the weight widened by the definition (test_weight_linear.cpp checks widen itself).
BOOST_AUTO_TEST_CASE(products_with_narrow_weights_equal_those_with_widened_ones) {
  if (missing()) return;
  for (const WeightStorage& storage :
       {WeightStorage{WeightFormat::bf16, 0}, {WeightFormat::int8, 0}, {WeightFormat::int8, 20}, {WeightFormat::int4, 64}}) {
    const std::int64_t m = 67, n = 45, k = 803;
    const PackedWeight weight{storage, n, k};
    const auto a = random_values(static_cast<std::size_t>(m * k), 1), b = random_values(static_cast<std::size_t>(n * k), 2);
    std::vector<std::byte> packed(weight.bytes());
    pack(weight, b, packed);
    Stream stream(device());
    Buffer there(device(), packed.size());
    stream.copy(there.data(), packed.data(), packed.size());
    Array wide(stream, b.size());
    widen(stream, weight, there.data(), wide.f32());
    const auto widened = wide.get();
    std::vector<float> expected(static_cast<std::size_t>(m * n)), result(expected.size());
    cpu::gemm({m, n, k, a.data(), false, widened.data(), true, nullptr, nullptr, expected.data()});
    cpu::gemm({m, n, k, a.data(), false, reinterpret_cast<const float*>(packed.data()), true, nullptr, nullptr, result.data(), &weight});
    check_close(name_of(storage.format), result, as_double(expected), 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(a_choice_is_measured_once_and_kept) {
  if (missing() || !device()->onednn()) return;
  const auto file = std::filesystem::temp_directory_path() / ("ppengine-products-" + std::to_string(getpid()));
  Stream stream(device());
  const cpu::Gemm shape{256, 256, 256, nullptr, false, nullptr, true, nullptr, nullptr, nullptr};
  const auto first = cpu::ProductTable(file).choose(stream, shape), again = cpu::ProductTable(file).choose(stream, shape);
  BOOST_TEST(first.ours_gflops > 0);
  BOOST_TEST(first.onednn_gflops > 0);
  BOOST_TEST(again.ours == first.ours);
  BOOST_TEST(again.ours_gflops == first.ours_gflops, boost::test_tools::tolerance(0.1));
  for (const char* by : {"cpu", "onednn"}) {
    std::ofstream(file) << "not a line of this file\n256x256x256-tb " << by << " 1 2\n256x256x256-tb other 3 4\n";
    BOOST_TEST(cpu::ProductTable(file).choose(stream, shape).ours == (by == std::string("cpu")));
  }
  BOOST_TEST(cpu::ProductTable("/proc/no/such/file").choose(stream, shape).ours);  // not kept: not measured
  std::filesystem::remove(file);
}

BOOST_AUTO_TEST_CASE(a_rate_is_steady_once_a_second_try_comes_near_the_best) {
  cpu::BestRate rate;
  for (double disturbed : {40.0, 55.0, 90.0}) {
    BOOST_TEST(!rate.steady());
    rate.add(disturbed);
  }
  BOOST_TEST(!rate.steady());
  rate.add(87.0);
  BOOST_TEST(rate.steady());
  rate.add(100.0);  // 87 and 90 were slow after all
  BOOST_TEST(!rate.steady());
  BOOST_TEST(rate.best() == 100.0);
}

// Ranks of a run agree on what the first of them found; a run that begins later measures again, and what it finds replaces the former.
BOOST_AUTO_TEST_CASE(a_choice_of_a_busy_machine_is_ours_for_now_and_measured_again_later) {
  if (missing() || !device()->onednn()) return;
  const auto file = std::filesystem::temp_directory_path() / ("ppengine-busy-products-" + std::to_string(getpid()));
  Stream stream(device());
  const cpu::Gemm shape{256, 256, 256, nullptr, false, nullptr, true, nullptr, nullptr, nullptr};
  std::ofstream(file) << "256x256x256-tb cpu 0.001 0.002 busy " << std::time(nullptr) << '\n';
  const auto now = cpu::ProductTable(file).choose(stream, shape);
  BOOST_TEST(now.ours);
  BOOST_TEST(now.onednn_gflops == 0.002);
  std::ofstream(file) << "256x256x256-tb cpu 0.001 0.002 busy 1000\n";
  const auto later = cpu::ProductTable(file).choose(stream, shape), again = cpu::ProductTable(file).choose(stream, shape);
  BOOST_TEST(later.onednn_gflops > 0.002);
  BOOST_TEST(again.ours == later.ours);
  BOOST_TEST(again.onednn_gflops == later.onednn_gflops, boost::test_tools::tolerance(0.1));
  std::ofstream(file) << "256x256x256-tb cpu 0.001 0.002 busy 1000\n256x256x256-tb onednn 3 4\n256x256x256-tb cpu 5 6\n";
  const auto settled = cpu::ProductTable(file).choose(stream, shape);
  BOOST_TEST(!settled.ours);
  BOOST_TEST(settled.onednn_gflops == 4);
  std::filesystem::remove(file);
}

// Both compute what add and bias ask for.
BOOST_AUTO_TEST_CASE(both_choices_give_the_same_product) {
  if (missing() || !device()->onednn()) return;
  Stream stream(device());
  for (bool transposed_a : {false, true})
    for (bool transposed_b : {false, true})
      for (const auto& [with_bias, with_add] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
        const Case c{70, 50, 90, transposed_a, transposed_b, with_bias, with_add};
        const Matrices of(c);
        std::vector<float> result(of.add.size());
        cpu::multiply(stream,
                      {c.m, c.n, c.k, of.a.data(), transposed_a, of.b.data(), transposed_b, with_bias ? of.bias.data() : nullptr,
                       with_add ? of.add.data() : nullptr, result.data()},
                      {.ours = false});
        stream.wait();
        check_close("oneDNN", result, product_in_double(c, of), 1e-5);
      }
}

// A large copy is asynchronous on CPUs too: what is added is there only when it is done.
BOOST_AUTO_TEST_CASE(both_choices_wait_for_what_they_add) {
  if (missing() || !device()->onednn()) return;
  Stream stream(device());
  const Case c{4096, 2048, 8, false, false, false, true};
  const Matrices of(c);
  const auto expected = product_in_double(c, of);
  for (const bool ours : {true, false}) {
    std::vector<float> added(of.add.size()), result(of.add.size());
    stream.copy(added.data(), of.add.data(), of.add.size() * sizeof(float));
    cpu::multiply(stream, {c.m, c.n, c.k, of.a.data(), false, of.b.data(), false, nullptr, added.data(), result.data()}, {.ours = ours});
    stream.wait();
    check_close(ours ? "cpu" : "oneDNN", result, expected, 1e-5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
