// Every kernel that GPUs run, from its PTX over the interpreter, against the CPU device: the same sources through two compilers.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <set>

#include "kernels/case.hpp"
#include "opcodes.hpp"

namespace {
using namespace ppengine;
using namespace ppengine::test;

const ptx::Module& module_of(const std::string& file) {
  static std::map<std::string, ptx::Module> modules;
  const auto found = modules.find(file);
  return found != modules.end() ? found->second : modules.emplace(file, ptx::Module::parse(kernel_ptx(file))).first->second;
}

void compare(const std::vector<KernelCase>& cases) {
  std::uint64_t seed = 1;
  for (const KernelCase& one : cases) {
    std::string found;
    try {
      found = difference(one, run_on_cpu(one), run_on_interpreter(one, module_of(one.file), seed++));
    } catch (const std::exception& e) {
      found = e.what();
    }
    BOOST_TEST(found.empty(), found);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels, *boost::unit_test::precondition(ppengine::test::has_ptx))

BOOST_AUTO_TEST_CASE(activation) { compare(activation_cases()); }
BOOST_AUTO_TEST_CASE(attention) { compare(attention_cases()); }
BOOST_AUTO_TEST_CASE(attention_in_tiles) { compare(tile_cases()); }
BOOST_AUTO_TEST_CASE(elementwise) { compare(elementwise_cases()); }
BOOST_AUTO_TEST_CASE(few_rows) { compare(few_rows_cases()); }
BOOST_AUTO_TEST_CASE(loss) { compare(loss_cases()); }
BOOST_AUTO_TEST_CASE(matmul) { compare(matmul_cases()); }
BOOST_AUTO_TEST_CASE(norm) { compare(norm_cases()); }
BOOST_AUTO_TEST_CASE(optimizer) { compare(optimizer_cases()); }
BOOST_AUTO_TEST_CASE(tensor_attention) { compare(tensor_attention_cases()); }
BOOST_AUTO_TEST_CASE(tensor_products) { compare(tensor_product_cases()); }
BOOST_AUTO_TEST_CASE(weights) { compare(weight_cases()); }

BOOST_AUTO_TEST_CASE(every_kernel_has_a_case) {
  std::set<std::string> covered;
  for (const auto& cases :
       {activation_cases(), attention_cases(), tile_cases(), elementwise_cases(), few_rows_cases(), loss_cases(), matmul_cases(),
        norm_cases(), optimizer_cases(), tensor_attention_cases(), tensor_product_cases(), weight_cases()})
    for (const KernelCase& one : cases) covered.insert(one.file + "/__sycl_kernel_" + one.kernel);
  for (const auto& entry : std::filesystem::directory_iterator(PPENGINE_PTX)) {
    if (entry.path().extension() != ".ptx") continue;
    // The twin "_with_offset" of a kernel is for launches with a global offset, of which there are none.
    for (const auto& [name, function] : module_of(entry.path().stem()).functions)
      if (function->entry && !name.ends_with("_with_offset")) BOOST_TEST(covered.contains(entry.path().stem().string() + "/" + name), name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
