// Sizes that grow with the microbatch: products and exact quotients, against the numbers that they stand for.
#include <boost/test/unit_test.hpp>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/tensor/dim.hpp>

using namespace ppengine;
using engine::Dim;

BOOST_AUTO_TEST_SUITE(dim)

BOOST_AUTO_TEST_CASE(products_and_quotients_are_those_of_the_numbers) {
  const Dim some[]{{0, 3}, {1, 0}, {1, -1}, {2, 5}, {-1, 7}, {0, 1}, {3, 0}};
  for (const Dim& a : some)
    for (const Dim& b : some) {
      const Dim product = a * b;
      for (std::int64_t samples : {1, 2, 5, 9}) BOOST_TEST(product.at(samples) == a.at(samples) * b.at(samples));
      BOOST_TEST((product / b == a), product.text() << " / " << b.text());
      BOOST_TEST((product / a == b), product.text() << " / " << a.text());
    }
  BOOST_TEST((Dim(0, -1, 1) / Dim(1, 1) == Dim(1, -1)));  // B² - 1 = (B + 1) · (B - 1)
  BOOST_TEST((Dim(2, 4, 6) / Dim(1, 2, 3) == Dim(2)));
  BOOST_TEST((Dim(0, -1, 1).text() == "B*B-1"));
  BOOST_TEST(!Dim(0, 4, 1).is(4));
}

BOOST_AUTO_TEST_CASE(what_leaves_a_rest_or_grows_faster_is_refused) {
  BOOST_CHECK_THROW(Dim(0, 1, 1) / Dim(1, 1), ConfigError);
  BOOST_CHECK_THROW(Dim(0, 0, 1) / Dim(2, 0), ConfigError);
  BOOST_CHECK_THROW(Dim(5) / Dim(1, 0), ConfigError);
  BOOST_CHECK_THROW(Dim(0, 0, 1) * Dim(1, 0), ConfigError);
  BOOST_CHECK_THROW(Dim(0, 0, 1) * Dim(0, 0, 1), ConfigError);
  BOOST_CHECK_THROW(Dim(std::int64_t{1} << 30, 0) * Dim(1, 0), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
