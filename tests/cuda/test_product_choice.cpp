// Which kernel makes which product on a device with tensor cores. No such device is needed: the choice is a function of numbers.
#include <boost/test/unit_test.hpp>

#include <ppengine/ops/sycl/product_choice.hpp>

namespace {
using namespace ppengine::ops;
using own::choose_product;
using own::ProductChoice;

constexpr own::ProductUnits a100{.tensor_cores = true, .count = 108}, older{.tensor_cores = false, .count = 40};

// Row-major c = a·b, a and b transposed or not.
MatmulShape shape(std::int64_t m, std::int64_t n, std::int64_t k, bool a_across = false, bool b_along = false) {
  MatmulShape s{};
  s.m = m, s.n = n, s.k = k, s.c_m = n, s.c_n = 1, s.inner_batch = 1, s.alpha = 1;
  s.a_m = a_across ? 1 : k, s.a_k = a_across ? m : 1;
  s.b_k = b_along ? 1 : n, s.b_n = b_along ? k : 1;
  return s;
}

std::string kernel(const own::ProductUnits& units, Type in, Type out, const MatmulShape& s, bool aligned = true) {
  const ProductChoice choice = choose_product(units, in, out, s, 1, aligned);
  return choice.file + "/" + choice.kernel;
}
std::string of_bf16(const MatmulShape& s, bool aligned = true) { return kernel(a100, Type::bf16, Type::bf16, s, aligned); }

}  // namespace

BOOST_AUTO_TEST_SUITE(product_choice)

BOOST_AUTO_TEST_CASE(three_directions_of_a_layer) {
  BOOST_TEST(of_bf16(shape(8192, 3072, 768, false, true)) == "matmul_tensor_large/matmul_large_kk_bf16");
  BOOST_TEST(of_bf16(shape(8192, 768, 3072)) == "matmul_tensor_large/matmul_large_kn_bf16");
  BOOST_TEST(kernel(a100, Type::bf16, Type::f32, shape(4096, 1024, 8192, true)) == "matmul_tensor_large/matmul_large_mn_bf16_f32");
}

BOOST_AUTO_TEST_CASE(few_tiles_are_smaller_ones) {
  BOOST_TEST(of_bf16(shape(1024, 768, 768, false, true)) == "matmul_tensor_small/matmul_small_kk_bf16");
  const ProductChoice choice = choose_product(a100, Type::bf16, Type::bf16, shape(130, 200, 64, false, true), 3, true);
  BOOST_TEST(choice.groups_x == 9u);  // three batches of three tiles of 64 rows
  BOOST_TEST(choice.groups_y == 4u);
  BOOST_TEST(choice.size_y * choice.size_x == 128u);
}

// A vocabulary of 50257, pointers into the middle, an odd batch stride.
BOOST_AUTO_TEST_CASE(rows_that_begin_anywhere_are_read_element_by_element) {
  BOOST_TEST(of_bf16(shape(1024, 768, 50257)) == "matmul_tensor_small/matmul_any_bf16");
  BOOST_TEST(of_bf16(shape(1024, 50257, 768)) == "matmul_tensor_small/matmul_any_bf16");
  BOOST_TEST(of_bf16(shape(1024, 50257, 768, false, true)) == "matmul_tensor_large/matmul_large_kk_bf16");
  BOOST_TEST(of_bf16(shape(1024, 768, 768), false) == "matmul_tensor_small/matmul_any_bf16");
  MatmulShape odd = shape(64, 64, 64);
  odd.a_outer = 4100;
  BOOST_TEST(of_bf16(odd) == "matmul_tensor_small/matmul_any_bf16");
}

BOOST_AUTO_TEST_CASE(what_tensor_cores_do_not_take_runs_without_them) {
  BOOST_TEST(of_bf16(shape(4, 768, 768)) == "matmul/matvec_bf16");
  BOOST_TEST(kernel(a100, Type::f32, Type::f32, shape(1024, 768, 768)) == "matmul/matmul_f32");
  BOOST_TEST(kernel(older, Type::bf16, Type::f32, shape(1024, 768, 768)) == "matmul/matmul_bf16_f32");
  MatmulShape transposed = shape(64, 64, 64);
  transposed.c_m = 1, transposed.c_n = 64;
  BOOST_TEST(of_bf16(transposed) == "matmul/matmul_bf16");
}

BOOST_AUTO_TEST_SUITE_END()
