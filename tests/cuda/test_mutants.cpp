// Kernels that were broken on purpose must be caught, by a fault or by other results than the CPU's: else the kernels' tests show nothing.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "kernels/case.hpp"
#include "opcodes.hpp"

namespace {
using namespace ppengine;
using namespace ppengine::test;

struct Mutant {
  const char *what, *kernel, *from, *to;
  int which = 0;                 // the first, second, ... of its kind
  const char* inside = nullptr;  // a function that the kernel calls; null: the kernel itself
};

// From a function's header to the end of its body.
std::pair<std::size_t, std::size_t> body_of(const std::string& text, const std::string& function) {
  const std::size_t begin = text.find(" " + function + "(\n");
  BOOST_TEST_REQUIRE(begin != std::string::npos, function);
  return {begin, text.find("\n}", begin)};
}

std::string mutated(std::string text, const Mutant& mutant) {
  auto [at, end] = body_of(text, mutant.inside ? mutant.inside : std::string("__sycl_kernel_") + mutant.kernel);
  for (int i = 0;; ++i, ++at) {
    at = text.find(mutant.from, at);
    BOOST_TEST_REQUIRE((at != std::string::npos && at < end), mutant.what << ": no '" << mutant.from << "' in " << mutant.kernel);
    if (i == mutant.which) break;
  }
  return text.replace(at, std::string_view(mutant.from).size(), mutant.to);
}

// What is wrong with it; empty: nothing was found.
std::string caught(const KernelCase& one, const std::string& text, const Outcome& expected) {
  try {
    return difference(one, expected, run_on_interpreter(one, ptx::Module::parse(text), 3));
  } catch (const std::exception& e) {
    return e.what();
  }
}

void all_are_caught(const std::vector<KernelCase>& cases, const std::vector<Mutant>& mutants) {
  for (const Mutant& mutant : mutants) {
    const auto found = std::ranges::find(cases, mutant.kernel, &KernelCase::kernel);
    BOOST_TEST_REQUIRE((found != cases.end()), mutant.kernel);
    const std::string text = kernel_ptx(found->file);
    const Outcome expected = run_on_cpu(*found);
    BOOST_TEST(caught(*found, text, expected).empty(), mutant.kernel << " as it is");
    const std::string why = caught(*found, mutated(text, mutant), expected);
    BOOST_TEST(!why.empty(), mutant.kernel << ": " << mutant.what << " was not found");
    BOOST_TEST_MESSAGE(mutant.what << ": " << why);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mutants, *boost::unit_test::precondition(ppengine::test::has_ptx))

BOOST_AUTO_TEST_CASE(of_flat_kernels_and_of_a_transposition) {
  all_are_caught(elementwise_cases(), {
                                          {"the barrier of a transposition taken out", "transpose_f32", "bar.sync \t0;", ""},
                                          {"an edge one column too far", "transpose_f32", "setp.ge.s64", "setp.gt.s64"},
                                          {"one element too many", "add_f32", "setp.ge.s64", "setp.gt.s64"},
                                          {"another operation", "add_f32", "add.rn.f32", "sub.rn.f32"},
                                          {"reads the result, which nobody wrote", "add_f32", "[__sycl_kernel_add_f32_param_1]",
                                           "[__sycl_kernel_add_f32_param_2]"},
                                          {"elements of half the size", "add_f32", ", 2;", ", 1;"},
                                          {"all work-items do the same", "add_f32", "%tid.x", "%tid.y"},
                                          {"all work-groups do the same", "add_f32", "%ctaid.x", "%ctaid.y"},
                                          {"bf16 cut off in place of rounded", "add_bf16", "32767", "0"},
                                          {"drops what should stay", "dropout_f32", "setp.lt.u32", "setp.gt.u32"},
                                      });
}

BOOST_AUTO_TEST_CASE(of_products) {
  const char* const product = "_Z6matmulIffEvPKT_S2_PT0_S2_PKS3_RK11MatmulShapei";
  all_are_caught(matmul_cases(), {
                                     {"the barrier behind loads taken out", "matmul_f32", "bar.sync \t0;", "", 0, product},
                                     {"the barrier before the next loads taken out", "matmul_f32", "bar.sync \t0;", "", 1, product},
                                     {"the barrier of a matrix-vector product taken out", "matvec_f32", "bar.sync \t0;", ""},
                                     {"one step of the sum too many", "matmul_f32", "setp.ge.s64", "setp.gt.s64", 0, product},
                                 });
}

BOOST_AUTO_TEST_CASE(of_tensor_cores) {
  const char* const product = "_Z7productI3CutILi2ELi4ELi4ELi4EELb1ELb1EtEvPKtS3_PT2_S3_PKS4_RK11MatmulShapeiPK7BuffersIT_E";
  const char* const kernel = "matmul_large_kk_bf16";
  all_are_caught(tensor_product_cases(), {
                                             {"copies that are not waited for", kernel, "cp.async.wait_group 0;", "", 0, product},
                                             {"the barrier behind the first copies taken out", kernel, "bar.sync \t0;", "", 0, product},
                                             {"a barrier of the loop taken out", kernel, "bar.sync \t0;", "", 2, product},
                                             {"rows read as columns", kernel, ".x4.shared", ".x4.trans.shared", 0, product},
                                         });
}

BOOST_AUTO_TEST_CASE(of_sums) {
  all_are_caught(optimizer_cases(), {
                                        {"the barrier of sums over rows taken out", "sum_rows_f32", "bar.sync \t0;", ""},
                                        {"a moment added in place of subtracted", "adamw", "sub.rn.f32", "add.rn.f32"},
                                        {"lanes that all read one", "sum_partial", "shfl.sync.bfly.b32", "shfl.sync.idx.b32"},
                                    });
  all_are_caught(norm_cases(), {
                                   {"a shuffle over another distance", "softmax_f32", ", 4, 0, -1;", ", 3, 0, -1;", 1},
                                   {"epsilon as a factor", "variance_to_rstd", "add.rn.f32", "mul.rn.f32"},
                               });
}

BOOST_AUTO_TEST_CASE(of_attention) {
  all_are_caught(attention_cases(), {
                                        {"the barrier behind scores taken out", "decode_f32", "bar.sync \t0;", "", 1, "decode_f32"},
                                        {"a query that does not see its own key", "causal_softmax", "setp.gt.s64", "setp.ge.s64", 2},
                                    });
}

BOOST_AUTO_TEST_SUITE_END()
