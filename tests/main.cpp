// The entry point of every test program. Written out, since BOOST_TEST_MODULE must come before the first include and the precompiled
// header comes before everything.
#include <boost/test/unit_test.hpp>

int main(int argc, char* argv[]) {
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
